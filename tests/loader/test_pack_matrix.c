/* Matrices of a file packed by threads that go from one to the next: what one thread makes of each alone, wherever pieces meet within a panel. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/mem.h"
#include "loader/hf_config.h"
#include "loader/make_model.h"
#include "loader/weights.h"
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
    cr_assert_eq(qr_weights_load(&w, st, share, be, to, &err), 0, "%s", err.msg);
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
    cr_assert_eq(qr_model_make(dir, &made, QR_BF16, SEED, &err), 0, "%s", err.msg);
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

/* All that a bf16 model's loading wants of the file is read, none of it looked at where the file is mapped. */
Test(pack_matrix, a_file_that_becomes_shorter_while_it_is_loaded_is_an_error_and_no_signal)
{
    const struct qr_model_config made = config_of(QR_ARCH_LLAMA);
    struct qr_model_config c;
    struct qr_share share;
    struct qr_weights w;
    struct qr_tensor_files *st;
    struct qr_backend *be;
    struct qr_err err = {0};
    char dir[64], path[100];
    temp_dir_make(dir, "pack");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_model_make(dir, &made, QR_BF16, SEED, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_model_config_read(&c, dir, &err), 0, "%s", err.msg);
    qr_share_whole(&share, &c);
    cr_assert_eq(qr_backend_open(&be, &(struct qr_backend_options){.isa = "ref", .n_threads = 3}, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
    cr_assert_eq(truncate(path, 8), 0);
    cr_assert_eq(qr_weights_load(&w, st, &share, be, QR_BF16, &err), QR_E_IO, "%s", err.msg);
    cr_assert(strstr(err.msg, "shorter") != NULL, "%s", err.msg);
    qr_tensor_files_close(st);
    qr_backend_close(be);
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}
