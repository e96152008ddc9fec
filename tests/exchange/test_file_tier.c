/* The file tier by its header: written, found, read, opened again; whatever happens to its files, and whenever its process is killed, a block that it hands
 * out is what its name says. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/exchange/tier_rig.h"
#include "tests/full.h"
#include "tests/temp.h"

static const int64_t roomy = INT64_C(64) << 20, tight = 1000000; /* tight: four extents of twelve blocks */

static void path_in(char out[256], const char *dir, const char *name)
{
    snprintf(out, 256, "%s/%s", dir, name);
}

/* The k-th file of the directory, in order, that is an extent; false: there are not so many. */
static bool extent_path(char out[256], const char *dir, int32_t k)
{
    struct dirent **list;
    const int n = scandir(dir, &list, NULL, alphasort);
    bool found = false;
    for (int i = 0; i < n; i++) {
        if (strncmp(list[i]->d_name, "extent-", 7) == 0 && k-- == 0) {
            path_in(out, dir, list[i]->d_name);
            found = true;
        }
        free(list[i]);
    }
    free(list);
    return found;
}

/* What du says. */
static int64_t dir_bytes(const char *dir)
{
    DIR *d = opendir(dir);
    int64_t n = 0;
    struct stat st;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, "..") != 0 && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            n += st.st_blocks * 512;
    closedir(d);
    return n;
}

static struct qr_file_tier_stats stats_of(const struct qr_file_tier *t)
{
    struct qr_file_tier_stats s;
    qr_file_tier_stats(t, &s);
    return s;
}

static void count_wake(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

Test(file_tier, finds_what_was_written_and_reads_it_back_in_order)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    _Atomic int n_wakes = 0;
    struct qr_file_tier_config c = tier_config(dir, roomy, 1);
    c.wake = count_wake;
    c.wake_arg = &n_wakes;
    struct qr_file_tier *t;
    struct qr_err err;
    cr_assert_eq(qr_file_tier_open(&t, &c, &err), 0);
    cr_assert_eq(count_found(t, 0, 40), 0);
    give(t, 0, 30);
    give(t, 10, 20); /* again: not written twice */
    settle(t);
    cr_assert_eq(count_found(t, 0, 40), 30);
    struct qr_kv_name names[40];
    for (int32_t i = 0; i < 40; i++)
        names[i] = name_of(i);
    cr_assert_eq(qr_file_tier_find(t, names, 0, 40), 30);
    cr_assert_eq(qr_file_tier_find(t, names, 7, 25), 18);
    cr_assert_eq(qr_file_tier_find(t, names, 30, 40), 0);
    cr_assert_eq(qr_file_tier_find(t, names, 5, 5), 0);
    const char *why = "";
    cr_assert_eq(fetch_all(t, 0, 30, &why), 30);
    cr_assert_null(why);
    cr_assert_eq(fetch_all(t, 25, 40, &why), 5);
    cr_assert_not_null(why);
    cr_assert_gt(n_wakes, 0);
    const struct qr_file_tier_stats s = stats_of(t);
    cr_assert(s.blocks_written == 30 && s.bytes_written == 30 * BLOCK && s.blocks_read == 35 && s.bytes_read == 35 * BLOCK);
    cr_assert(s.n_blocks == 30 && s.bytes == 30 * BLOCK && s.n_bad_sum == 0 && s.n_full == 0 && s.n_failed == 0 && s.n_extents_dropped == 0);
    qr_file_tier_close(t);
    remove_dir(dir);
}

Test(file_tier, wakes_the_engine_when_there_is_a_parcel_again)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    _Atomic int n_wakes = 0;
    struct qr_file_tier_config c = tier_config(dir, roomy, 1);
    c.wake = count_wake;
    c.wake_arg = &n_wakes;
    struct qr_file_tier *t;
    struct qr_err err;
    struct qr_parcel *p[PARCELS];
    cr_assert_eq(qr_file_tier_open(&t, &c, &err), 0);
    for (int32_t i = 0; i < PARCELS; i++) {
        p[i] = qr_file_tier_parcel(t);
        p[i]->name = name_of(i);
    }
    cr_assert_null(qr_file_tier_parcel(t));
    cr_assert_eq(n_wakes, 0);
    for (int32_t i = 0; i < PARCELS; i++)
        qr_file_tier_write(t, p[i]);
    while (n_wakes == 0)
        nap();
    qr_file_tier_close(t);
    remove_dir(dir);
}

