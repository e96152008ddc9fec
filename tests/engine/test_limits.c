/* What a plan says of memory that is too little, at the edge and one byte beyond. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "loader/write/make_model.h"

/* 100 MiB of weights, 10 of them the embedding's rows; a step of 1 MiB. */
static struct qr_model_plan small_plan(void)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    const struct qr_kv_view token = {.dtype = QR_BF16, .n_layers = c.n_layers, .n_kv_heads = c.n_kv_heads, .block_tokens = 1, .head_dim = c.head_dim};
    return (struct qr_model_plan){.config = c, .own = c, .n_ranks = 1, .weight_dtype = QR_BF16, .kv_dtype = QR_BF16,
                                  .weight_bytes = (size_t)90 << 20, .table_bytes = (size_t)10 << 20,
                                  .int8_bytes = (size_t)55 << 20, .int4_bytes = (size_t)35 << 20, .act_bytes = (size_t)1 << 20,
                                  .kv_token_bytes = qr_kv_block_bytes(&token)};
}

Test(limits, weights_that_do_not_fit_are_refused_with_the_formats_that_do)
{
    const struct qr_model_plan p = small_plan();
    struct qr_engine_config c;
    struct qr_engine_limits l;
    struct qr_err err = {0};
    qr_engine_config_init(&c);
    c.kv_tokens = c.block_tokens;
    const int64_t block = (int64_t)p.kv_token_bytes * c.block_tokens, fits = ((int64_t)101 << 20) + block;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fits, &err), 0, "%s", err.msg);
    cr_expect_eq(l.n_blocks, 1);
    const struct {
        int64_t available;
        const char *says;
    } cases[] = {{fits - 1, "what fits is --quantize int8 or int4"},
                 {((int64_t)(45 + 10 + 1) << 20) + block, "what fits is --quantize int8 or int4"},
                 {((int64_t)(45 + 10 + 1) << 20) + block - 1, "what fits is --quantize int4"},
                 {((int64_t)(25 + 10 + 1) << 20) + block, "what fits is --quantize int4"},
                 {((int64_t)(25 + 10 + 1) << 20) + block - 1,
                  "what may fit is --quantize int4 with fewer --max-step-tokens than 512 and fewer --max-running than 64 ("},
                 {((int64_t)(25 + 10) << 20) + block, "what may fit is --quantize int4 with fewer --max-step-tokens"},
                 {((int64_t)(25 + 9) << 20) + block, "no format of it fits: 2.0 MiB more must be free, for it as int4, or the model must be smaller"},
                 {0, "no format of it fits: 37.0 MiB more"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(qr_engine_foresee(&l, &c, &p, cases[i].available, &err), QR_E_NO_ROOM);
        cr_expect(strstr(err.msg, cases[i].says) && strstr(err.msg, "100.0 MiB as bf16"), "case %zu: %s", i, err.msg);
    }
}

/* A step that is larger than the weights, which fit without it. */
Test(limits, where_a_step_is_too_large_its_settings_are_named)
{
    struct qr_model_plan p = small_plan();
    struct qr_engine_config c;
    struct qr_engine_limits l;
    struct qr_err err = {0};
    qr_engine_config_init(&c);
    p.act_bytes = p.adapted_act_bytes = (size_t)400 << 20;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, (int64_t)460 << 20, &err), QR_E_NO_ROOM);
    cr_expect(strstr(err.msg, "what fits is --quantize int8 or int4; what may fit is fewer --max-step-tokens than 512"), "%s", err.msg);
    c.lora_slots = 2;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, (int64_t)300 << 20, &err), QR_E_NO_ROOM);
    cr_expect(strstr(err.msg, "what may fit is fewer --max-step-tokens than 512 and fewer --max-running than 64, or fewer --lora-slots than 2 ("),
              "%s", err.msg);
}

Test(limits, a_context_that_does_not_fit_is_refused_with_the_longest_that_does)
{
    const struct qr_model_plan p = small_plan();
    struct qr_engine_config c;
    struct qr_engine_limits l;
    struct qr_err err = {0};
    qr_engine_config_init(&c);
    c.ctx_max = 256;
    const int64_t fixed = (int64_t)101 << 20, token = (int64_t)p.kv_token_bytes;
    c.kv_tokens = 256;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fixed + 256 * token, &err), 0, "%s", err.msg);
    cr_expect(l.ctx_max == 256 && l.n_blocks == 16);
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fixed + 256 * token - 1, &err), QR_E_NO_ROOM);
    cr_expect(strstr(err.msg, "--max-len 240 --kv-tokens 240; more with --kv-cache-dtype int8"), "%s", err.msg);
    c.ctx_max = 240; /* which do fit, and with a block more do not */
    c.kv_tokens = 240;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fixed + 256 * token - 1, &err), 0, "%s", err.msg);
    c.kv_tokens = 255;
    c.ctx_max = 256;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fixed + 256 * token, &err), QR_E_NO_ROOM);
    char says[200];
    snprintf(says, sizeof says, "asked for has 15 blocks of 16 tokens; expected at least 256 tokens, those of one sequence (--max-len), which are "
             "--kv-tokens 256 or --kv-bytes %lld", (long long)(256 * token));
    cr_expect(strstr(err.msg, says), "%s", err.msg);
    c.ctx_max = 0;
    c.kv_tokens = 15;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fixed + 256 * token, &err), QR_E_NO_ROOM);
    cr_expect(strstr(err.msg, "has 0 blocks of 16 tokens; expected at least 16 tokens, which are --kv-tokens 16 or"), "%s", err.msg);
    c.kv_tokens = 16;
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fixed + 256 * token, &err), 0, "%s", err.msg);
    c.kv_tokens = 0;
    c.ctx_max = 0; /* the model's; then what fits */
    cr_expect_eq(qr_engine_foresee(&l, &c, &p, fixed + 4 * 64 * token, &err), 0, "%s", err.msg);
    cr_expect_eq(l.ctx_max, 64, "%d", l.ctx_max);
}

