/* Rotary frequencies against tables computed in float64 by an independent implementation. */
#include "loader/config/hf_config.h"
#include "model/rope.h"
#include "tests/model/golden_rope.h"
#include "tests/model/rig.h"

/* The golden's config object completed to a config.json that the loader reads. */
static void read_config(struct qr_model_config *c, const struct qr_json *golden)
{
    struct qr_buf text = {0};
    struct qr_err err = {0};
    qr_buf_put_str(&text, "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1,\"intermediate_size\":8,\"vocab_size\":8");
    if (!qr_json_find(golden, "hidden_size"))
        qr_buf_put_str(&text, ",\"hidden_size\":1024,\"num_attention_heads\":8");
    if (qr_json_find(golden, "hidden_size") && !qr_json_find(golden, "num_attention_heads"))
        qr_buf_put_str(&text, ",\"num_attention_heads\":8");
    for (const struct qr_json *v = qr_json_first(golden); v; v = qr_json_after(v)) {
        qr_buf_printf(&text, ",\"%s\":", qr_json_key(v));
        qr_json_print(&text, v);
    }
    qr_buf_put_str(&text, "}");
    cr_assert_eq(qr_hf_config_parse(c, text.data, text.len, NULL, 0, &err), 0, "%s: %s", err.msg, text.data);
    qr_buf_release(&text);
}

/* Goldens have 12 significant digits, so 1e-11 relative; cosines are f32 times the factor: half a unit of 2^-23 of at most 1.14, plus the
 * golden's frequency error 1e-12 times the position. */
static void check_case(const struct qr_json *g, struct qr_backend *be)
{
    struct qr_model_config c;
    struct qr_rope_freqs f;
    const char *name = qr_json_str(qr_json_find(g, "name"), NULL);
    const struct qr_json *len = qr_json_find(g, "seq_len");
    read_config(&c, qr_json_find(g, "config"));
    qr_rope_freqs_init(&f, &c.rope, c.head_dim, qr_json_is_null(len) ? c.ctx_max : (int32_t)qr_json_f64(len));
    int32_t n;
    double *want = json_numbers(qr_json_find(g, "inv_freq"), &n), factor = qr_json_f64(qr_json_find(g, "attention_factor"));
    cr_assert_eq(n * 2, f.n_rot, "%s", name);
    for (int32_t i = 0; i < n; i++)
        cr_expect_leq(fabs(f.inv_freq[i] / want[i] - 1), 1e-11, "%s: frequency %d is %.15g, expected %.15g", name, i, f.inv_freq[i],
                      want[i]);
    cr_expect_leq(fabs((double)f.attn_factor / factor - 1), 1e-7, "%s", name);
    float *cos_sin = qr_alloc((size_t)n * 2, sizeof *cos_sin);
    for (const struct qr_json *row = qr_json_first(qr_json_find(g, "cos_sin_at")); row; row = qr_json_after(row)) {
        int32_t k;
        double *x = json_numbers(row, &k), slack = 1e-7 + x[0] * want[(int32_t)x[1]] * 1e-11;
        int32_t pos = (int32_t)x[0], i = (int32_t)x[1];
        const struct qr_rope_table_args a = {.cos_sin = cos_sin, .pos = &pos, .inv_freq = f.inv_freq, .n_rows = 1, .n_rot = f.n_rot,
                                             .attn_factor = f.attn_factor};
        be->k->rope_table(be->queue, &a);
        cr_expect_leq(fabs((double)cos_sin[i] - x[2]), slack, "%s: cosine of %d at %d", name, i, pos);
        cr_expect_leq(fabs((double)cos_sin[n + i] - x[3]), slack, "%s: sine of %d at %d", name, i, pos);
        qr_free(x);
    }
    qr_free(cos_sin);
    qr_free(want);
    qr_rope_freqs_release(&f);
}