Test(file_tier, closes_with_all_written_that_was_given_and_has_it_when_it_is_opened_again)
{
    char dir[64], below[256];
    temp_dir_make(dir, "tier");
    path_in(below, dir, "made/here");
    for (int32_t turn = 0; turn < 5; turn++) {
        struct qr_file_tier *t = tier_open(below, roomy, 1);
        cr_assert_eq(stats_of(t).n_blocks, turn * 25);
        cr_assert_eq(read_each(t, 0, turn * 25), turn * 25);
        give(t, turn * 25, turn * 25 + 25);
        qr_file_tier_close(t);
    }
    struct stat st;
    char path[256];
    cr_assert(stat(below, &st) == 0 && (st.st_mode & 0777) == 0700);
    cr_assert(extent_path(path, below, 0) && stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    cr_assert_not(extent_path(path, below, 1), "the last extent is gone on with");
    remove_dir(below);
    path_in(below, dir, "made");
    rmdir(below);
    rmdir(dir);
}

Test(file_tier, keeps_to_its_bound_while_ten_times_as_much_is_written)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    const int32_t n = (int32_t)(10 * tight / BLOCK);
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    for (int32_t i = 0; i < n; i += 5) {
        give(t, i, i + 5);
        cr_assert_leq(dir_bytes(dir), tight);
    }
    settle(t);
    cr_assert_leq(dir_bytes(dir), tight);
    const struct qr_file_tier_stats s = stats_of(t);
    cr_assert_eq(s.blocks_written, n);
    cr_assert_geq(s.n_blocks * BLOCK, tight * 2 / 3, "%lld blocks are kept", (long long)s.n_blocks);
    cr_assert_gt(s.n_extents_dropped, 30);
    cr_assert_eq(count_found(t, n - (int32_t)s.n_blocks, n), s.n_blocks, "the newest are kept");
    cr_assert_eq(read_each(t, 0, n), s.n_blocks);
    qr_file_tier_close(t);
    t = tier_open(dir, tight, 1);
    cr_assert_eq(read_each(t, 0, n), s.n_blocks);
    qr_file_tier_close(t);
    remove_dir(dir);
}

Test(file_tier, keeps_to_another_bound_when_it_is_opened_with_one)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    give(t, 0, 48);
    qr_file_tier_close(t);
    t = tier_open(dir, 2 * tight, 1); /* larger extents beside smaller ones */
    const int32_t n_before = count_found(t, 0, 48);
    give(t, 48, 80);
    settle(t);
    cr_assert_eq(read_each(t, 0, 80), n_before + 32);
    cr_assert_leq(dir_bytes(dir), 2 * tight);
    qr_file_tier_close(t);
    t = tier_open(dir, tight, 1);
    cr_assert_leq(dir_bytes(dir), tight);
    const int32_t n_kept = count_found(t, 0, 80);
    cr_assert(n_kept > 10 && n_kept < n_before + 32);
    cr_assert_eq(read_each(t, 80 - n_kept, 80), n_kept, "the newest are kept");
    give(t, 80, 90);
    qr_file_tier_close(t);
    cr_assert_leq(dir_bytes(dir), tight);
    remove_dir(dir);
}

Test(file_tier, refuses_a_bound_without_room_for_four_extents)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    struct qr_err err;
    struct qr_file_tier *t;
    struct qr_file_tier_config c = tier_config(dir, 4 * BLOCK, 1);
    cr_assert_eq(qr_file_tier_open(&t, &c, &err), QR_E_USAGE);
    int64_t least = 0;
    cr_assert(sscanf(strstr(err.msg, "at least"), "at least %ld", &least) == 1, "%s", err.msg);
    c.bytes_max = least - 1;
    cr_assert_eq(qr_file_tier_open(&t, &c, &err), QR_E_USAGE);
    t = tier_open(dir, least, 1);
    give(t, 0, 9);
    settle(t);
    cr_assert_eq(read_each(t, 0, 9), 4);
    cr_assert_leq(dir_bytes(dir), least);
    qr_file_tier_close(t);
    remove_dir(dir);
}

