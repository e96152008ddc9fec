/* distill.c - the loss of knowledge distillation. A second exec computes the teacher up to its head; then, a chunk of
 * rows at a time, both heads' logits meet in one function in f64 that gives a row's loss and gradient. So the memory
 * for logits is that of one chunk. The result does not depend on threads: a row is one item. The trainer's thread; rows
 * on the pool. */
#include "train/variants/distill.h"

#include <math.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/mem.h"
#include "model/model.h"
#include "train/data/shards.h"

/* What the teacher's last verb was called with: its logits are computed when a chunk of them is wanted. */
struct head {
    struct qr_tensor rows;
    const struct qr_weight *norm, *w;
    float eps;
};

struct distill {
    const struct qr_train_config *c; /* borrowed */
    int32_t n_blocks;
    size_t act_bytes, kv_bytes, logits_bytes;
    struct qr_backend *be;           /* borrowed; NULL until the teacher is there */
    struct qr_model *teacher;        /* owned */
    void *act_mem, *kv_mem;          /* owned */
    float *logits;                   /* owned: of a chunk of rows */
    struct qr_arena act;
    struct qr_kv_view kv;
    struct qr_ops ops;               /* the server's, but for the last verb */
    struct qr_exec exec;
    struct head head;                /* of the micro-batch at hand */
};

bool qr_distill_wanted(const struct qr_train_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->teacher.weight >= 0 && c->teacher.temperature > 0);
    return c->teacher.model != NULL;
}

/* ---- the loss ---- */

/* log of the sum of exp(z / t); the largest is taken out first. */
static double log_sum(const float *z, int32_t n, double t)
{
    double most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++)
        most = (double)z[i] / t > most ? (double)z[i] / t : most;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)z[i] / t - most);
    return most + log(sum);
}

double qr_distill_row(const struct qr_distill_row *r)
{
    QR_ASSERT(r != NULL && r->grad != NULL && r->student != NULL && r->teacher != NULL);
    QR_ASSERT(r->target >= 0 && r->target < r->n && r->temperature > 0);
    const double t = r->temperature, w = r->weight;
    const double target = (double)r->student[r->target];
    const double plain = log_sum(r->student, r->n, 1), soft = t == 1 ? plain : log_sum(r->student, r->n, t), taught = log_sum(r->teacher, r->n, t);
    double kl = 0;
    for (int32_t i = 0; i < r->n; i++) {
        const double s = (double)r->student[i] / t - soft, q = (double)r->teacher[i] / t - taught, p = exp(s), pq = exp(q);
        kl += pq > 0 ? pq * (q - s) : 0;
        const double ce = (t == 1 ? p : exp((double)r->student[i] - plain)) - (i == r->target);
        r->grad[i] = (float)(r->scale * ((1 - w) * ce + w * t * (p - pq)));
    }
    return (1 - w) * (plain - target) + w * t * t * kl;
}

struct rows {
    const struct distill *u;
    const struct qr_cross_entropy_args *a;
};

static void row_item(const void *arg, int32_t i, int32_t worker)
{
    const struct rows *rows = arg;
    const struct qr_cross_entropy_args *a = rows->a;
    float *student = a->logits + i * a->stride;
    const struct qr_distill_row r = {.grad = student, .student = student, .teacher = rows->u->logits + (int64_t)i * a->n_cols, .n = a->n_cols,
                                     .target = a->target[i], .weight = rows->u->c->teacher.weight, .temperature = rows->u->c->teacher.temperature,
                                     .scale = (double)a->scale};
    a->loss[i] = qr_distill_row(&r);
}

/* The teacher's logits of the chunk, by the product that serves them; then the loss, row by row. */
static void chunk(void *user, const struct qr_cross_entropy_args *a, int32_t first)
{
    const struct distill *u = user;
    const struct head *h = &u->head;
    const int64_t stride = h->rows.stride[0];
    QR_ASSERT(first + a->n_rows <= h->rows.shape[0] && (size_t)a->n_rows * (size_t)a->n_cols * sizeof(float) <= u->logits_bytes);
    const struct qr_linear_args linear = {.out = u->logits, .x = (const float *)h->rows.data + first * stride, .w = h->w, .norm_w = h->norm->t.data,
                                          .out_stride = a->n_cols, .x_stride = stride, .n_rows = a->n_rows, .n_in = (int32_t)h->rows.shape[1],
                                          .n_out = a->n_cols, .eps = h->eps};
    const struct rows rows = {u, a};
    u->be->k->linear(u->be->queue, &linear);
    qr_backend_run(u->be, row_item, &rows, a->n_rows);
}

static int loss(void *user, struct qr_tape *tape, const struct qr_train_batch *b, float scale, double *losses, struct qr_err *err)
{
    struct distill *u = user;
    qr_model_forward(&u->exec, &b->b);
    qr_tape_loss(tape, b, scale, losses);
    return qr_tape_backward(tape, err);
}

/* ---- the teacher ---- */

static struct qr_tensor keep_head(struct qr_exec *x, const struct qr_tensor *h, const struct qr_head_weights *w, float eps)
{
    struct distill *u = (struct distill *)(void *)((char *)x - offsetof(struct distill, exec));
    QR_ASSERT(h != NULL && w != NULL);
    QR_ASSERT(!w->norm_bias && w->softcap == 0); /* check_teacher */
    u->head = (struct head){.rows = *h, .norm = w->norm, .w = w->head, .eps = eps};
    return *h;
}

