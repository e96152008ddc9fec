#include "tests/isa_emu/tiles.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TILES 8
#define ROWS_MAX 16
#define ROW_BYTES_MAX 64

struct tile {
    uint8_t data[ROWS_MAX][ROW_BYTES_MAX]; /* zeros from row `rows` and byte `row_bytes` on */
    int32_t rows, row_bytes;               /* 0: not in use */
};

/* A thread's registers, as a processor's: nothing else could find them. */
static _Thread_local struct {
    _Alignas(64) struct tile tile[N_TILES];
    bool configured;
} state;

static _Noreturn void fault(const char *exception, const char *instruction, const char *why)
{
    fprintf(stderr, "emulated amx: %s in %s: %s\n", exception, instruction, why);
    abort();
}

static void check(bool holds, const char *instruction, const char *why)
{
    if (!holds)
        fault("#UD", instruction, why);
}

static struct tile *tile_in_use(int t, const char *instruction)
{
    check(state.configured, instruction, "tiles are not configured");
    check(t >= 0 && t < N_TILES && state.tile[t].rows > 0, instruction, "the tile is not configured");
    return &state.tile[t];
}

void emu_tile_configure(const void *config)
{
    uint8_t c[64];
    memcpy(c, config, sizeof(c));
    if (c[0] > 1)
        fault("#GP", "ldtilecfg", "the palette is neither 0 nor 1");
    if (c[0] == 0) {
        emu_tile_release();
        return;
    }
    for (int i = 2; i < 64; i++)
        if (c[i] && (i < 16 || (i >= 32 && i < 48) || i >= 56))
            fault("#GP", "ldtilecfg", "a reserved byte is not 0");
    for (int t = 0; t < N_TILES; t++) {
        const int32_t row_bytes = c[16 + 2 * t] | c[17 + 2 * t] << 8, rows = c[48 + t];
        if (rows > ROWS_MAX || row_bytes > ROW_BYTES_MAX)
            fault("#GP", "ldtilecfg", "a tile of more than 16 rows or 64 bytes a row");
        if ((rows == 0) != (row_bytes == 0))
            fault("#GP", "ldtilecfg", "a tile with rows and no bytes, or with bytes and no rows");
        if (c[1] >= ROWS_MAX)
            fault("#GP", "ldtilecfg", "a first row that no tile has");
        state.tile[t] = (struct tile){.rows = rows, .row_bytes = row_bytes};
    }
    state.configured = true;
}

void emu_tile_release(void)
{
    memset(&state, 0, sizeof(state));
}

void emu_tile_zero(int t)
{
    struct tile *tile = tile_in_use(t, "tilezero");
    memset(tile->data, 0, sizeof(tile->data));
}

void emu_tile_load(int t, const void *p, int64_t stride)
{
    struct tile *tile = tile_in_use(t, "tileloadd");
    for (int32_t r = 0; r < tile->rows; r++)
        memcpy(tile->data[r], (const char *)p + r * stride, (size_t)tile->row_bytes);
}

void emu_tile_store(int t, void *p, int64_t stride)
{
    const struct tile *tile = tile_in_use(t, "tilestored");
    for (int32_t r = 0; r < tile->rows; r++)
        memcpy((char *)p + r * stride, tile->data[r], (size_t)tile->row_bytes);
}

/* The tiles of c += a b, which have to fit each other. */
struct product {
    struct tile *c;
    const struct tile *a, *b;
};

static struct product product_of(int c, int a, int b, const char *instruction)
{
    struct product p = {tile_in_use(c, instruction), tile_in_use(a, instruction), tile_in_use(b, instruction)};
    check(c != a && c != b && a != b, instruction, "a tile that is used twice");
    check(p.c->row_bytes % 4 == 0 && p.a->row_bytes % 4 == 0 && p.b->row_bytes % 4 == 0, instruction, "rows that are no multiple of 4 bytes");
    check(p.a->row_bytes == 4 * p.b->rows, instruction, "the first factor has not as many columns as the second one has rows");
    check(p.c->rows == p.a->rows, instruction, "the sum has not as many rows as the first factor");
    check(p.c->row_bytes == p.b->row_bytes, instruction, "the sum has not as many columns as the second factor");
    return p;
}

/* The first numbers of each pair in b's rows, and the second ones, as floats. */
struct bf16_rows {
    _Alignas(32) float first[ROWS_MAX][16], second[ROWS_MAX][16];
};