Test(file_tier, reads_nothing_of_another_domain_and_takes_its_room_first)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    give(t, 0, 60);
    qr_file_tier_close(t);
    t = tier_open(dir, tight, 2);
    cr_assert_eq(count_found(t, 0, 60), 0);
    give(t, 0, 12);
    settle(t);
    cr_assert_eq(read_each(t, 0, 60), 12);
    cr_assert_leq(dir_bytes(dir), tight);
    qr_file_tier_close(t);
    t = tier_open(dir, tight, 1); /* what the other one did not need */
    const int32_t n_left = count_found(t, 0, 60);
    cr_assert(n_left > 10 && n_left < 48 && read_each(t, 0, 60) == n_left, "%d are left", n_left);
    give(t, 60, 80);
    settle(t);
    cr_assert_eq(count_found(t, 0, 80), n_left + 20, "the other domain's went first");
    qr_file_tier_close(t);
    remove_dir(dir);
}

Test(file_tier, leaves_alone_what_is_not_an_extent_of_its_user)
{
    char dir[64], path[256], target[256];
    temp_dir_make(dir, "tier");
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    give(t, 0, 3);
    qr_file_tier_close(t);
    static const char *const names[] = {"notes.txt", "extent-1.kv", "extent-00000000000000F1.kv", "extent-0000000000000020.kv", "extent-ffffffffffffffff.kv"};
    path_in(target, dir, names[0]);
    for (int i = 0; i < QR_COUNT(names); i++) {
        path_in(path, dir, names[i]);
        const int fd = open(path, O_WRONLY | O_CREAT, 0644); /* also for others' eyes */
        cr_assert(fd >= 0 && write(fd, "kept", 4) == 4 && close(fd) == 0);
    }
    path_in(path, dir, "extent-0000000000000021.kv");
    cr_assert_eq(symlink(target, path), 0);
    path_in(path, dir, "extent-0000000000000022.kv");
    cr_assert_eq(mkfifo(path, 0600), 0);
    t = tier_open(dir, tight, 1);
    give(t, 3, 300);
    settle(t);
    cr_assert_eq(stats_of(t).n_failed, 0);
    qr_file_tier_close(t);
    struct stat st;
    for (int i = 0; i < QR_COUNT(names); i++) {
        path_in(path, dir, names[i]);
        cr_assert(stat(path, &st) == 0 && st.st_size == 4, "%s", names[i]);
    }
    path_in(path, dir, "extent-0000000000000021.kv");
    cr_assert(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
    path_in(path, dir, "extent-0000000000000022.kv");
    cr_assert(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    remove_dir(dir);
}

Test(file_tier, writes_to_no_lock_that_is_another_file_or_none)
{
    char dir[64], path[256], other[256];
    struct qr_file_tier *t;
    struct qr_err err;
    struct stat st;
    temp_dir_make(dir, "tier");
    path_in(path, dir, "lock");
    path_in(other, dir, "other");
    const int fd = open(other, O_WRONLY | O_CREAT, 0600);
    cr_assert(fd >= 0 && write(fd, "kept", 4) == 4 && close(fd) == 0);
    const struct qr_file_tier_config c = tier_config(dir, tight, 1);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(i == 0 ? link(other, path) : i == 1 ? symlink(other, path) : mkfifo(path, 0600), 0);
        cr_assert_lt(qr_file_tier_open(&t, &c, &err), 0);
        cr_assert_not_null(strstr(err.msg, "/lock"), "%s", err.msg);
        cr_assert_eq(unlink(path), 0);
    }
    cr_assert(stat(other, &st) == 0 && st.st_size == 4);
    t = tier_open(dir, tight, 1);
    qr_file_tier_close(t);
    remove_dir(dir);
}

Test(file_tier, refuses_a_second_process_and_names_the_first)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    int ready[2];
    cr_assert_eq(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        tier_open(dir, tight, 1);
        _exit(write(ready[1], "r", 1) == 1 ? pause() : 1);
    }
    char byte;
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    struct qr_file_tier *t;
    struct qr_err err;
    const struct qr_file_tier_config c = tier_config(dir, tight, 1);
    cr_assert_eq(qr_file_tier_open(&t, &c, &err), QR_E_USAGE);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "process %d ", (int)child);
    cr_assert_not_null(strstr(err.msg, wanted), "%s", err.msg);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    t = tier_open(dir, tight, 1);
    qr_file_tier_close(t);
    remove_dir(dir);
}

