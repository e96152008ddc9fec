#include "loader/stores/expert_stacks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/kernels.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/stores/tensor_files_parts.h"

/* gpt-oss' tensors. Matrices are [E, n_in, n_out], quantized ones [E, n_out, n_in], biases [E, n_out]; outputs of several
 * matrices take turns. */
static const struct stack {
    const char *name;
    int32_t n_dims, n_parts;
    const char *part[2];
} stacks[] = {
    {"gate_up_proj", 3, 2, {"gate_proj.weight", "up_proj.weight"}},
    {"gate_up_proj_bias", 2, 2, {"gate_proj.bias", "up_proj.bias"}},
    {"down_proj", 3, 1, {"down_proj.weight"}},
    {"down_proj_bias", 2, 1, {"down_proj.bias"}},
};

/* The stack that a tensor is, NULL: none; *n: characters in front of its own name. */
static const struct stack *stack_of(const struct qr_stored_tensor *t, size_t *n)
{
    const char *tail = strrchr(t->name, '.');
    if (!tail || tail - t->name < 8 || strncmp(tail - 8, ".experts", 8) != 0)
        return NULL;
    *n = (size_t)(tail - t->name);
    for (int i = 0; i < QR_COUNT(stacks); i++)
        if (strcmp(tail + 1, stacks[i].name) == 0 && t->n_dims == stacks[i].n_dims)
            return &stacks[i];
    return NULL;
}

static int64_t outputs_of(const struct qr_stored_tensor *whole)
{
    return whole->quantized ? whole->shape[1] : whole->shape[whole->n_dims - 1];
}

/* Part `part` of expert e. */
static int add_part(struct qr_tensor_files *st, const struct qr_stored_tensor *whole, const struct stack *s, size_t n_stem,
                    int32_t e, int32_t part, struct qr_err *err)
{
    const int64_t n_in = whole->quantized ? whole->shape[2] : s->n_dims == 3 ? whole->shape[1] : 1, n_out = outputs_of(whole);
    const uint64_t one = (uint64_t)(n_in * n_out) * (uint64_t)whole->type->bits / 8;
    char name[QR_STORED_NAME_MAX];
    if (st->made.n == QR_STORED_TENSORS_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "more than %d matrices of experts", QR_STORED_TENSORS_MAX);
    struct qr_stored_tensor *t = qr_stored_list_add(&st->made);
    *t = *whole;
    t->part_of = whole->quantized ? qr_quantized_part(whole, 0) : whole;
    t->quantized = whole->quantized ? qr_quantized_cut(st, whole, e, part, s->n_parts) : NULL;
    t->n_dims = s->n_dims - 1;
    t->shape[0] = n_out / s->n_parts, t->shape[1] = s->n_dims == 3 ? n_in : 0, t->shape[2] = 0;
    t->row_first = part, t->row_step = s->n_parts, t->col_step = n_out;
    t->offset = whole->offset + (uint64_t)e * one;
    t->n_bytes = one;
    snprintf(name, sizeof name, "%.*s.%d.%s", (int)(n_stem < 300 ? n_stem : 300), whole->name, e, s->part[part]);
    t->name = qr_stored_list_name(&st->made, name, strlen(name));
    if (qr_map_add(&st->made_by_name, t->name, strlen(t->name), st->made.n - 1))
        return 0;
    return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s holds %s, which is there twice",
                      st->shard[whole->shard].name, whole->offset, whole->name, t->name);
}

/* The parts of all experts of t, where it is a stack. */
static int add_parts(struct qr_tensor_files *st, const struct qr_stored_tensor *t, struct qr_err *err)
{
    size_t n_stem;
    int rc = 0;
    const struct stack *s = stack_of(t, &n_stem);
    if (!s || !t->type->computable)
        return 0;
    if (t->shape[0] < 1 || t->shape[0] > QR_EXPERTS_MAX || (t->n_bytes == 0 && !t->quantized) || outputs_of(t) % s->n_parts != 0)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s holds %" PRId64 " experts with %" PRId64
                          " outputs, expected 1 to %d, and a multiple of %d outputs", st->shard[t->shard].name, t->offset,
                          t->name, t->shape[0], outputs_of(t), QR_EXPERTS_MAX, s->n_parts);
    for (int32_t i = 0; i < t->shape[0] * s->n_parts && !rc; i++)
        rc = add_part(st, t, s, n_stem, i / s->n_parts, i % s->n_parts, err);
    return rc;
}

int qr_expert_stacks_find(struct qr_tensor_files *st, struct qr_err *err)
{
    QR_ASSERT(st != NULL);
    QR_ASSERT(err != NULL);
    const int32_t n_quantized = st->made.n;
    int rc = 0;
    for (int32_t i = 0; i < st->list.n && !rc; i++)
        rc = add_parts(st, &st->list.item[i], err);
    for (int32_t i = 0; i < n_quantized && !rc; i++) {
        const struct qr_stored_tensor t = st->made.item[i]; /* the list moves when it grows */
        rc = add_parts(st, &t, err);
    }
    return rc;
}