/* One row of sums: first and second numbers have a chain each. */
static void dp_bf16_row(float sum[16], const uint8_t *a, const struct bf16_rows *b, int32_t n_pairs)
{
    __m256 first[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, second[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t k = 0; k < n_pairs; k++) {
        uint32_t pair;
        memcpy(&pair, a + 4 * k, 4);
        const __m256 a0 = _mm256_castsi256_ps(_mm256_set1_epi32((int32_t)(pair << 16)));
        const __m256 a1 = _mm256_castsi256_ps(_mm256_set1_epi32((int32_t)(pair & 0xffff0000)));
        for (int h = 0; h < 2; h++) {
            first[h] = _mm256_fmadd_ps(a0, _mm256_load_ps(&b->first[k][8 * h]), first[h]);
            second[h] = _mm256_fmadd_ps(a1, _mm256_load_ps(&b->second[k][8 * h]), second[h]);
        }
    }
    for (int h = 0; h < 2; h++)
        _mm256_storeu_ps(sum + 8 * h, _mm256_add_ps(_mm256_loadu_ps(sum + 8 * h), _mm256_add_ps(first[h], second[h])));
}

static __attribute__((noinline)) void dp_bf16(const struct product *p)
{
    struct bf16_rows b;
    for (int32_t k = 0; k < p->b->rows; k++)
        for (int32_t n = 0; n < 16; n++) {
            uint32_t pair, first, second;
            memcpy(&pair, &p->b->data[k][4 * n], 4);
            first = pair << 16;
            second = pair & 0xffff0000;
            memcpy(&b.first[k][n], &first, 4);
            memcpy(&b.second[k][n], &second, 4);
        }
    for (int32_t m = 0; m < p->c->rows; m++) {
        float sum[16];
        memcpy(sum, p->c->data[m], sizeof(sum));
        dp_bf16_row(sum, p->a->data[m], &b, p->b->rows);
        memcpy(p->c->data[m], sum, (size_t)p->c->row_bytes);
    }
}

/* To nearest even, denormal numbers are 0 as operands and as results, no exceptions, whatever MXCSR says. */
void emu_tile_dp_bf16(int c, int a, int b)
{
    const struct product p = product_of(c, a, b, "tdpbf16ps");
    const uint32_t before = _mm_getcsr();
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(0x1f80 | 0x8040);
    __asm__ volatile("" ::: "memory");
    dp_bf16(&p);
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(before);
}

/* Even or odd bytes as 16 bits each. */
static __m256i widened(__m256i x, bool odd, bool is_signed)
{
    const __m256i up = odd ? x : _mm256_slli_epi16(x, 8);
    return is_signed ? _mm256_srai_epi16(up, 8) : _mm256_srli_epi16(up, 8);
}

void emu_tile_dp_bytes(int c, int a, int b, bool a_signed, bool b_signed)
{
    const struct product p = product_of(c, a, b, a_signed ? b_signed ? "tdpbssd" : "tdpbsud" : b_signed ? "tdpbusd" : "tdpbuud");
    __m256i even[ROWS_MAX][2], odd[ROWS_MAX][2];
    for (int32_t k = 0; k < p.b->rows; k++)
        for (int h = 0; h < 2; h++) {
            const __m256i row = _mm256_loadu_si256((const __m256i *)(const void *)&p.b->data[k][32 * h]);
            even[k][h] = widened(row, false, b_signed);
            odd[k][h] = widened(row, true, b_signed);
        }
    for (int32_t m = 0; m < p.c->rows; m++) {
        __m256i sum[2];
        memcpy(sum, p.c->data[m], sizeof(sum));
        for (int32_t k = 0; k < p.b->rows; k++) {
            int32_t four;
            memcpy(&four, &p.a->data[m][4 * k], 4);
            const __m256i x = _mm256_set1_epi32(four), x_even = widened(x, false, a_signed), x_odd = widened(x, true, a_signed);
            for (int h = 0; h < 2; h++) /* products of bytes: two of them fit 18 bits */
                sum[h] = _mm256_add_epi32(sum[h], _mm256_add_epi32(_mm256_madd_epi16(x_even, even[k][h]), _mm256_madd_epi16(x_odd, odd[k][h])));
        }
        memcpy(p.c->data[m], sum, (size_t)p.c->row_bytes);
    }
}
