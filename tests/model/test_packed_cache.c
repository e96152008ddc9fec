/* Packed copies of weights on disk: the same bytes as packing gives; whatever is not the copy of just this is left out and replaced. */
#include <fcntl.h>
#include <sys/stat.h>
#include <utime.h>

#include "base/log.h"
#include "loader/hf_config.h"
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
    cr_assert_eq(qr_weights_load_kept(&w, st, &k->share, k->be, to, &(struct qr_weights_options){.cache_dir = cache}, &err), 0, "%s", err.msg);
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
    static const enum qr_dtype types[] = {QR_F32, QR_BF16, QR_Q8, QR_Q8_G64, QR_Q4, QR_W8, QR_W4_G128};
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