Test(file_tier, ends_a_fetch_that_is_stopped_while_it_waits_for_parcels)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    struct qr_file_tier *t = tier_open(dir, roomy, 1);
    give(t, 0, 20);
    settle(t);
    struct qr_kv_name names[20];
    for (int32_t i = 0; i < 20; i++)
        names[i] = name_of(i);
    struct qr_fetch f = {.names = names, .first = 0, .n = 20}, other = {.names = names, .first = 5, .n = 6};
    struct qr_node arrived, over;
    qr_list_init(&arrived);
    qr_list_init(&over);
    qr_file_tier_fetch(t, &f);
    for (int32_t n = 0; n < PARCELS; nap()) {
        qr_file_tier_take(t, &arrived, &over);
        n = 0;
        for (const struct qr_node *node = arrived.next; node != &arrived; node = node->next)
            n++;
        cr_assert(qr_list_empty(&over) && n <= PARCELS);
    }
    qr_file_tier_fetch(t, &other);
    atomic_store(&f.stopped, true);
    for (; qr_list_empty(&over); nap())
        qr_file_tier_take(t, &arrived, &over);
    cr_assert(over.next == &f.link && over.prev == &f.link && f.why != NULL);
    qr_list_remove(&f.link);
    for (struct qr_node *node; (node = qr_list_pop_front(&arrived)) != NULL;)
        qr_parcel_give_back(QR_CONTAINER(node, struct qr_parcel, link));
    for (; qr_list_empty(&over); nap())
        qr_file_tier_take(t, &arrived, &over);
    const struct qr_parcel *p = QR_CONTAINER(arrived.next, struct qr_parcel, link);
    cr_assert(over.next == &other.link && other.why == NULL && p->fetch == &other && p->index == 5 && is_right(p));
    qr_parcel_give_back(QR_CONTAINER(qr_list_pop_front(&arrived), struct qr_parcel, link));
    qr_file_tier_fetch(t, &f); /* closing ends it, and takes back what has arrived */
    qr_file_tier_close(t);
    remove_dir(dir);
}

/* ---- damaged files ---- */

/* A directory with one extent of n blocks, kept as bytes. */
static uint8_t *make_image(char dir[64], char path[256], size_t *n_bytes, int32_t n)
{
    temp_dir_make(dir, "tier");
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    give(t, 0, n);
    qr_file_tier_close(t);
    cr_assert(extent_path(path, dir, 0));
    struct qr_buf b = {0};
    struct qr_err err;
    cr_assert_eq(qr_file_read(&b, path, QR_FILE_REGULAR, 1 << 24, &err), 0);
    *n_bytes = b.len;
    return (uint8_t *)b.data;
}

static void put_image(const char *path, const uint8_t *image, size_t n_bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, image, n_bytes) == (ssize_t)n_bytes && close(fd) == 0);
}

Test(file_tier, has_of_a_file_that_was_cut_anywhere_the_blocks_that_are_whole)
{
    char dir[64], path[256];
    size_t n_bytes;
    uint8_t *image = make_image(dir, path, &n_bytes, 3);
    const size_t content = n_bytes - 3 * (size_t)BLOCK;
    const size_t edges[] = {0, 1, 8, 63, 64, 65, 127, 128, 129, 255, 256, content - 1, content, content + 1, content + BLOCK - 1, content + BLOCK,
                            content + BLOCK + 1, content + 2 * BLOCK - 1, content + 2 * BLOCK, n_bytes - 4096, n_bytes - 1, n_bytes};
    for (int i = 0; i < QR_COUNT(edges); i++) {
        put_image(path, image, edges[i]);
        struct qr_file_tier *t = tier_open(dir, tight, 1);
        const int32_t whole = edges[i] < content ? 0 : (int32_t)((edges[i] - content) / BLOCK);
        cr_assert_eq(count_found(t, 0, 3), whole, "cut at %zu", edges[i]);
        cr_assert_eq(read_each(t, 0, 3), whole);
        give(t, 0, 6);
        qr_file_tier_close(t);
        t = tier_open(dir, tight, 1);
        cr_assert_eq(read_each(t, 0, 6), 6, "cut at %zu", edges[i]);
        qr_file_tier_close(t);
        remove_dir(dir);
        cr_assert_eq(mkdir(dir, 0700), 0);
    }
    qr_free(image);
    remove_dir(dir);
}

