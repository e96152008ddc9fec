/* Packed copies of weights on disk: the same bytes as packing gives; whatever is not the copy of just this is left out and replaced. */
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utime.h>

#include "base/log.h"
#include "loader/config/hf_config.h"
#include "loader/write/make_model.h"
#include "loader/pack/packed_cache.h"
#include "loader/weights.h"
#include "rig.h"

struct kept {
    char dir[64];
    struct temp_model t;
    struct qr_backend *be;
    struct qr_model_config c;
    struct qr_share share;
};

static struct kept kept_new(enum qr_dtype store)
{
    struct kept k = {.c = qr_model_config_small(QR_ARCH_QWEN2)};
    struct qr_err err = {0};
    const struct qr_backend_options o = {.device = "cpu", .n_threads = 2, .step_rows_max = 8};
    temp_dir_make(k.dir, "packed");
    k.t = temp_model_make(&k.c, store);
    cr_assert_eq(qr_model_config_read(&k.c, k.t.dir, &err), 0, "%s", err.msg);
    qr_share_whole(&k.share, &k.c);
    cr_assert_eq(qr_backend_open(&k.be, &o, &err), 0, "%s", err.msg);
    qr_log_set_level(QR_LOG_ERROR);
    return k;
}

static void kept_free(struct kept *k)
{
    char command[100];
    qr_backend_close(k->be);
    snprintf(command, sizeof command, "rm -rf '%s'", k->dir);
    cr_assert_eq(system(command), 0);
    temp_model_remove(&k->t);
}

