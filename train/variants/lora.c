/* lora.c - LoRA adapters while they learn. Behind each step the sum W + (alpha / r) B A is computed in f32, rounded and
 * packed as any matrix; the tape's dW is pulled back to dA and dB before the next. So no verb knows of adapters, and
 * merging is the same function. Only A and B move; the model's own values stay. The trainer's thread; rows on the pool.
 */
#include "train/variants/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"

#define STREAM ((uint64_t)1 << 40) /* of the random numbers; weights drawn at random use small ones */
#define LANES 16

/* One matrix and its adapters: indices of parameters. */
struct pair {
    int32_t w, a, b;
    int64_t base;          /* first element in lora.base */
};

struct lora {
    const struct qr_train_config *c; /* borrowed */
    struct pair *pair;     /* owned [n_pairs] */
    int32_t n_pairs;
    float *base, *sum;     /* owned: the matrices as they were [n_base], a row of each thread [n_threads, n_in_max] */
    int64_t n_base, n_in_max;
};

/* ---- arithmetic ---- */

static void make_sum(const struct qr_lora_product *x, int64_t row)
{
    memset(x->sum, 0, (size_t)x->n_in * sizeof *x->sum);
    for (int64_t k = 0; k < x->rank; k++) {
        const float b = x->b[row * x->rank + k], *a = x->a + k * x->n_in;
        for (int64_t i = 0; i < x->n_in; i++)
            x->sum[i] += b * a[i];
    }
    for (int64_t i = 0; i < x->n_in; i++)
        x->sum[i] = x->base[row * x->n_in + i] + x->scale * x->sum[i];
}

void qr_lora_add(const struct qr_lora_product *x)
{
    QR_ASSERT(x != NULL && x->out != NULL && x->sum != NULL);
    QR_ASSERT(x->n_out > 0 && x->n_in > 0 && x->rank > 0);
    for (int64_t row = 0; row < x->n_out; row++) {
        make_sum(x, row);
        memcpy(x->out + row * x->n_in, x->sum, (size_t)x->n_in * sizeof *x->sum);
    }
}

static float *value_of(const struct qr_params *p, int32_t k)
{
    return (float *)p->value + p->param[k].first;
}

static float *grad_of(const struct qr_params *p, int32_t k)
{
    return (float *)p->grad + p->param[k].first;
}

static struct qr_lora_product product_of(const struct lora *l, const struct qr_params *p, const struct pair *j, int32_t worker)
{
    const struct qr_param *w = &p->param[j->w];
    return (struct qr_lora_product){.out = value_of(p, j->w), .sum = l->sum + worker * l->n_in_max, .base = l->base + j->base, .a = value_of(p, j->a),
                                    .b = value_of(p, j->b), .scale = (float)(l->c->lora.alpha / (double)l->c->lora.rank), .n_out = w->shape[0],
                                    .n_in = w->shape[1], .rank = l->c->lora.rank};
}