Test(file_tier, hands_out_no_block_with_a_flipped_bit_and_loses_no_other)
{
    char dir[64], path[256];
    size_t n_bytes;
    uint8_t *image = make_image(dir, path, &n_bytes, 3);
    const size_t content = n_bytes - 3 * (size_t)BLOCK;
    for (int32_t i = 0; i < 64 + 64 + 8; i++) { /* each byte of the header, of the second record, some of the second content */
        const size_t at = i < 64 ? (size_t)i : i < 128 ? 64 + (size_t)i : content + BLOCK + (size_t)(i - 128) * (BLOCK - 1) / 7;
        image[at] ^= (uint8_t)(1 << i % 8);
        put_image(path, image, n_bytes);
        struct qr_file_tier *t = tier_open(dir, tight, 1);
        cr_assert_eq(read_each(t, 0, 3), i < 64 ? 0 : 2, "byte %zu", at);
        cr_assert_eq(stats_of(t).n_bad_sum, i < 64 ? 0 : 1, "byte %zu", at);
        cr_assert_eq(count_found(t, 0, 3), i < 64 ? 0 : 2, "what was wrong once is not found again");
        give(t, 1, 2);
        settle(t);
        cr_assert_eq(read_each(t, 1, 2), 1, "it is written again");
        qr_file_tier_close(t);
        image[at] ^= (uint8_t)(1 << i % 8);
        remove_dir(dir);
        cr_assert_eq(mkdir(dir, 0700), 0);
    }
    qr_free(image);
    remove_dir(dir);
}

Test(file_tier, hands_out_nothing_of_a_file_that_changes_while_it_is_open)
{
    char dir[64], path[256];
    temp_dir_make(dir, "tier");
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    give(t, 0, 6);
    settle(t);
    cr_assert(extent_path(path, dir, 0));
    struct stat st;
    cr_assert(stat(path, &st) == 0 && truncate(path, st.st_size - BLOCK - 1) == 0);
    cr_assert_eq(read_each(t, 0, 6), 4);
    cr_assert_eq(stats_of(t).n_bad_sum, 2);
    give(t, 0, 12);
    settle(t);
    cr_assert_eq(read_each(t, 0, 12), 12);
    qr_file_tier_close(t);
    remove_dir(dir);
}

/* ---- a disk that is full, or fails ---- */

#define HOLDS(cond)          \
    do {                     \
        if (!(cond))         \
            return __LINE__; \
    } while (0)

/* On a disk with room for some of 100 blocks: what is there stays right, and more is written once there is room again. 0, or the line of what does not hold. */
static int fill_disk(const char *dir, void (*make_room)(const char *dir))
{
    struct qr_file_tier *t = tier_open(dir, roomy, 1);
    give(t, 0, 100);
    settle(t);
    const struct qr_file_tier_stats s = stats_of(t);
    HOLDS(s.n_full > 0 && s.n_failed == 0 && s.blocks_written > 5 && s.blocks_written + s.n_full == 100);
    HOLDS(read_each(t, 0, 100) == s.blocks_written);
    make_room(dir);
    give(t, 100, 110);
    settle(t);
    HOLDS(read_each(t, 100, 110) == 10);
    qr_file_tier_close(t);
    t = tier_open(dir, roomy, 1);
    HOLDS(read_each(t, 0, 110) == s.blocks_written + 10);
    HOLDS(stats_of(t).n_bad_sum == 0);
    qr_file_tier_close(t);
    return 0;
}

static void raise_limit(const char *dir)
{
    (void)dir;
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

Test(file_tier, goes_on_where_files_may_not_become_larger)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 500000;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const int line = fill_disk(dir, raise_limit);
    cr_assert_eq(line, 0, "line %d", line);
    remove_dir(dir);
}

static void remove_ballast(const char *dir)
{
    char path[256];
    path_in(path, dir, "../ballast");
    unlink(path);
}

/* In a process of its own, with a small file system that only it sees. */
static int fill_small_disk(void)
{
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/mnt", "tmpfs", 0, "size=1m") != 0)
        return -1;
    static const uint8_t ballast[400000];
    const int fd = open("/mnt/ballast", O_WRONLY | O_CREAT, 0600);
    HOLDS(fd >= 0 && write(fd, ballast, sizeof ballast) == sizeof ballast && close(fd) == 0);
    return fill_disk("/mnt/blocks", remove_ballast);
}