/* Weights take what was thought to be free, as libraries and threads take more than a plan knows. */
Test(limits, where_no_block_of_the_cache_fits_the_memory_that_is_missing_is_named_and_no_setting_of_0)
{
    const struct qr_model_plan p = small_plan();
    const int64_t block = (int64_t)p.kv_token_bytes * 16, act = (int64_t)p.act_bytes;
    const struct {
        int64_t available, kv_tokens;
        const char *says;
    } cases[] = {{act + block - 1, 0, "at least 1.0 MiB more"}, {act, 0, "at least 1.0 MiB more"}, {0, 0, "at least 2.0 MiB more"},
                 {0, 4096, "at least 2.0 MiB more"}, {act - ((int64_t)9 << 20), 0, "at least 10.0 MiB more"}};
    struct qr_engine_config c;
    struct qr_engine_limits l;
    struct qr_err err = {0};
    qr_engine_config_init(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.kv_tokens = cases[i].kv_tokens;
        cr_expect_eq(qr_engine_plan(&l, &c, &p.config, p.kv_dtype, (int64_t)100 << 20, act, cases[i].available, &err), QR_E_NO_ROOM);
        cr_expect(strstr(err.msg, cases[i].says) && !strstr(err.msg, "--max-len") && !strstr(err.msg, "-0."), "case %zu: %s", i, err.msg);
    }
    c.kv_tokens = 0; /* a block, though that is more than a quarter of what is free; and as many as a sequence needs where its length is asked for */
    cr_expect_eq(qr_engine_plan(&l, &c, &p.config, p.kv_dtype, (int64_t)100 << 20, act, act + block, &err), 0, "%s", err.msg);
    cr_expect_eq(l.n_blocks, 1);
    c.ctx_max = 64;
    cr_expect_eq(qr_engine_plan(&l, &c, &p.config, p.kv_dtype, (int64_t)100 << 20, act, act + 4 * block, &err), 0, "%s", err.msg);
    cr_expect_eq(l.n_blocks, 4);
    cr_expect_eq(qr_engine_plan(&l, &c, &p.config, p.kv_dtype, (int64_t)100 << 20, act, act + 4 * block - 1, &err), QR_E_NO_ROOM);
    cr_expect(strstr(err.msg, "--max-len 48 --kv-tokens 48;"), "%s", err.msg);
}

/* Five of six layers have a window of 40: a sequence holds all runs of 16 tokens of one layer, and 11 at most of five others. */
Test(limits, a_cache_that_is_split_by_windows_holds_the_longest_sequence_that_its_blocks_can)
{
    const int64_t act = (int64_t)1 << 20;
    struct qr_model_plan p = small_plan();
    struct qr_engine_config c;
    struct qr_engine_limits l, again;
    struct qr_err err = {0};
    p.config.n_layers = 6;
    p.config.window = 40;
    qr_layers_every(p.config.unwindowed, 6, 6);
    qr_engine_config_init(&c);
    c.step_tokens_max = c.chunk_tokens_max = c.running_max = c.logit_rows_max = 100;
    const int64_t block = (int64_t)small_plan().kv_token_bytes / small_plan().config.n_layers * 16;
    for (int32_t n = 5; n < 6 * 32; n++) {
        c.ctx_max = 0;
        c.split = true;
        c.kv_bytes = n * block;
        const int rc = qr_engine_plan(&l, &c, &p.config, p.kv_dtype, 0, act, act + c.kv_bytes, &err);
        cr_assert_eq(rc, n < 6 ? QR_E_NO_ROOM : 0);
        if (rc != 0)
            continue;
        const int32_t runs = l.ctx_max / 16, windowed = runs < 11 ? runs : 11;
        cr_assert(l.n_twins == 5 && l.n_blocks == n && l.kv_bytes == c.kv_bytes && qr_engine_block_bytes(&l) == block);
        cr_assert(runs == 32 ? n >= 32 + 5 * 11 : runs + 5 * windowed <= n && runs + 1 + 5 * (runs < 11 ? runs + 1 : 11) > n, "%d blocks, %d runs", n, runs);
        c.ctx_max = l.ctx_max; /* exactly so long fits, and no token more */
        cr_assert_eq(qr_engine_plan(&again, &c, &p.config, p.kv_dtype, 0, act, act + c.kv_bytes, &err), 0, "%s", err.msg);
        cr_assert(again.ctx_max == l.ctx_max && (again.n_twins == 0 || again.seq_blocks == runs + 5 * windowed));
        c.ctx_max = l.ctx_max + 1;
        cr_assert(l.ctx_max == 512 || qr_engine_plan(&again, &c, &p.config, p.kv_dtype, 0, act, act + c.kv_bytes, &err) == QR_E_NO_ROOM);
    }
    c.split = false;
    c.ctx_max = 0;
    cr_assert_eq(qr_engine_plan(&l, &c, &p.config, p.kv_dtype, 0, act, act + c.kv_bytes, &err), 0, "%s", err.msg);
    cr_expect(l.n_twins == 0 && l.n_blocks == (6 * 32 - 1) / 6 && qr_engine_block_bytes(&l) == 6 * block);
}
