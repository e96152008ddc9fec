/* ops_cases.h - one table of shapes for every kernel entry, read four ways: correctness against ref, batch invariance, speed
 * (bench/kern/kern.c) and support. A faster kernel for an entry, or a new width, is one row here.
 */
#ifndef QR_TESTS_OPS_CASES_H
#define QR_TESTS_OPS_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

enum { QR_CASE_CHECK = 1, QR_CASE_SPEED = 2, QR_CASE_SINKS = 4 };

struct qr_linear_case {
    int32_t n_rows, n_in, n_out;
    enum qr_dtype w;
    bool bias, add;
    int use;
};

/* Odd widths first (tiny models: D 64, 80, 96; F 144, 160, 172; V 512), then widths that break every multiple, then real ones. */
static const struct qr_linear_case qr_linear_cases[] = {
    {1, 64, 96, QR_F32, false, false, QR_CASE_CHECK},
    {5, 64, 344, QR_F32, false, true, QR_CASE_CHECK},
    {7, 172, 64, QR_F32, true, true, QR_CASE_CHECK},
    {13, 160, 80, QR_F32, true, false, QR_CASE_CHECK},
    {1, 80, 512, QR_BF16, false, false, QR_CASE_CHECK},
    {25, 96, 288, QR_BF16, true, false, QR_CASE_CHECK},
    {12, 144, 96, QR_BF16, true, true, QR_CASE_CHECK},
    {3, 1, 1, QR_F32, false, false, QR_CASE_CHECK},
    {3, 1, 1, QR_BF16, true, true, QR_CASE_CHECK},
    {2, 17, 33, QR_BF16, false, true, QR_CASE_CHECK},
    {49, 31, 47, QR_F32, true, false, QR_CASE_CHECK},
    {6, 255, 15, QR_BF16, false, false, QR_CASE_CHECK},
    {100, 257, 65, QR_BF16, true, true, QR_CASE_CHECK},
    {40, 1221, 100, QR_BF16, true, true, QR_CASE_CHECK},
    {70, 640, 64, QR_BF16, false, false, QR_CASE_CHECK},
    {8, 777, 33, QR_F32, true, false, QR_CASE_CHECK}, /* several pieces of a sum, tiles of rows and of panels, none of them whole */
    {103, 301, 47, QR_F32, true, true, QR_CASE_CHECK},
    {110, 533, 40, QR_BF16, false, true, QR_CASE_CHECK},
    {1, 576, 1536, QR_BF16, false, false, QR_CASE_CHECK | QR_CASE_SPEED},
    {1, 2048, 2048, QR_BF16, false, false, QR_CASE_CHECK | QR_CASE_SPEED},
    {1, 2048, 2048, QR_F32, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_BF16, false, false, QR_CASE_SPEED},
    {4, 2048, 2048, QR_BF16, false, false, QR_CASE_SPEED},
    {16, 2048, 2048, QR_BF16, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_BF16, false, false, QR_CASE_SPEED},
    {64, 2048, 2048, QR_BF16, false, false, QR_CASE_SPEED},
    {256, 2048, 2048, QR_BF16, false, false, QR_CASE_SPEED},
    {256, 576, 1536, QR_BF16, false, false, QR_CASE_SPEED},
    {256, 2048, 2048, QR_F32, false, false, QR_CASE_SPEED},
    {512, 2048, 8192, QR_BF16, false, false, QR_CASE_SPEED},
    {1, 576, 1536, QR_Q8, false, false, QR_CASE_SPEED},
    {1, 576, 1536, QR_Q4, false, false, QR_CASE_SPEED},
    {1, 2048, 2048, QR_Q8, false, false, QR_CASE_SPEED},
    {1, 2048, 2048, QR_Q4, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_Q8, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_Q4, false, false, QR_CASE_SPEED},
    {8, 2048, 2048, QR_Q8, false, false, QR_CASE_SPEED},
    {8, 2048, 2048, QR_Q4, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_Q8, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_Q4, false, false, QR_CASE_SPEED},
    {256, 576, 1536, QR_Q8, false, false, QR_CASE_SPEED},
    {256, 576, 1536, QR_Q4, false, false, QR_CASE_SPEED},
    {256, 2048, 2048, QR_Q8, false, false, QR_CASE_SPEED},
    {256, 2048, 2048, QR_Q4, false, false, QR_CASE_SPEED},
    {512, 2048, 8192, QR_Q8, false, false, QR_CASE_SPEED},
    {512, 2048, 8192, QR_Q4, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C8_G32, false, false, QR_CASE_SPEED}, /* GGUF's Q8_0, Q4_0, Q4_K, Q2_K, Q3_K, Q5_0, Q5_K, Q6_K (loader/pack/gguf_blocks.c) */
    {1, 2048, 16384, QR_C4_G32, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C4_G32_SO, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C2_G16_SO, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C3_G16_S, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C4_G16_SO, false, false, QR_CASE_SPEED}, /* Q2_K and Q3_K on a device */
    {1, 2048, 16384, QR_C4_G16_S, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C5_G32, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C5_G32_SO, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C6_G16_S, false, false, QR_CASE_SPEED},
    {1, 2048, 16384, QR_C4_G128_Z, false, false, QR_CASE_SPEED}, /* AWQ, GPTQ */
    {1, 2048, 16384, QR_C8_E4M3, false, false, QR_CASE_SPEED},   /* FP8 */
    {32, 2048, 2048, QR_C8_G32, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C2_G16_SO, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C3_G16_S, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C4_G16_SO, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C4_G16_S, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C4_G32, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C8_E4M3, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C4_G32_SO, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C5_G32_SO, false, false, QR_CASE_SPEED},
    {32, 2048, 2048, QR_C6_G16_S, false, false, QR_CASE_SPEED},
};

