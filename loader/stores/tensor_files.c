/* tensor_files.c - the set of tensors, whatever kind of file filled it: finding, reading and decoding. */
#include "loader/stores/tensor_files.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "loader/pack/gguf_blocks.h"
#include "loader/stores/expert_stacks.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/stores/tensor_files_parts.h"

#define NAMES_BYTES_MAX ((size_t)4 * QR_STORED_TENSORS_MAX * (QR_STORED_NAME_MAX + 1)) /* a tensor has three at most */
#define MADE_BYTES_MAX ((size_t)1 << 46) /* orders of inputs are most of it: twice what the files hold of them, whatever that is */

struct qr_tensor_files *qr_tensor_files_new(void)
{
    struct qr_tensor_files *st = qr_alloc(1, sizeof *st);
    qr_arena_init(&st->list.names, NAMES_BYTES_MAX);
    qr_map_init(&st->by_name, 512);
    qr_arena_init(&st->made.names, MADE_BYTES_MAX);
    qr_map_init(&st->made_by_name, 0);
    return st;
}

void qr_tensor_files_use(struct qr_tensor_files *st, const struct qr_stored_ops *ops)
{
    QR_ASSERT(st != NULL);
    st->ops = ops;
}

void qr_tensor_files_close(struct qr_tensor_files *st)
{
    if (!st)
        return;
    for (int32_t i = 0; i < st->n_shards; i++) {
        if (!st->borrowed && !(st->source && i == 0))
            qr_map_file_close(&st->shard[i].map);
        qr_free(st->shard[i].name);
    }
    qr_free(st->shard);
    qr_free(st->place);
    qr_free(st->list.item);
    qr_arena_release(&st->list.names);
    qr_map_release(&st->by_name);
    qr_free(st->made.item);
    qr_arena_release(&st->made.names);
    qr_map_release(&st->made_by_name);
    qr_source_unref(st->source);
    qr_free(st);
}

int32_t qr_tensor_files_add(struct qr_tensor_files *st, const char *name, size_t len)
{
    QR_ASSERT(st != NULL && name != NULL);
    if (st->n_shards == 0 || (st->n_shards & (st->n_shards - 1)) == 0)
        st->shard = qr_realloc(st->shard, st->n_shards ? (size_t)st->n_shards * 2 : 1, sizeof *st->shard);
    st->shard[st->n_shards] = (struct qr_tensor_file){.name = qr_strndup(name, len)};
    return st->n_shards++;
}

struct qr_stored_tensor *qr_stored_list_add(struct qr_stored_list *list)
{
    QR_ASSERT(list != NULL);
    QR_ASSERT(list->n < QR_STORED_TENSORS_MAX);
    if (list->n == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 256;
        list->item = qr_realloc(list->item, (size_t)list->cap, sizeof *list->item);
    }
    list->item[list->n] = (struct qr_stored_tensor){0};
    return &list->item[list->n++];
}

char *qr_stored_list_name(struct qr_stored_list *list, const char *name, size_t n)
{
    char *copy = qr_arena_alloc(&list->names, n + 1, 1);
    memcpy(copy, name, n);
    copy[n] = 0;
    return copy;
}

int qr_tensor_files_open_from(struct qr_tensor_files **out, struct qr_source *source, const struct qr_quant_scheme *quant, struct qr_err *err)
{
    QR_ASSERT(out != NULL && source != NULL);
    if (qr_source_gguf(source))
        return qr_gguf_tensors_open(out, source, err);
    int rc = qr_safetensors_open(out, qr_source_model(source), err);
    if (rc)
        return rc;
    rc = quant ? qr_quantized_tensors_find(*out, quant, err) : 0;
    rc = rc ? rc : qr_expert_stacks_find(*out, err);
    if (rc) {
        qr_tensor_files_close(*out);
        *out = NULL;
    }
    return rc;
}

int qr_tensor_files_open(struct qr_tensor_files **out, const char *model, const struct qr_quant_scheme *quant, struct qr_err *err)
{
    QR_ASSERT(out != NULL && model != NULL);
    struct qr_source *source;
    int rc = qr_source_open(&source, model, err);
    if (rc)
        return rc;
    rc = qr_tensor_files_open_from(out, source, quant, err);
    qr_source_unref(source);
    return rc;
}

int32_t qr_tensor_files_count(const struct qr_tensor_files *st)
{
    QR_ASSERT(st != NULL);
    return st->list.n;
}

const struct qr_stored_tensor *qr_tensor_files_at(const struct qr_tensor_files *st, int32_t i)
{
    QR_ASSERT(st != NULL);
    QR_ASSERT(i >= 0 && i < st->list.n);
    return &st->list.item[i];
}