Test(rope, frequencies_and_tables_equal_the_golden_on_every_level)
{
    char path[1024];
    struct qr_map_file file;
    struct qr_err err = {0};
    struct qr_json *root;
    const char *names[8];
    int32_t n = 0;
    snprintf(path, sizeof path, "%s/rope/rope_golden.json", data_dir());
    cr_assert_eq(qr_map_file_open(&file, path, SIZE_MAX, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_json_parse(&root, (const char *)file.data, file.n_bytes, &qr_json_limits_file, &err), 0, "%s", err.msg);
    for (int32_t i = 0, n_levels = levels(names); i < n_levels; i++) {
        struct qr_backend *be;
        const struct qr_backend_options o = {.isa = names[i], .n_threads = 1};
        cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
        n = 0;
        for (const struct qr_json *g = qr_json_first(qr_json_find(root, "cases")); g; g = qr_json_after(g), n++)
            check_case(g, be);
        qr_backend_close(be);
    }
    cr_expect_eq(n, 9);
    qr_json_free(root);
    qr_map_file_close(&file);
}

/* Goldens have 13 digits. A cosine: half a unit of 2^-23 of at most 1.35, and the golden's error times the position. */
static void check_far(const struct golden_rope *g, struct qr_backend *be)
{
    struct qr_model_config c;
    struct qr_rope_freqs f;
    struct qr_json *config;
    struct qr_err err = {0};
    cr_assert_eq(qr_json_parse(&config, g->config, strlen(g->config), &qr_json_limits_file, &err), 0, "%s", err.msg);
    read_config(&c, config);
    cr_expect_geq(qr_model_ctx_limit(&c), g->opened, "%s", g->name);
    qr_rope_freqs_init(&f, &c.rope, c.head_dim, g->opened);
    cr_expect_leq(fabs((double)f.attn_factor / g->factor - 1), 1e-7, "%s", g->name);
    float *cos_sin = qr_alloc((size_t)f.n_rot, sizeof *cos_sin);
    const int32_t pos = g->opened - 1;
    const struct qr_rope_table_args a = {.cos_sin = cos_sin, .pos = &pos, .inv_freq = f.inv_freq, .n_rows = 1, .n_rot = f.n_rot, .attn_factor = f.attn_factor};
    be->k->rope_table(be->queue, &a);
    for (int i = 0; i < QR_COUNT(g->at); i++) {
        const double slack = 1e-7 + pos * g->freq[i] * 1e-12;
        cr_expect_leq(fabs(f.inv_freq[g->at[i]] / g->freq[i] - 1), 1e-12, "%s, %d: frequency %d", g->name, g->opened, g->at[i]);
        cr_expect_leq(fabs((double)cos_sin[g->at[i]] - g->factor * cos(pos * g->freq[i])), slack, "%s at %d", g->name, pos);
        cr_expect_leq(fabs((double)cos_sin[f.n_rot / 2 + g->at[i]] - g->factor * sin(pos * g->freq[i])), slack, "%s at %d", g->name, pos);
    }
    qr_free(cos_sin);
    qr_rope_freqs_release(&f);
    qr_json_free(config);
}

Test(rope, the_last_position_of_long_contexts_is_what_transformers_has_and_longrope_goes_by_the_opened_context)
{
    const char *names[8];
    struct qr_err err = {0};
    for (int32_t i = 0, n_levels = levels(names); i < n_levels; i++) {
        struct qr_backend *be;
        const struct qr_backend_options o = {.isa = names[i], .n_threads = 1};
        cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
        for (int k = 0; k < QR_COUNT(golden_ropes); k++)
            check_far(&golden_ropes[k], be);
        qr_backend_close(be);
    }
}

Test(rope, dynamic_scaling_is_one_table_for_the_opened_context)
{
    struct qr_rope_config r = {.type = QR_ROPE_DYNAMIC, .theta = 10000, .factor = 2, .original_ctx = 4096};
    struct qr_rope_freqs plain, within, beyond;
    qr_rope_freqs_init(&within, &r, 64, 4096);
    qr_rope_freqs_init(&beyond, &r, 64, 8192);
    r.type = QR_ROPE_DEFAULT;
    qr_rope_freqs_init(&plain, &r, 64, 8192);
    cr_expect_eq(memcmp(plain.inv_freq, within.inv_freq, 32 * sizeof(double)), 0);
    cr_expect_eq(beyond.inv_freq[0], 1.0);
    for (int i = 1; i < 32; i++)
        cr_expect_lt(beyond.inv_freq[i], plain.inv_freq[i]);
    qr_rope_freqs_release(&plain);
    qr_rope_freqs_release(&within);
    qr_rope_freqs_release(&beyond);
}

Test(rope, dynamic_scaling_gives_the_same_bytes_for_any_chunking)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    c.ctx_max = c.rope.original_ctx = 64;
    c.rope.type = QR_ROPE_DYNAMIC;
    c.rope.factor = 4;
    struct temp_model t = temp_model_make(&c, QR_F32);
    struct rig r;
    struct qr_rng rng = {.seed = 3};
    int32_t *ids = random_ids(&rng, 200, c.n_vocab);
    rig_open(&r, t.dir, (struct rig_options){.isa = "ref", .ctx_max = 200});
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *whole = rig_prompt(&r, &s, ids, 200, 200);
    s.n_done = 0;
    float *pieces = rig_prompt(&r, &s, ids, 200, 9);
    cr_expect_eq(memcmp(whole, pieces, 200 * (size_t)c.n_vocab * sizeof *whole), 0);
    qr_free(whole);
    qr_free(pieces);
    qr_free(ids);
    rig_seq_free(&s);
    rig_close(&r);
    temp_model_remove(&t);
}
