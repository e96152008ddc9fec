/* Matrices of a file packed by threads that go from one to the next: what one thread makes of each alone, wherever pieces meet within a panel. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"
#include "loader/write/make_model.h"
#include "loader/pack/pack_matrix.h"
#include "loader/stores/tensor_files_parts.h"
#include "loader/weights.h"
#include "tests/model/rig.h"
#include "tests/temp.h"

#define SEED 20261122

/* 24 rows of q, 8 of k and of v: pieces begin in the middle of panels. Experts, biases and matrices with inputs first as well. */
static struct qr_model_config config_of(enum qr_arch arch)
{
    struct qr_model_config c = qr_model_config_small(arch);
    if (arch == QR_ARCH_LLAMA) {
        c.n_heads = 3;
        c.n_kv_heads = 1;
        c.head_dim = 8;
        c.n_ffn = 1000;
    }
    return c;
}

static struct qr_weights load(const char *dir, const struct qr_share *share, struct qr_backend *be, enum qr_dtype to)
{
    struct qr_weights w;
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_weights_load(&w, st, share, be, to, NULL, &err), 0, "%s", err.msg);
    return w;
}

/* Layer i's q, k and v are the file's rows, packed one after the other by a launch each. */
static void expect_rows(const struct qr_weights *w, int32_t layer, struct qr_backend *be, const char *what)
{
    static const char *const part[] = {"q", "k", "v"};
    const struct qr_weight *qkv = &w->layer[layer].qkv;
    const int64_t n_in = qkv->t.shape[1], n_out = qkv->t.shape[0];
    const size_t n_bytes = be->k->linear_packed_bytes(qkv->packed_dtype, n_out, n_in);
    void *expected = qr_alloc_aligned(n_bytes, 64);
    int64_t first = 0;
    for (int i = 0; i < 3; i++) {
        char name[100];
        snprintf(name, sizeof name, "model.layers.%d.self_attn.%s_proj.weight", (int)layer, part[i]);
        const struct qr_stored_tensor *t = qr_tensor_files_find(w->files, name);
        cr_assert(t != NULL && t->shape[1] == n_in, "%s", name);
        be->k->linear_pack(be->queue, expected, qkv->packed_dtype, n_out, n_in, first, qr_tensor_files_data(w->files, t), t->type->dtype, t->shape[0]);
        first += t->shape[0];
    }
    cr_assert_eq(first, n_out);
    cr_assert_eq(memcmp(expected, qkv->packed, n_bytes), 0, "%s", what);
    qr_free_aligned(expected);
}

static void expect_same(enum qr_arch arch, const char *isa, enum qr_dtype to)
{
    const struct qr_model_config made = config_of(arch);
    struct qr_model_config c;
    struct qr_share share;
    struct qr_err err = {0};
    struct qr_weights one = {0};
    struct qr_backend *first = NULL;
    char dir[64], what[120];
    temp_dir_make(dir, "pack");
    cr_assert_eq(qr_model_make(dir, &made, &(struct qr_make_options){.store = QR_BF16, .seed = SEED}, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_model_config_read(&c, dir, &err), 0, "%s", err.msg);
    qr_share_whole(&share, &c);
    for (int32_t n_threads = 1; n_threads <= 5; n_threads += 2) {
        struct qr_backend *be;
        snprintf(what, sizeof what, "seed %d, %s, architecture %d as %s, %d threads", SEED, isa, (int)arch, qr_dtype_name(to), (int)n_threads);
        cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = isa, .n_threads = n_threads}, &err), 0, "%s: %s", what, err.msg);
        struct qr_weights w = load(dir, &share, be, to);
        for (int32_t i = 0; arch == QR_ARCH_LLAMA && i < c.n_layers; i++)
            expect_rows(&w, i, be, what);
        if (n_threads == 1) {
            one = w;
            first = be;
            continue;
        }
        cr_assert(one.region_bytes == w.region_bytes && memcmp(one.region, w.region, w.region_bytes) == 0, "%s", what);
        qr_weights_release(&w);
        qr_backend_close(be);
    }
    qr_weights_release(&one);
    qr_backend_close(first);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

Test(pack_matrix, any_number_of_threads_makes_what_one_launch_for_each_matrix_makes)
{
    static const enum qr_arch arch[] = {QR_ARCH_LLAMA, QR_ARCH_GPT2, QR_ARCH_MIXTRAL};
    static const enum qr_dtype to[] = {QR_F32, QR_BF16, QR_Q8, QR_Q4};
    const char *names[8];
    for (int32_t l = 0, n_levels = qr_cpu_levels(names); l < n_levels; l++)
        for (int i = 0; i < QR_COUNT(arch) * QR_COUNT(to); i++)
            expect_same(arch[i / QR_COUNT(to)], names[l], to[i % QR_COUNT(to)]);
}

