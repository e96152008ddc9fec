#include "train/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/size.h"
#include "loader/weight_table.h"

void qr_train_plan_add(struct qr_train_plan *plan, const char *what, size_t n_bytes)
{
    QR_ASSERT(plan != NULL && what != NULL);
    QR_ASSERT(plan->n_rows < QR_PLAN_ROWS_MAX);
    plan->row[plan->n_rows].what = what;
    plan->row[plan->n_rows++].n_bytes = n_bytes;
    plan->total += n_bytes;
}

int qr_train_plan_tape(struct qr_train_plan *plan, struct qr_params *params, const struct qr_tape_options *tape, struct qr_err *err)
{
    QR_ASSERT(plan != NULL && params != NULL);
    QR_ASSERT(tape != NULL && err != NULL);
    struct qr_tape_memory m;
    int rc = qr_tape_plan(&m, params, tape, err);
    if (rc)
        return rc;
    qr_train_plan_add(plan, QR_PLAN_KEEP, m.keep);
    qr_train_plan_add(plan, QR_PLAN_WORK, m.work);
    qr_train_plan_add(plan, QR_PLAN_GRAD, m.grad);
    qr_train_plan_add(plan, QR_PLAN_LOGITS, m.logits);
    qr_train_plan_add(plan, QR_PLAN_LATER, m.later);
    qr_train_plan_add(plan, QR_PLAN_KV, m.kv);
    return 0;
}

void qr_train_plan_print(struct qr_buf *out, const struct qr_train_plan *plan)
{
    QR_ASSERT(out != NULL && plan != NULL);
    QR_ASSERT(plan->n_rows > 0);
    char size[QR_SIZE_TEXT];
    qr_buf_put_str(out, "memory\n");
    for (int32_t i = 0; i < plan->n_rows; i++) {
        if (plan->row[i].n_bytes == 0)
            continue;
        qr_buf_printf(out, "  %-38s%s\n", plan->row[i].what, qr_size_text(size, (int64_t)plan->row[i].n_bytes));
    }
    qr_buf_printf(out, "  %-38s%s\n", "together", qr_size_text(size, (int64_t)plan->total));
}

/* "model.layers.*.mlp.up_proj.weight" for a tensor of layer 0; other layers' tensors are not shown: false. */
static bool family(char out[QR_WEIGHT_NAME_MAX], const char *name)
{
    static const char first[] = "model.layers.0.";
    const char *at = strstr(name, "model.layers.");
    if (!at) {
        snprintf(out, QR_WEIGHT_NAME_MAX, "%s", name);
        return true;
    }
    snprintf(out, QR_WEIGHT_NAME_MAX, "%smodel.layers.*.%s", at > name ? "(adapter) " : "", at + sizeof first - 1);
    return strncmp(at, first, sizeof first - 1) == 0;
}

void qr_train_print_params(struct qr_buf *out, const struct qr_params *params)
{
    QR_ASSERT(out != NULL && params != NULL);
    QR_ASSERT(params->n_params > 0);
    int64_t n = 0, n_trained = 0;
    qr_buf_put_str(out, "parameters\n");
    for (int32_t i = 0; i < params->n_params; i++) {
        const struct qr_param *t = &params->param[i];
        char name[QR_WEIGHT_NAME_MAX], shape[48];
        n += t->n;
        n_trained += t->frozen ? 0 : t->n;
        if (!family(name, t->name))
            continue;
        const int32_t times = strstr(name, ".*.") ? params->config.n_layers : 1;
        snprintf(shape, sizeof shape, t->n_dims == 2 ? "%lld x %lld" : "%lld", (long long)t->shape[0], (long long)t->shape[1]);
        qr_buf_printf(out, "  %-46s %15s", name, shape);
        qr_buf_printf(out, times > 1 ? "  x %-4d" : "        ", times);
        qr_buf_printf(out, " %12lld%s\n", (long long)t->n * times, t->frozen ? "  frozen" : t->decays ? "" : "  no decay");
    }
    qr_buf_printf(out, "  %lld numbers (%.1f M), of which %lld train; %s matrices, f32 masters\n", (long long)n, (double)n * 1e-6, (long long)n_trained,
                  qr_dtype_name(params->compute));
}

struct qr_train_flops qr_train_flops_of(const struct qr_model_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->n_layers > 0 && c->n_heads > 0);
    struct qr_train_flops f = {0};
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        if (k.row->kind != QR_KIND_MATRIX)
            continue;
        const double two_n = 2.0 * (double)qr_dim_value(c, k.row->n_out) * (double)qr_dim_value(c, k.row->n_in);
        if (k.layer < 0)
            f.logits += two_n;
        else
            f.row += two_n;
    }
    f.attended = 4.0 * c->n_layers * c->n_heads * c->head_dim;
    return f;
}

double qr_train_attended(const struct qr_batch *b)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(b->n_seqs >= 0);
    double seen = 0;
    for (int32_t s = 0; s < b->n_seqs; s++)
        seen += 0.5 * (double)b->ctx_len[s] * (double)(b->ctx_len[s] + 1);
    return seen;
}

double qr_train_flops_batch(const struct qr_train_flops *f, const struct qr_batch *b)
{
    QR_ASSERT(f != NULL && b != NULL);
    QR_ASSERT(b->n_tokens >= 0 && b->n_logits <= b->n_tokens);
    return f->row * b->n_tokens + f->logits * b->n_logits + f->attended * qr_train_attended(b);
}