/* In lanes, whose order is the same for every row. */
static float dot(const float *x, const float *y, int64_t n)
{
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        sum += x[i] * y[i];
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

/* dB and dA of one matrix from its dW. */
static void pull_back(const struct qr_lora_product *x, const float *dw, float *da, float *db)
{
    for (int64_t row = 0; row < x->n_out; row++) {
        const float *g = dw + row * x->n_in;
        for (int64_t k = 0; k < x->rank; k++) {
            const float b = x->scale * x->b[row * x->rank + k];
            db[row * x->rank + k] += x->scale * dot(g, x->a + k * x->n_in, x->n_in);
            for (int64_t i = 0; i < x->n_in; i++)
                da[k * x->n_in + i] += b * g[i];
        }
    }
}

/* ---- the variant ---- */

/* Whether the matrix is the one called `target` of a layer: "model.layers.3.self_attn.TARGET.weight". */
static bool is_target(const struct qr_param *t, const char *target)
{
    const size_t n = strlen(t->name), m = strlen(target), end = strlen(".weight");
    if (t->extra || !qr_param_is_layer_matrix(t) || n < m + end + 1)
        return false;
    const char *at = t->name + n - end - m;
    return at[-1] == '.' && strncmp(at, target, m) == 0 && strcmp(at + m, ".weight") == 0;
}

static struct qr_str_list targets_of(const struct qr_train_config *c)
{
    static const char *usual[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    return c->lora.targets.n ? c->lora.targets : (struct qr_str_list){.item = usual, .n = QR_COUNT(usual)};
}

static int check_targets(const struct qr_train_config *c, const struct qr_params *p, struct qr_err *err)
{
    const struct qr_str_list list = targets_of(c);
    char at[400];
    for (int32_t i = 0; i < list.n; i++) {
        bool found = false;
        for (int32_t k = 0; k < p->n_params; k++)
            found |= is_target(&p->param[k], list.item[i]);
        if (!found)
            return qr_err_set(err, QR_E_USAGE, "%s: '%s' is no matrix of the layers; expected names such as q_proj, k_proj, v_proj, o_proj, gate_proj, "
                              "up_proj, down_proj", qr_train_config_where(c, "lora.targets", at), list.item[i]);
    }
    return 0;
}

static void add_adapter(struct qr_param *out, const struct qr_param *w, const char *behind, int64_t rows, int64_t cols)
{
    *out = (struct qr_param){.shape = {rows, cols}, .n_dims = 2, .decays = true};
    qr_lora_name(out->name, w->name, behind);
}

/* Freezes the model and adds the adapters, in the order of the matrices. */
static int plan(void *user, struct qr_params *p, struct qr_tape_options *tape, struct qr_train_plan *plan, struct qr_err *err)
{
    struct lora *l = user;
    const struct qr_str_list list = targets_of(l->c);
    const int64_t r = l->c->lora.rank;
    int rc = check_targets(l->c, p, err);
    if (rc)
        return rc;
    struct qr_param *more = qr_alloc((size_t)p->n_params * 2, sizeof *more);
    l->pair = qr_alloc((size_t)p->n_params, sizeof *l->pair);
    for (int32_t k = 0; k < p->n_params; k++) {
        const struct qr_param *w = &p->param[k];
        bool wanted = false;
        for (int32_t i = 0; i < list.n; i++)
            wanted |= is_target(w, list.item[i]);
        p->param[k].frozen = true;
        if (!wanted)
            continue;
        const int32_t a = 2 * l->n_pairs;
        l->pair[l->n_pairs++] = (struct pair){.w = k, .a = p->n_params + a, .b = p->n_params + a + 1, .base = l->n_base};
        add_adapter(&more[a], w, QR_LORA_A, r, w->shape[1]);
        add_adapter(&more[a + 1], w, QR_LORA_B, w->shape[0], r);
        l->n_base += w->n;
        l->n_in_max = w->shape[1] > l->n_in_max ? w->shape[1] : l->n_in_max;
    }
    qr_params_extend(p, more, 2 * l->n_pairs);
    qr_free(more);
    qr_train_plan_add(plan, "matrices without their adapters", (size_t)(l->n_base + p->be->n_threads * l->n_in_max) * sizeof(float));
    return 0;
}

static void fresh(void *user, struct qr_params *p)
{
    struct lora *l = user;
    QR_ASSERT(!l->base && l->n_pairs > 0);
    l->base = qr_alloc((size_t)l->n_base, sizeof *l->base);
    l->sum = qr_alloc((size_t)(p->be->n_threads * l->n_in_max), sizeof *l->sum);
    for (int32_t k = 0; k < l->n_pairs; k++) {
        const struct pair *j = &l->pair[k];
        const struct qr_param *a = &p->param[j->a];
        const double most = 1 / sqrt((double)a->shape[1]);
        memcpy(l->base + j->base, value_of(p, j->w), (size_t)p->param[j->w].n * sizeof(float));
        for (int64_t i = 0; i < a->n; i++)
            value_of(p, j->a)[i] = (float)(most * (2 * qr_rng_unit((uint64_t)l->c->seed, STREAM + (uint64_t)k, (uint64_t)i) - 1));
    }
}

/* The sums that the checkpoint holds must be those of this model: else every later sum would jump. Every row is compared. */
static int check_sums(void *user, struct qr_params *p, struct qr_tape *tape, struct qr_err *err)
{
    struct lora *l = user;
    for (int32_t k = 0; k < l->n_pairs; k++) {
        const struct qr_lora_product x = product_of(l, p, &l->pair[k], 0);
        for (int64_t i = 0; i < x.n_out * x.n_in; i++) {
            if (i % x.n_in == 0)
                make_sum(&x, i / x.n_in);
            if (x.out[i] != x.sum[i % x.n_in])
                return qr_err_set(err, QR_E_INVALID, "%s, with lora.alpha %g, is not what the run in %s began with: %s, number %lld, with its adapters is "
                                  "%.9g, expected %.9g", l->c->model.from, l->c->lora.alpha, l->c->save.out, p->param[l->pair[k].w].name, (long long)i,
                                  (double)x.sum[i % x.n_in], (double)x.out[i]);
        }
    }
    return 0;
}

/* What threads share: a matrix is one item. */
struct work {
    const struct lora *l;
    const struct qr_params *p;
};

static void differentiate(const void *arg, int32_t item, int32_t worker)
{
    const struct work *work = arg;
    const struct pair *j = &work->l->pair[item];
    const struct qr_lora_product x = product_of(work->l, work->p, j, worker);
    pull_back(&x, grad_of(work->p, j->w), grad_of(work->p, j->a), grad_of(work->p, j->b));
}

static void before_step(void *user, struct qr_params *p)
{
    const struct lora *l = user;
    const struct work work = {l, p};
    qr_backend_run(p->be, differentiate, &work, l->n_pairs);
}

static void add(const void *arg, int32_t item, int32_t worker)
{
    const struct work *work = arg;
    const struct qr_params *p = work->p;
    const struct qr_lora_product x = product_of(work->l, p, &work->l->pair[item], worker);
    const struct qr_param *w = &p->param[work->l->pair[item].w];
    qr_lora_add(&x);
    for (int64_t i = 0; p->half && i < w->n; i++)
        p->half[w->first + i] = qr_f32_to_bf16(x.out[i]);
}

static void after_step(void *user, struct qr_params *p)
{
    const struct lora *l = user;
    const struct work work = {l, p};
    qr_backend_run(p->be, add, &work, l->n_pairs);
    qr_params_pack(p);
}

static int finish(void *user, const struct qr_params *p, const char *run_dir, struct qr_err *err)
{
    const struct lora *l = user;
    return qr_lora_save(run_dir, p, l->c, err);
}

static void end(void *user)
{
    struct lora *l = user;
    qr_free(l->pair);
    qr_free(l->base);
    qr_free(l->sum);
    qr_free(l);
}

bool qr_lora_wanted(const struct qr_train_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->lora.rank >= 0);
    return c->lora.rank > 0;
}

int qr_lora_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(err != NULL && qr_lora_wanted(c));
    char at[400];
    if (!c->model.from)
        return qr_err_set(err, QR_E_USAGE, "%s: model.from is not set; adapters need a model directory to go on from",
                          qr_train_config_where(c, "lora.rank", at));
    if (c->optimizer.kind != QR_OPTIMIZER_ADAMW)
        return qr_err_set(err, QR_E_USAGE, "%s: muon, expected adamw with lora.rank", qr_train_config_where(c, "optimizer.kind", at));
    struct lora *l = qr_alloc(1, sizeof *l);
    l->c = c;
    *out = (struct qr_train_variant){.name = "lora", .user = l, .plan = plan, .fresh = fresh, .begin = check_sums, .before_step = before_step,
                                     .after_step = after_step, .finish = finish, .end = end};
    return 0;
}