/* Loads st, whose file `path` becomes shorter first: an error that names it. */
static void expect_shorter(struct qr_tensor_files *st, const char *path, const struct qr_share *share, const char *isa, enum qr_dtype to)
{
    const char *slash = strrchr(path, '/');
    struct qr_weights w;
    struct qr_backend *be;
    struct qr_err err = {0};
    cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = isa, .n_threads = 3}, &err), 0, "%s", err.msg);
    cr_assert_eq(truncate(path, 8), 0);
    cr_assert_eq(qr_weights_load(&w, st, share, be, to, NULL, &err), QR_E_IO, "%s", err.msg);
    cr_assert(strstr(err.msg, "shorter") != NULL && strstr(err.msg, slash + 1) != NULL, "%s", err.msg);
    qr_tensor_files_close(st);
    qr_backend_close(be);
}

/* All that a bf16 model's loading wants of the file is read, none of it looked at where the file is mapped; but the rows of an embedding that stay there, of
 * which a rounded head that is tied to it is made. A level that asks for rows ahead looks at those that become half bytes. */
Test(pack_matrix, a_file_that_becomes_shorter_while_it_is_loaded_is_an_error_and_no_signal)
{
    const char *names[8];
    const int32_t n_levels = qr_cpu_levels(names);
    for (int32_t i = 0; i < 2 + n_levels; i++) {
        const bool tied = i == 1;
        struct qr_model_config made = config_of(QR_ARCH_LLAMA), c;
        struct qr_share share;
        struct qr_tensor_files *st;
        struct qr_err err = {0};
        char dir[64], path[100];
        made.tied_head = tied;
        temp_dir_make(dir, "pack");
        snprintf(path, sizeof path, "%s/model.safetensors", dir);
        cr_assert_eq(qr_model_make(dir, &made, &(struct qr_make_options){.store = QR_BF16, .seed = SEED}, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_model_config_read(&c, dir, &err), 0, "%s", err.msg);
        qr_share_whole(&share, &c);
        cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
        expect_shorter(st, path, &share, i < 2 ? "ref" : names[i - 2], tied ? QR_Q8 : i == 0 ? QR_BF16 : QR_Q4);
        cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
    }
}

/* Likewise a GGUF file, whose head stays mapped as long as the model does. */
Test(pack_matrix, a_gguf_file_that_becomes_shorter_while_it_is_loaded_is_an_error_and_no_signal)
{
    struct qr_model_config c;
    struct qr_share share;
    struct qr_source *source;
    struct qr_tensor_files *st;
    struct qr_map_file whole;
    struct qr_err err = {0};
    char dir[64], path[100], from[1024];
    temp_dir_make(dir, "pack");
    snprintf(path, sizeof path, "%s/short.gguf", dir);
    snprintf(from, sizeof from, "%s/models/gguf/stories260K-f32.gguf", data_dir());
    cr_assert_eq(qr_map_file_open(&whole, from, SIZE_MAX, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_file_put(path, whole.data, whole.n_bytes, &err), 0, "%s", err.msg);
    qr_map_file_close(&whole);
    cr_assert_eq(qr_source_open(&source, path, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_model_config_from(&c, source, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_gguf_tensors_open(&st, source, &err), 0, "%s", err.msg);
    qr_source_unref(source);
    qr_share_whole(&share, &c);
    expect_shorter(st, path, &share, "ref", QR_BF16);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* ---- what of a file's mapping stays ---- */

/* Resident bytes of the mapping that begins at p. */
static size_t resident_of(const void *p)
{
    char line[400];
    size_t kib = 0;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    cr_assert(f != NULL);
    while (fgets(line, sizeof line, f)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = begin == (uintptr_t)p;
        else if (here && sscanf(line, "Rss: %zu kB", &kib) == 1)
            break;
    }
    fclose(f);
    return kib << 10;
}

static void look_at(const volatile uint8_t *p, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 4096)
        cr_assert_eq(p[i], 0);
    cr_assert_eq(p[n_bytes - 1], 0);
}

/* Bytes that were read where the file is mapped are all in memory; then none but those behind the file's last whole page. */
Test(pack_matrix, pages_that_were_looked_at_go_back)
{
    enum { NUMBERS = 6000001 };
    static const char head[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[6000001],\"data_offsets\":[0,12000002]}}";
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_head = strlen(head), begin = 8 + n_head, total = begin + 2 * (size_t)NUMBERS;
    char dir[64], path[100], bytes[8 + sizeof head] = {0};
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    memcpy(bytes, &(uint64_t){n_head}, 8);
    memcpy(bytes + 8, head, n_head);
    temp_dir_make(dir, "pack");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_file_put(path, bytes, begin, &err), 0, "%s", err.msg);
    cr_assert_eq(truncate(path, (off_t)total), 0); /* the rest are zeros */
    cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
    const uint8_t *a = qr_tensor_files_data(st, qr_tensor_files_find(st, "a")), *map = a - begin;
    look_at(a, total - begin);
    cr_assert_eq(resident_of(map), qr_align_up(total, page));
    qr_tensor_files_drop_all(st);
    cr_assert_eq(resident_of(map), total % page != 0 ? page : 0);
    qr_tensor_files_close(st);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

/* The matrix "a" of a file that becomes shorter before its rows are read. */
static void expect_shorter_rows(const char *isa, const struct qr_tensor_files *st, const char *path, enum qr_dtype to)
{
    struct qr_backend *be;
    struct qr_err err = {0};
    const struct qr_stored_tensor *t = qr_tensor_files_find(st, "a");
    const struct qr_cut all = {.rows = {0, t->shape[0]}, .cols = {0, t->shape[1]}};
    cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = isa, .n_threads = 2}, &err), 0, "%s", err.msg);
    struct qr_weight w = {.t = {.shape = {all.rows.n, all.cols.n}}, .packed_dtype = to};
    struct qr_packer *p = qr_packer_new(be, st);
    w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(to, all.rows.n, all.cols.n), 64);
    qr_packer_matrix(p, &w, 0, t, &all);
    cr_assert_eq(truncate(path, 8), 0);
    qr_packer_run(p);
    cr_expect_eq(qr_packer_failed(p), 0);
    qr_packer_free(p);
    qr_free_aligned(w.packed);
    qr_backend_close(be);
}

/* A file with the matrix "a" of bf16, whose numbers are whole in memory. */
static void rows_file_make(const char *path, int32_t rows, int32_t n_in)
{
    char head[100];
    struct qr_err err = {0};
    const size_t n_numbers = (size_t)rows * (size_t)n_in;
    int n_head = snprintf(head, sizeof head, "{\"a\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}", rows, n_in, 2 * n_numbers);
    while (n_head % 8 != 0)
        head[n_head++] = ' ';
    const size_t begin = 8 + (size_t)n_head, n_file = begin + 2 * n_numbers;
    uint8_t *bytes = qr_alloc(n_file, 1);
    memcpy(bytes, &(uint64_t){(uint64_t)n_head}, 8);
    memcpy(bytes + 8, head, (size_t)n_head);
    for (uint32_t i = 0; i < n_numbers; i++) {
        const uint16_t x = (uint16_t)(0x3c00 + (i * 2654435761u >> 23) + (i * 40503u >> 11 & 1) * 0x8000);
        memcpy(bytes + begin + 2 * i, &x, sizeof x);
    }
    cr_assert_eq(qr_file_put(path, bytes, n_file, &err), 0, "%s", err.msg);
    qr_free(bytes);
}

/* From row FIRST of packed rows on, the matrix "a", three items or more; its first panel begins and its last one ends with rows of others. */
static void expect_packed_rows(const char *isa, const struct qr_tensor_files *st, enum qr_dtype to)
{
    enum { FIRST = 24, BEHIND = 3 };
    struct qr_backend *be;
    struct qr_err err = {0};
    uint8_t *packed[2];
    const struct qr_stored_tensor *t = qr_tensor_files_find(st, "a");
    const struct qr_cut whole = {.rows = {0, t->shape[0]}, .cols = {0, t->shape[1]}};
    const int64_t all = FIRST + whole.rows.n + BEHIND, n_in = whole.cols.n;
    cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = isa, .n_threads = 2}, &err), 0, "%s", err.msg);
    const size_t n_bytes = be->k->linear_packed_bytes(to, all, n_in);
    for (int i = 0; i < 2; i++)
        packed[i] = memset(qr_alloc_aligned(n_bytes, 64), 0, n_bytes);
    be->k->linear_pack(be->queue, packed[1], to, all, n_in, FIRST, qr_tensor_files_data(st, t), QR_BF16, whole.rows.n);
    const struct qr_weight w = {.t = {.shape = {all, n_in}}, .packed = packed[0], .packed_dtype = to};
    struct qr_packer *p = qr_packer_new(be, st);
    qr_packer_matrix(p, &w, FIRST, t, &whole);
    qr_packer_run(p);
    cr_assert_eq(qr_packer_failed(p), -1);
    qr_packer_free(p);
    cr_assert_eq(memcmp(packed[0], packed[1], n_bytes), 0, "%s, %d inputs, type %d", isa, (int)n_in, (int)to);
    for (int i = 0; i < 2; i++)
        qr_free_aligned(packed[i]);
    qr_backend_close(be);
}

/* Half bytes, bytes, and panels of bf16; of few inputs and of more than are read at a time. */
Test(pack_matrix, rows_that_are_read_become_what_one_launch_makes_of_the_mapped_file)
{
    enum { NUMBERS = 768000 };
    static const enum qr_dtype to[] = {QR_Q4, QR_Q8, QR_BF16};
    static const int32_t n_in[] = {96, 512, 1000, 4800};
    const char *names[8];
    const int32_t n_levels = qr_cpu_levels(names);
    char dir[64], path[100];
    struct qr_err err = {0};
    temp_dir_make(dir, "pack");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    for (int i = 0; i < QR_COUNT(n_in) * QR_COUNT(to); i++) {
        const enum qr_dtype type = to[i % QR_COUNT(to)];
        struct qr_tensor_files *st;
        rows_file_make(path, NUMBERS / n_in[i / QR_COUNT(to)], n_in[i / QR_COUNT(to)]);
        cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
        for (int32_t l = 0; l < n_levels; l++)
            expect_packed_rows(names[l], st, type);
        for (int32_t l = 0; l < n_levels; l++)
            expect_shorter_rows(names[l], st, path, type);
        qr_tensor_files_close(st);
    }
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}