const struct qr_stored_tensor *qr_tensor_files_find(const struct qr_tensor_files *st, const char *name)
{
    QR_ASSERT(st != NULL && name != NULL);
    int32_t i = qr_map_find(&st->made_by_name, name, strlen(name), -1);
    if (i >= 0)
        return &st->made.item[i];
    i = qr_map_find(&st->by_name, name, strlen(name), -1);
    return i < 0 ? NULL : &st->list.item[i];
}

static uint64_t n_numbers(const struct qr_stored_tensor *t)
{
    uint64_t n = 1;
    for (int32_t k = 0; k < t->n_dims; k++)
        n *= (uint64_t)t->shape[k];
    return n;
}

uint64_t qr_tensor_files_n_parameters(const struct qr_tensor_files *st)
{
    QR_ASSERT(st != NULL);
    uint64_t n = 0;
    for (int32_t i = 0; i < st->list.n; i++)
        n += n_numbers(&st->list.item[i]);
    for (int32_t i = 0; i < st->made.n; i++) {
        const struct qr_stored_tensor *t = &st->made.item[i];
        n += t->part_of ? 0 : n_numbers(t);
        for (int k = 0; t->quantized && !t->part_of && k < QR_QUANTIZED_PARTS; k++)
            n -= qr_quantized_part(t, k) ? n_numbers(qr_quantized_part(t, k)) : 0;
    }
    return n;
}

const void *qr_tensor_files_data(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    QR_ASSERT(st != NULL && t != NULL);
    for (int32_t i = 0; i < st->n_held; i++)
        if (st->held[i].t == t)
            return (const void *)st->held[i].at;
    const struct qr_map_file *map = &st->shard[t->shard].map;
    QR_ASSERT(t->offset <= map->n_bytes && t->n_bytes <= map->n_bytes - t->offset);
    return t->n_bytes ? map->data + t->offset : NULL;
}

/* Whether the file of t does. */
static bool stays_open(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    return !st->borrowed && st->shard[t->shard].map.reader > 0;
}

bool qr_tensor_files_there(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    QR_ASSERT(st != NULL && t != NULL);
    QR_ASSERT(t->quantized == NULL);
    return !stays_open(st, t) || qr_map_file_whole(&st->shard[t->shard].map);
}

bool qr_tensor_files_read(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, uint64_t at, size_t n_bytes, void *to)
{
    QR_ASSERT(st != NULL && t != NULL && to != NULL);
    QR_ASSERT(t->quantized == NULL && at <= t->n_bytes && n_bytes <= t->n_bytes - at);
    const struct qr_map_file *map = &st->shard[t->shard].map;
    if (stays_open(st, t))
        return qr_map_file_read(map, to, t->offset + at, n_bytes);
    qr_copy(to, map->data + t->offset + at, n_bytes);
    return true;
}

void qr_tensor_files_hold(struct qr_tensor_files *view, const struct qr_stored_tensor *t, uint64_t at, const void *bytes)
{
    QR_ASSERT(view != NULL && t != NULL && bytes != NULL);
    QR_ASSERT(view->n_held < QR_HELD_MAX);
    view->held[view->n_held++] = (struct qr_held){t, (uintptr_t)bytes - at};
}

bool qr_tensor_files_populate(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    QR_ASSERT(st != NULL && t != NULL);
    return st->borrowed || qr_map_file_populate(&st->shard[t->shard].map, t->offset, t->n_bytes);
}

void qr_tensor_files_drop(const struct qr_tensor_files *st, const struct qr_stored_tensor *t)
{
    QR_ASSERT(st != NULL && t != NULL);
    for (int i = 0; t->quantized && i < QR_QUANTIZED_PARTS; i++)
        if (qr_quantized_part(t, i))
            qr_tensor_files_drop(st, qr_quantized_part(t, i));
    if (!st->borrowed)
        qr_map_file_drop(&st->shard[t->shard].map, t->offset, t->n_bytes);
}

void qr_tensor_files_place(struct qr_tensor_files *st, const char *path)
{
    QR_ASSERT(st != NULL && path != NULL);
    QR_ASSERT(st->place == NULL);
    char real[PATH_MAX];
    st->place = realpath(path, real) ? qr_strdup(real) : NULL;
}

void qr_tensor_files_drop_all(const struct qr_tensor_files *st)
{
    QR_ASSERT(st != NULL);
    QR_ASSERT(st->n_shards >= 0);
    for (int32_t i = 0; i < st->n_shards && !st->borrowed; i++)
        qr_map_file_drop(&st->shard[i].map, 0, st->shard[i].map.n_bytes);
}

int32_t qr_tensor_files_n_shards(const struct qr_tensor_files *st)
{
    QR_ASSERT(st != NULL);
    return st->n_shards;
}