static struct qr_weights load(struct kept *k, const char *cache, enum qr_dtype to)
{
    struct qr_weights w;
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    cr_assert_eq(qr_safetensors_open(&st, k->t.dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_weights_load(&w, st, &k->share, k->be, to, &(struct qr_weights_options){.cache_dir = cache}, &err), 0, "%s", err.msg);
    return w;
}

/* Loads with the copy and without: the same bytes. Returns whether the copy was used. */
static bool used(struct kept *k, enum qr_dtype to)
{
    struct qr_weights with = load(k, k->dir, to), without = load(k, NULL, to);
    cr_assert_eq(with.region_bytes, without.region_bytes);
    cr_assert_eq(memcmp(with.region, without.region, with.region_bytes), 0, "%s differs", qr_dtype_name(to));
    cr_assert_eq(without.packed.data, NULL);
    const bool is = with.packed.data != NULL;
    qr_weights_release(&with);
    qr_weights_release(&without);
    return is;
}

static int n_files(const char *dir)
{
    char command[120];
    int n = -1;
    snprintf(command, sizeof command, "ls '%s' | wc -l", dir);
    FILE *f = popen(command, "re");
    cr_assert(f && fscanf(f, "%d", &n) == 1);
    pclose(f);
    return n;
}

Test(packed_cache, the_second_load_maps_what_the_first_has_packed_in_every_type)
{
    static const enum qr_dtype types[] = {QR_F32, QR_BF16, QR_Q8, QR_Q4, QR_C8_G32, QR_C4_G128};
    struct kept k = kept_new(QR_F16);
    for (int i = 0; i < QR_COUNT(types); i++) {
        cr_expect(!used(&k, types[i]), "%s", qr_dtype_name(types[i]));
        cr_expect(used(&k, types[i]), "%s", qr_dtype_name(types[i]));
        cr_expect_eq(n_files(k.dir), i + 1, "one file for each type, and nothing left over");
    }
    kept_free(&k);
}

/* The path of the only file in the directory. */
static void only_file(char path[400], const char *dir)
{
    char command[120];
    snprintf(command, sizeof command, "ls -d '%s'/*.packed", dir);
    FILE *f = popen(command, "re");
    cr_assert(f && fscanf(f, "%399s", path) == 1);
    pclose(f);
}

static void damage(const char *path, int what)
{
    uint8_t b;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    const off_t size = lseek(fd, 0, SEEK_END);
    const off_t at[] = {0, 30, 4096, size / 2, size - 1};
    if (what < QR_COUNT(at)) {
        cr_assert_eq(pread(fd, &b, 1, at[what]), 1);
        b ^= 1;
        cr_assert_eq(pwrite(fd, &b, 1, at[what]), 1);
    } else if (what == 5) {
        cr_assert_eq(ftruncate(fd, size - 1), 0);
    } else if (what == 6) {
        cr_assert_eq(ftruncate(fd, 100), 0);
    } else if (what == 7) {
        cr_assert_eq(ftruncate(fd, 0), 0);
    } else {
        cr_assert_eq(fchmod(fd, 0622), 0);
    }
    close(fd);
}

Test(packed_cache, a_damaged_cut_or_foreign_copy_is_left_out_and_replaced)
{
    struct kept k = kept_new(QR_BF16);
    char path[400];
    cr_expect(!used(&k, QR_BF16));
    only_file(path, k.dir);
    for (int what = 0; what < 9; what++) {
        damage(path, what);
        cr_expect(!used(&k, QR_BF16), "damage %d", what);
        cr_expect(used(&k, QR_BF16), "after damage %d", what);
    }
    cr_expect_eq(n_files(k.dir), 1);
    kept_free(&k);
}

Test(packed_cache, a_model_that_was_written_again_is_packed_again)
{
    struct kept k = kept_new(QR_BF16);
    char path[128];
    const struct utimbuf later = {.actime = 2000000000, .modtime = 2000000000};
    cr_expect(!used(&k, QR_Q8) && used(&k, QR_Q8));
    snprintf(path, sizeof path, "%s/model.safetensors", k.t.dir);
    cr_assert_eq(utime(path, &later), 0);
    cr_expect(!used(&k, QR_Q8) && used(&k, QR_Q8));
    k.share.whole.norm_eps *= 2; /* another configuration */
    cr_expect(!used(&k, QR_Q8) && used(&k, QR_Q8));
    cr_expect_eq(n_files(k.dir), 1);
    kept_free(&k);
}

/* A process that is no more. */
static long dead_pid(void)
{
    const pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    cr_assert(pid > 0 && waitpid(pid, NULL, 0) == pid);
    return pid;
}

static bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* A copy of a file's first n bytes. */
static void put_head(const char *to, const char *from, size_t n)
{
    static char bytes[8192];
    FILE *f = fopen(from, "rb"), *g = fopen(to, "wb");
    cr_assert(f && g && n <= sizeof bytes && fread(bytes, 1, n, f) == n && fwrite(bytes, 1, n, g) == n);
    fclose(f);
    fclose(g);
}

Test(packed_cache, what_writers_that_are_gone_have_begun_is_removed_and_nothing_else)
{
    struct kept k = kept_new(QR_BF16);
    char copy[400], path[10][500];
    const long dead = dead_pid();
    cr_expect(!used(&k, QR_BF16));
    only_file(copy, k.dir);
    const struct {
        const char *before, *behind;
        long pid;
        size_t n_bytes;
        bool removed;
    } row[] = {{".new-", "", dead, 5000, true}, {"x.new-", "", dead, 5000, false}, {".new-", "x", dead, 5000, false}, {".new-", "", 1, 5000, false},
               {".old-", "", dead, 5000, false}, {".new-0", "", dead, 0, true}, {".new-00", "", dead, 10, false}, {".new-000", "", dead, 4096, false},
               {".new-", "", getpid(), 5000, true}};
    for (int i = 0; i < QR_COUNT(row); i++) {
        snprintf(path[i], sizeof path[i], "%s%s%ld%s", copy, row[i].before, row[i].pid, row[i].behind);
        put_head(path[i], copy, row[i].n_bytes);
    }
    const int locked = open(path[7], O_RDONLY | O_CLOEXEC); /* somebody whose pid means nothing here is at it */
    cr_assert(locked >= 0 && flock(locked, LOCK_EX) == 0);
    cr_expect(used(&k, QR_BF16));
    for (int i = 0; i < QR_COUNT(row); i++)
        cr_expect_eq(is_there(path[i]), !row[i].removed, "%s", path[i]);
    close(locked);
    cr_expect(used(&k, QR_BF16) && !is_there(path[7]));
    kept_free(&k);
}

static void replace_in(const char *path, const char *old, const char *new)
{
    char head[QR_PACKED_HEADER_BYTES];
    FILE *f = fopen(path, "r+b");
    cr_assert(f && fread(head, 1, sizeof head, f) == sizeof head);
    const char *at = memmem(head, sizeof head, old, strlen(old));
    cr_assert(at && fseek(f, at - head, SEEK_SET) == 0 && fwrite(new, 1, strlen(new), f) == strlen(new));
    fclose(f);
}

static void write_model_again(const struct kept *k)
{
    const struct qr_make_options o = {.store = QR_BF16, .seed = 99};
    struct qr_err err = {0};
    char command[200];
    snprintf(command, sizeof command, "rm '%s/model.safetensors' '%s/config.json'", k->t.dir, k->t.dir);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(qr_model_make(k->t.dir, &k->c, &o, &err), 0, "%s", err.msg);
}

Test(packed_cache, copies_out_of_date_are_removed_when_the_model_is_loaded_as_another_type_and_other_models_copies_stay)
{
    struct kept k = kept_new(QR_BF16), other = kept_new(QR_F32);
    char path[400], file[128];
    const struct utimbuf later = {.actime = 2000000000, .modtime = 2000000000};
    cr_assert_eq(rmdir(other.dir), 0);
    memcpy(other.dir, k.dir, sizeof k.dir); /* one directory for both */
    cr_expect(!used(&k, QR_BF16));
    only_file(path, k.dir);
    cr_expect(!used(&k, QR_Q8) && !used(&other, QR_BF16) && used(&k, QR_BF16) && used(&k, QR_Q8));
    cr_expect_eq(n_files(k.dir), 3);
    replace_in(path, "\nbuild ", "\nbuild zz"); /* of another program */
    cr_expect(!used(&k, QR_Q4));
    cr_expect(!is_there(path) && n_files(k.dir) == 3, "8 bits, 4 bits and the other model's");
    snprintf(file, sizeof file, "%s/model.safetensors", k.t.dir);
    cr_assert_eq(utime(file, &later), 0); /* written since */
    cr_expect(!used(&k, QR_Q8));
    cr_expect_eq(n_files(k.dir), 2, "8 bits and the other model's");
    write_model_again(&k); /* another model in its place */
    cr_expect(!used(&k, QR_Q4));
    cr_expect_eq(n_files(k.dir), 2, "4 bits and the other model's");
    cr_expect(used(&k, QR_Q4) && used(&other, QR_BF16));
    kept_free(&other);
    kept_free(&k);
}

Test(packed_cache, where_no_copy_can_be_kept_the_model_loads_without)
{
    struct kept k = kept_new(QR_BF16);
    static const char *const dirs[] = {"/dev/null", "/proc/none", "/nowhere/at/all"};
    for (int i = 0; i < QR_COUNT(dirs); i++) {
        struct qr_weights w = load(&k, dirs[i], QR_BF16);
        cr_expect(w.packed.data == NULL && w.region != NULL);
        qr_weights_release(&w);
    }
    kept_free(&k);
}

Test(packed_cache, a_copy_needs_the_room_of_its_file_and_a_16th_and_no_more)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        cr_skip_test("no disk of a chosen size: mounting is not permitted");
    struct kept k = kept_new(QR_BF16);
    struct qr_weights w = load(&k, NULL, QR_BF16);
    const size_t file = w.region_bytes + QR_PACKED_HEADER_BYTES, page = 4096, fits = (file + file / 16 + page - 1) / page * page;
    qr_weights_release(&w);
    for (int enough = 0; enough < 2; enough++) {
        char size[40];
        snprintf(size, sizeof size, "size=%zu", enough ? fits : fits - page);
        cr_assert_eq(mount("tmpfs", k.dir, "tmpfs", 0, size), 0);
        cr_expect(!used(&k, QR_BF16));
        cr_expect_eq(used(&k, QR_BF16), enough == 1);
        cr_expect_eq(n_files(k.dir), enough);
        cr_assert_eq(umount(k.dir), 0);
    }
    kept_free(&k);
}