/* Of the step arena: what a step without logits takes, in which the rows for the head find room where a layer's were; or them and their step's, if layers
 * are that thin. */
static size_t act_bytes(const struct qr_model_plan *m, int32_t n_tokens)
{
    const size_t rows = (size_t)n_tokens * ((size_t)m->config.n_embd * 2 + (size_t)m->config.head_dim) * sizeof(float) + 4 * 64;
    return m->act_bytes > rows ? m->act_bytes : rows;
}

/* Ids mean the same to both: one vocabulary, and one tokenizer where the teacher brings it. */
static int check_teacher(const struct distill *u, const struct qr_model_config *teacher, const struct qr_model_config *student, struct qr_err *err)
{
    const struct qr_train_config *c = u->c;
    uint64_t own, data;
    struct qr_err none;
    if (teacher->n_vocab != student->n_vocab)
        return qr_err_set(err, QR_E_INVALID, "%s has a vocabulary of %d, expected %d, as the model's (vocab_size)", c->teacher.model, teacher->n_vocab,
                          student->n_vocab);
    if (teacher->layer_norm || teacher->logits_softcap > 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s is a %s, whose head has %s: such a teacher is not computed here", c->teacher.model, teacher->arch_name,
                          teacher->layer_norm ? "a LayerNorm" : "capped logits");
    if (teacher->ctx_max < c->data.sequence)
        return qr_err_set(err, QR_E_USAGE, "%s has a context of %d, expected at least data.sequence, %lld", c->teacher.model, teacher->ctx_max,
                          (long long)c->data.sequence);
    if (qr_data_tokenizer_hash(&own, c->teacher.model, &none) || qr_data_tokenizer_hash(&data, c->data.train, &none) || own == data)
        return 0;
    return qr_err_set(err, QR_E_INVALID, "%s/tokenizer.json (hash %016llx) is not the tokenizer of %s (%016llx)", c->teacher.model, (unsigned long long)own,
                      c->data.train, (unsigned long long)data);
}

static int plan(void *user, struct qr_params *p, struct qr_tape_options *tape, struct qr_train_plan *plan, struct qr_err *err)
{
    struct distill *u = user;
    const struct qr_model_options o = {0};
    struct qr_model_plan m;
    char at[400];
    int rc = qr_model_plan(&m, u->c->teacher.model, p->be, &o, tape->n_tokens_max, 0, err);
    rc = rc ? rc : check_teacher(u, &m.config, &p->config, err);
    if (rc)
        return qr_err_prefix(err, "%s: ", qr_train_config_where(u->c, "teacher.model", at));
    u->n_blocks = (tape->n_tokens_max + QR_TRAIN_BLOCK_TOKENS - 1) / QR_TRAIN_BLOCK_TOKENS + tape->n_seqs_max;
    u->act_bytes = act_bytes(&m, tape->n_tokens_max);
    u->logits_bytes = (size_t)qr_tape_chunk_rows(tape) * (size_t)m.config.n_vocab * sizeof *u->logits;
    u->kv_bytes = m.kv_token_bytes * QR_TRAIN_BLOCK_TOKENS * (size_t)u->n_blocks;
    qr_train_plan_add(plan, "teacher: matrices packed for products", m.weight_bytes);
    qr_train_plan_add(plan, "teacher: activations, a chunk of logits", u->act_bytes + u->kv_bytes + u->logits_bytes);
    return 0;
}

static int begin(void *user, struct qr_params *p, struct qr_tape *tape, struct qr_err *err)
{
    struct distill *u = user;
    const struct qr_model_options o = {0};
    char at[400];
    int rc = qr_model_open(&u->teacher, u->c->teacher.model, p->be, &o, err);
    if (rc)
        return qr_err_prefix(err, "%s: ", qr_train_config_where(u->c, "teacher.model", at));
    u->be = p->be;
    u->act_mem = p->be->mem->alloc(u->act_bytes);
    u->kv_mem = p->be->mem->alloc(u->kv_bytes);
    u->logits = p->be->mem->alloc(u->logits_bytes);
    qr_arena_init_fixed(&u->act, u->act_mem, u->act_bytes);
    u->kv = qr_model_kv_view(u->teacher, u->kv_mem, u->n_blocks, QR_TRAIN_BLOCK_TOKENS);
    QR_ASSERT((size_t)u->n_blocks * qr_kv_block_bytes(&u->kv) <= u->kv_bytes);
    qr_exec_init(&u->exec, u->teacher, p->be, &u->act, &u->kv);
    u->ops = *u->exec.ops;
    u->ops.norm_logits = keep_head;
    u->exec.ops = &u->ops;
    qr_tape_set_loss(tape, chunk, u);
    return 0;
}

static void end(void *user)
{
    struct distill *u = user;
    if (u->be) {
        qr_exec_release(&u->exec);
        u->be->mem->free(u->act_mem);
        u->be->mem->free(u->kv_mem);
        u->be->mem->free(u->logits);
        qr_model_close(u->teacher);
    }
    qr_free(u);
}

int qr_distill_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL && err != NULL);
    QR_ASSERT(qr_distill_wanted(c));
    struct distill *u = qr_alloc(1, sizeof *u);
    u->c = c;
    *out = (struct qr_train_variant){.name = "distill", .parts = true, .user = u, .plan = plan, .begin = begin, .loss = loss, .end = end};
    return 0;
}