const char *qr_tensor_files_shard_name(const struct qr_tensor_files *st, int32_t shard)
{
    QR_ASSERT(st != NULL);
    QR_ASSERT(shard >= 0 && shard < st->n_shards);
    return st->shard[shard].name;
}

uint64_t qr_tensor_files_shard_bytes(const struct qr_tensor_files *st, int32_t shard)
{
    QR_ASSERT(st != NULL);
    QR_ASSERT(shard >= 0 && shard < st->n_shards);
    return st->shard[shard].map.n_bytes;
}

const char *qr_shape_text(char *text, size_t n, const int64_t *shape, int32_t n_dims)
{
    QR_ASSERT(text != NULL && n >= 3);
    QR_ASSERT(n_dims >= 0 && n_dims <= QR_STORED_DIMS_MAX);
    size_t at = (size_t)snprintf(text, n, "[");
    for (int32_t i = 0; i < n_dims && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%" PRId64, i ? ", " : "", shape[i]);
    if (at < n)
        snprintf(text + at, n - at, "]");
    return text;
}

/* The row of the file that row i of a safetensors file is: converters write a head's row pairs (r, r + half) one beside the other. */
static int64_t stored_row(const struct qr_stored_tensor *t, int64_t i)
{
    if (t->heads == 0)
        return i;
    const int64_t per_head = t->shape[0] / t->heads, half = per_head / 2, r = i % per_head;
    return i - r + (r < half ? 2 * r : 2 * (r - half) + 1);
}

const void *qr_tensor_files_row(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, int64_t row)
{
    QR_ASSERT(st != NULL && t != NULL && t->n_dims >= 1 && !t->part_of);
    QR_ASSERT(row >= 0 && row < t->shape[0]);
    return (const uint8_t *)qr_tensor_files_data(st, t) + (uint64_t)stored_row(t, row) * (t->n_bytes / (uint64_t)t->shape[0]);
}

void qr_stored_numbers(float *dst, const uint8_t *src, enum qr_dtype from, int64_t n)
{
    QR_ASSERT(dst != NULL && src != NULL);
    if (from == QR_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, sizeof h);
        dst[i] = from == QR_BF16 ? qr_bf16_to_f32(h) : qr_f16_to_f32(h);
    }
}

/* Rows of a part of a tensor. Rows are what lies closest: all of a column of them at a time. */
static void decode_part(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n)
{
    const size_t number = qr_dtype_bytes(t->type->dtype);
    const int64_t n_cols = t->n_dims == 2 ? t->shape[1] : 1;
    const uint8_t *src = (const uint8_t *)qr_tensor_files_data(st, t) + (size_t)t->row_first * number;
    for (int64_t c = 0; c < n_cols; c++)
        for (int64_t i = 0; i < n; i++)
            qr_stored_numbers(dst + i * n_cols + c, src + (size_t)((first + i) * t->row_step + c * t->col_step) * number,
                              t->type->dtype, 1);
}

void qr_tensor_files_decode(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n)
{
    QR_ASSERT(st != NULL && t != NULL && dst != NULL);
    QR_ASSERT(t->type->computable && t->n_dims >= 1 && first >= 0 && n <= t->shape[0] - first);
    if (t->quantized) {
        qr_quantized_decode(st, t, dst, first, n);
        return;
    }
    if (t->part_of) {
        decode_part(st, t, dst, first, n);
        return;
    }
    int64_t n_cols = 1;
    for (int32_t i = 1; i < t->n_dims; i++)
        n_cols *= t->shape[i];
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *row = qr_tensor_files_row(st, t, first + i);
        if (!t->type->blocks)
            qr_stored_numbers(dst + i * n_cols, row, t->type->dtype, n_cols);
        else if (!qr_gguf_decode((enum qr_gguf_type)t->type->gguf, dst + i * n_cols, row, n_cols))
            QR_ASSERT(false);
    }
}

void qr_tensor_files_decode_columns(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n)
{
    QR_ASSERT(st != NULL && t != NULL && dst != NULL);
    QR_ASSERT(t->type->computable && qr_stored_is_plain(t) && t->n_dims == 2 && first >= 0 && n <= t->shape[1] - first);
    const size_t number = qr_dtype_bytes(t->type->dtype);
    const uint8_t *src = (const uint8_t *)qr_tensor_files_data(st, t) + (size_t)first * number;
    for (int64_t r = 0; r < t->shape[0]; r++, src += (size_t)t->shape[1] * number)
        for (int64_t i = 0; i < n; i++)
            qr_stored_numbers(dst + i * t->shape[0] + r, src + (size_t)i * number, t->type->dtype, 1);
}