struct qr_attention_case {
    int32_t n_heads, n_kv_heads, head_dim, block_tokens, window;
    float softcap;
    enum qr_dtype kv;
    int32_t n_seqs, n_rows, ctx; /* rows of a sequence in the step and its context afterwards; 0: mixed lengths from a seed */
    int use;
};

static const struct qr_attention_case qr_attention_cases[] = {
    {8, 4, 8, 16, 0, 0, QR_F32, 0, 0, 0, QR_CASE_CHECK},
    {4, 4, 16, 16, 0, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {6, 2, 24, 1, 0, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {9, 3, 64, 16, 0, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {9, 3, 64, 16, 100, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {4, 1, 32, 8, 300, 30.0f, QR_F32, 0, 0, 0, QR_CASE_CHECK},
    {4, 2, 80, 32, 0, 50.0f, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {2, 1, 96, 16, 1, 0, QR_F32, 0, 0, 0, QR_CASE_CHECK},
    {14, 2, 64, 16, 0, 0, QR_F32, 0, 0, 0, QR_CASE_CHECK},
    {8, 1, 128, 512, 257, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {4, 2, 256, 64, 0, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {64, 1, 8, 16, 0, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK},
    {8, 4, 8, 16, 0, 0, QR_I8, 0, 0, 0, QR_CASE_CHECK},
    {6, 2, 24, 1, 0, 0, QR_I8, 0, 0, 0, QR_CASE_CHECK},
    {9, 3, 64, 16, 100, 0, QR_I8, 0, 0, 0, QR_CASE_CHECK},
    {32, 1, 40, 4, 0, 0, QR_I8, 0, 0, 0, QR_CASE_CHECK},
    {4, 2, 80, 32, 0, 50.0f, QR_I8, 0, 0, 0, QR_CASE_CHECK},
    {8, 1, 128, 512, 257, 0, QR_I8, 0, 0, 0, QR_CASE_CHECK},
    {4, 2, 256, 64, 0, 0, QR_I8, 0, 0, 0, QR_CASE_CHECK},
    {4, 2, 24, 2, 0, 0, QR_E4M3, 0, 0, 0, QR_CASE_CHECK},
    {8, 1, 128, 512, 257, 0, QR_E4M3, 0, 0, 0, QR_CASE_CHECK},
    {4, 2, 256, 64, 0, 50.0f, QR_E4M3, 0, 0, 0, QR_CASE_CHECK},
    {16, 2, 64, 16, 128, 0, QR_BF16, 0, 0, 0, QR_CASE_CHECK | QR_CASE_SINKS},
    {6, 2, 24, 1, 0, 30.0f, QR_F32, 0, 0, 0, QR_CASE_CHECK | QR_CASE_SINKS},
    {16, 2, 64, 16, 0, 0, QR_I8, 0, 0, 0, QR_CASE_CHECK | QR_CASE_SINKS},
    {9, 3, 64, 16, 0, 0, QR_BF16, 1, 1, 2048, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_BF16, 1, 1, 8192, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_BF16, 1, 1, 2048, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_BF16, 1, 1, 8192, QR_CASE_SPEED},
    {32, 8, 128, 16, 0, 0, QR_BF16, 1, 1, 8192, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_I8, 1, 1, 2048, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_I8, 1, 1, 8192, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_I8, 1, 1, 8192, QR_CASE_SPEED},
    {32, 8, 128, 16, 0, 0, QR_I8, 1, 1, 8192, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_F32, 1, 1, 8192, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_BF16, 16, 1, 1024, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_BF16, 64, 1, 8, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_BF16, 64, 1, 32, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_BF16, 64, 1, 64, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_BF16, 64, 1, 128, QR_CASE_SPEED},
    {9, 3, 64, 16, 0, 0, QR_BF16, 64, 1, 256, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_BF16, 64, 1, 64, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_BF16, 1, 512, 512, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_BF16, 1, 256, 4096, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_I8, 16, 1, 1024, QR_CASE_SPEED},
    {32, 8, 64, 16, 0, 0, QR_I8, 1, 512, 512, QR_CASE_SPEED},
};

/* Kernels that treat rows one by one: rows and width. */
struct qr_rows_case {
    int32_t n_rows, n_cols;
    int use;
};

static const struct qr_rows_case qr_rows_cases[] = {
    {1, 1, QR_CASE_CHECK},     {3, 7, QR_CASE_CHECK},    {5, 15, QR_CASE_CHECK},   {4, 16, QR_CASE_CHECK},
    {9, 17, QR_CASE_CHECK},    {33, 64, QR_CASE_CHECK},  {8, 80, QR_CASE_CHECK},   {8, 96, QR_CASE_CHECK},
    {8, 144, QR_CASE_CHECK},   {30, 172, QR_CASE_CHECK}, {2, 1000, QR_CASE_CHECK}, {40, 2048, QR_CASE_CHECK | QR_CASE_SPEED},
    {2, 3001, QR_CASE_CHECK},  {2, 4104, QR_CASE_CHECK}, {1, 9002, QR_CASE_CHECK},
    {512, 2048, QR_CASE_SPEED}, {1, 8192, QR_CASE_SPEED},
};

/* Heads: heads, head dim, rotated part. */
struct qr_heads_case {
    int32_t n_heads, head_dim, n_rot;
};

static const struct qr_heads_case qr_heads_cases[] = {
    {8, 8, 8}, {3, 16, 16}, {2, 24, 8}, {9, 64, 64}, {4, 80, 20}, {5, 96, 96}, {2, 128, 128}, {1, 256, 64}, {2, 40, 34},
};

#endif