Test(file_tier, goes_on_where_the_disk_is_full)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int line = fill_small_disk();
        if (line > 0)
            fprintf(stderr, "%s:%d: does not hold\n", __FILE__, line);
        _exit(line < 0 ? 77 : line != 0);
    }
    int status;
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        fprintf(stderr, "skipped: a file system of its own is not allowed here; a full disk is shown by a limit of file sizes only\n");
    else
        cr_assert_eq(WEXITSTATUS(status), 0);
}

/* How often `what` stands in the log, which goes to a file while this is open. */
static int32_t count_in_log(int log, const char *what)
{
    char text[4096] = "";
    int32_t n = 0;
    cr_assert_geq(pread(log, text, sizeof text - 1, 0), 0);
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

Test(file_tier, goes_on_where_no_file_can_be_made_and_says_so_once_a_minute)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    give(t, 0, 8);
    settle(t);
    remove_dir(dir);
    const int log = memfd_create("log", 0), before = dup(STDERR_FILENO);
    dup2(log, STDERR_FILENO);
    give(t, 8, 40);
    settle(t);
    dup2(before, STDERR_FILENO);
    const struct qr_file_tier_stats s = stats_of(t);
    cr_assert(s.n_failed > 1 && s.blocks_written + s.n_failed == 40, "%lld failed", (long long)s.n_failed);
    cr_assert_eq(count_in_log(log, " warn exchange file tier goes on with what it has: extent-0000000000000001.kv: cannot be made: "), 1);
    cr_assert_eq(count_in_log(log, " warn "), 1);
    cr_assert_eq(read_each(t, 0, 40), s.blocks_written, "what is open is read");
    qr_file_tier_close(t);
    close(log);
    close(before);
}

/* ---- killed ---- */

/* Writes for ever; tells the number of the last block that was found after it was written. */
static void write_for_ever(const char *dir, int32_t first, _Atomic int32_t *n_written)
{
    struct qr_file_tier *t = tier_open(dir, tight, 1);
    for (int32_t i = first;; i++) {
        give(t, i, i + 1);
        const struct qr_kv_name name = name_of(i - PARCELS);
        if (i - PARCELS >= first && qr_file_tier_has(t, &name))
            atomic_store(n_written, i - PARCELS);
    }
}

Test(file_tier, has_no_wrong_byte_after_its_process_was_killed_at_any_moment)
{
    char dir[64];
    temp_dir_make(dir, "tier");
    const int32_t n_kills = full_size() ? 1000 : 20;
    struct qr_rng r = {.seed = 5};
    const int shared = memfd_create("written", 0);
    cr_assert_eq(ftruncate(shared, 4096), 0);
    _Atomic int32_t *n_written = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    int32_t next = 0, n_seen = 0;
    for (int32_t k = 0; k < n_kills; k++) {
        atomic_store(n_written, -1);
        const pid_t child = fork();
        if (child == 0)
            write_for_ever(dir, next, n_written);
        nanosleep(&(struct timespec){.tv_nsec = 1000000 + qr_rng_below(&r, 15000000)}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        const int32_t last = atomic_load(n_written), end = (last < 0 ? next : last) + 2 * PARCELS + 2, from = end > 70 ? end - 70 : 0;
        struct qr_file_tier *t = tier_open(dir, tight, 1);
        const int32_t n_found = count_found(t, from, end), n_right = read_each(t, from, end);
        const struct qr_kv_name name = name_of(last < 0 ? 0 : last);
        cr_assert_eq(n_right, n_found, "kill %d: %d are found, %d are right", k, n_found, n_right);
        cr_assert(last < 0 || qr_file_tier_has(t, &name), "kill %d: block %d was written and is not there", k, last);
        cr_assert_eq(stats_of(t).n_bad_sum, 0, "a process that is killed leaves nothing that fails its sum");
        cr_assert_leq(dir_bytes(dir), tight);
        n_seen += n_right;
        next = end;
        qr_file_tier_close(t);
    }
    cr_assert_gt(n_seen, 20 * n_kills, "%d blocks were read back", n_seen);
    munmap((void *)n_written, 4096);
    close(shared);
    remove_dir(dir);
}
