/* Adapters: the gradients are the loss's, the model itself stays, and what was trained is what is saved, merged and served. */
#include "tests/train/world.h"

#include "base/files/map_file.h"
#include "loader/stores/tensor_files.h"
#include "train/variants/lora.h"

/* A world with a model directory `base` to go on from. */
struct ground {
    struct world w;
    char base[200], from[220], data_eval[220];
    struct session s; /* with adapters */
};

static void make_base(struct ground *g, const char *dtype)
{
    struct qr_err err = {0};
    struct session s = session_new(&g->w, false, WITH(dtype), NULL);
    cr_assert_eq(qr_trainer_export(s.t, g->base, &err), 0, "%s", err.msg);
    session_drop(&s);
}

static struct ground ground_new(const char *dtype)
{
    struct ground g = {.w = world_new()};
    snprintf(g.base, sizeof g.base, "%s/base", g.w.dir.path);
    snprintf(g.from, sizeof g.from, "model.from=%s", g.base);
    snprintf(g.data_eval, sizeof g.data_eval, "data.eval=%s", g.w.data);
    make_base(&g, dtype);
    return g;
}

static int try_begin(struct ground *g, const char *dtype, const char *one, bool resume, struct qr_err *err)
{
    const char *const pairs[] = {dtype, g->from, "model.config=", g->data_eval, "eval.every=1", "lora.rank=4", "lora.alpha=8", "optimizer.lr=0.02", one, NULL};
    int rc = try_open(&g->s, &g->w, pairs, NULL, err);
    return rc ? rc : qr_trainer_begin(g->s.t, resume, err);
}

static void begin(struct ground *g, const char *dtype, const char *one, bool resume)
{
    struct qr_err err = {0};
    cr_assert_eq(try_begin(g, dtype, one, resume, &err), 0, "%s", err.msg);
}

static uint64_t hash_file(const char *dir, const char *name)
{
    char path[300];
    struct qr_map_file f;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    const uint64_t h = qr_file_hash(f.data, f.n_bytes);
    qr_map_file_close(&f);
    return h;
}

static double held_out_loss(struct session *s)
{
    double loss;
    int64_t n;
    struct qr_err err = {0};
    cr_assert_eq(qr_trainer_evaluate(s->t, &loss, &n, &err), 0, "%s", err.msg);
    return loss;
}

/* The loss of the first batch with the adapters moved by `by` times the direction (NULL: where they are); gradients are left there. */
static double loss_at(struct session *s, const float *start, const float *direction, double by)
{
    struct qr_params *p = s->t->params;
    struct qr_err err = {0};
    int64_t position = 0;
    double sum = 0;
    for (int32_t k = 0; k < p->n_params; k++)
        for (int64_t i = 0; p->param[k].extra && i < p->param[k].n; i++) {
            const int64_t at = p->param[k].first + i;
            ((float *)p->value)[at] = start[at] + (float)(by * (double)direction[at]);
        }
    s->t->variant.after_step(s->t->variant.user, p);
    qr_params_zero_grad(p);
    cr_assert(qr_feed_next(s->t->feed, &position, &s->t->batch));
    qr_tape_loss(s->t->tape, &s->t->batch, 1.0f / (float)s->t->batch.b.n_logits, s->t->losses);
    cr_assert_eq(qr_tape_backward(s->t->tape, &err), 0, "%s", err.msg);
    s->t->variant.before_step(s->t->variant.user, p);
    for (int32_t i = 0; i < s->t->batch.b.n_logits; i++)
        sum += s->t->losses[i];
    return sum / s->t->batch.b.n_logits;
}

/* The direction is the gradient of the tensors whose names have `which`, its length 1; then the slope along it is the gradient's length. The central
 * difference at h is off by rounding, 2^-24 of 128 losses near 5 and of what is behind them, some 1e-6 / h, and by h^2 / 6 of the third derivative. */
Test(lora, gradients_of_adapters_are_the_slope_of_the_loss)
{
    struct ground g = ground_new("compute.dtype=f32");
    begin(&g, "compute.dtype=f32", "lora.targets=q_proj", false);
    struct qr_params *p = g.s.t->params;
    steps(&g.s, 3); /* B is no longer zero */
    float *start = qr_alloc((size_t)p->n, sizeof *start), *direction = qr_alloc((size_t)p->n, sizeof *direction);
    memcpy(start, p->value, (size_t)p->n * sizeof *start);
    for (int b = 0; b < 2; b++) {
        double squares = 0;
        memset(direction, 0, (size_t)p->n * sizeof *direction);
        loss_at(&g.s, start, direction, 0);
        for (int32_t k = 0; k < p->n_params; k++)
            for (int64_t i = 0; strstr(p->param[k].name, b ? "lora_B" : "lora_A") && i < p->param[k].n; i++) {
                direction[p->param[k].first + i] = ((float *)p->grad)[p->param[k].first + i];
                squares += (double)direction[p->param[k].first + i] * (double)direction[p->param[k].first + i];
            }
        const double length = sqrt(squares), h = 0.02;
        cr_assert(length > 1e-4, "%g", length);
        for (int64_t i = 0; i < p->n; i++)
            direction[i] = (float)(direction[i] / length);
        const double slope = (loss_at(&g.s, start, direction, h) - loss_at(&g.s, start, direction, -h)) / (2 * h);
        cr_assert(fabs(slope - length) < 0.02 * length + 1e-6 / h, "%s: slope %.9g, gradient %.9g", b ? "B" : "A", slope, length);
    }
    qr_free(start), qr_free(direction);
    session_drop(&g.s);
    world_drop(&g.w);
}

static void check_adapter_files(const char *dir)
{
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/" QR_LORA_WEIGHTS, dir);
    cr_assert_eq(qr_safetensors_open(&st, path, &err), 0, "%s", err.msg);
    const struct qr_stored_tensor *a = qr_tensor_files_find(st, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    const struct qr_stored_tensor *b = qr_tensor_files_find(st, "base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight");
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    cr_assert(a && b);
    cr_assert(a->shape[0] == 4 && a->shape[1] == c.n_embd && b->shape[0] == c.n_embd && b->shape[1] == 4);
    cr_assert_eq(qr_tensor_files_count(st), c.n_layers * 4 * 2);
    qr_tensor_files_close(st);
}

Test(lora, the_loss_falls_the_model_stays_and_the_merged_directory_is_what_was_trained)
{
    static const char *const dtypes[] = {"compute.dtype=f32", "compute.dtype=bf16"};
    for (int i = 0; i < 2; i++) {
        struct ground g = ground_new(dtypes[i]);
        struct qr_err err = {0};
        char merged[200], adapter[200], final[200], from[220];
        snprintf(merged, sizeof merged, "%s/merged", g.w.dir.path);
        snprintf(final, sizeof final, "%s/final", g.w.dir.path);
        snprintf(adapter, sizeof adapter, "%s/" QR_LORA_DIR, g.w.out);
        snprintf(from, sizeof from, "model.from=%s", merged);
        const uint64_t base = hash_file(g.base, "model.safetensors");
        struct session plain = session_new(&g.w, false, WITH(dtypes[i], g.from, "model.config=", g.data_eval, "eval.every=1"), NULL);
        begin(&g, dtypes[i], "steps=12", false);
        const double first = held_out_loss(&g.s);
        cr_assert_eq(first, held_out_loss(&plain), "adapters begin as nothing");
        steps(&g.s, 12);
        const double last = held_out_loss(&g.s);
        cr_assert(last < 0.9 * first, "from %g to %g", first, last);
        for (int again = 0; again < 2; again++)
            cr_assert_eq(qr_trainer_finish(g.s.t, final, &err), 0, "%s", err.msg);
        cr_assert_eq(hash_file(g.base, "model.safetensors"), base);
        check_adapter_files(adapter);
        cr_assert_eq(qr_lora_merge(g.base, adapter, merged, NULL, &err), 0, "%s", err.msg);
        cr_assert_eq(hash_file(merged, "model.safetensors"), hash_file(final, "model.safetensors"));
        struct session again = session_new(&g.w, false, WITH(dtypes[i], from, "model.config=", g.data_eval, "eval.every=1"), NULL);
        cr_assert_eq(held_out_loss(&again), last, "%s", dtypes[i]);
        session_drop(&plain), session_drop(&again), session_drop(&g.s);
        world_drop(&g.w);
    }
}

Test(lora, a_resumed_run_equals_an_uninterrupted_one_and_another_base_is_refused)
{
    struct ground g = ground_new("compute.dtype=bf16"), whole = g;
    struct qr_err err = {0};
    char path[QR_PATH_MAX];
    begin(&whole, "compute.dtype=bf16", "steps=12", false);
    begin(&g, "compute.dtype=bf16", "steps=12", false);
    const uint64_t three = steps(&whole.s, 3);
    cr_assert_eq(steps(&g.s, 3), three);
    cr_assert_eq(qr_trainer_save(g.s.t, path, &err), 0, "%s", err.msg);
    session_drop(&g.s);
    begin(&g, "compute.dtype=bf16", "steps=12", true);
    cr_assert_eq(steps(&g.s, 3), steps(&whole.s, 3));
    session_drop(&whole.s), session_drop(&g.s);
    begin(&g, "compute.dtype=bf16", "compute.threads=2", false);
    cr_assert_eq(steps(&g.s, 3), three, "threads show");
    session_drop(&g.s);

    cr_assert_eq(try_begin(&g, "compute.dtype=bf16", "lora.alpha=9", true, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "lora.alpha 9, is not what the run in "), "%s", err.msg);
    session_drop(&g.s);
    cr_assert_eq(try_begin(&g, "compute.dtype=bf16", "lora.rank=5", true, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "lora_A.weight is F32 [4, "), "%s", err.msg);
    session_drop(&g.s);
    cr_assert_eq(try_begin(&g, "compute.dtype=bf16", "lora.targets=query", false, &err), QR_E_USAGE);
    cr_assert_not_null(strstr(err.msg, "lora.targets: 'query' is no matrix of the layers"), "%s", err.msg);
    session_drop(&g.s);
    world_drop(&g.w);
}

Test(lora, adapters_of_another_model_or_kind_are_refused_by_name)
{
    struct ground g = ground_new("compute.dtype=bf16");
    struct qr_err err = {0};
    char adapter[200], other[200], out[200];
    struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    snprintf(adapter, sizeof adapter, "%s/" QR_LORA_DIR, g.w.out);
    snprintf(other, sizeof other, "%s/other", g.w.dir.path);
    snprintf(out, sizeof out, "%s/merged", g.w.dir.path);
    begin(&g, "compute.dtype=bf16", "lora.targets=down_proj", false);
    cr_assert_eq(qr_lora_save(g.w.out, g.s.t->params, g.s.c, &err), 0, "%s", err.msg);
    session_drop(&g.s);

    struct qr_backend *be = open_backend(NULL, 1);
    for (int fewer_layers = 0; fewer_layers < 2; fewer_layers++) {
        struct qr_params *p;
        struct qr_model_config d = c;
        d.n_ffn = fewer_layers ? c.n_ffn : c.n_ffn + 16;
        d.n_layers = fewer_layers ? c.n_layers - 1 : c.n_layers;
        qr_params_init(&p, &d, be, QR_BF16, 0.02, 1);
        const struct qr_checkpoint_source src = {.params = p};
        cr_assert_eq(qr_model_export(other, &src, true, &err), 0, "%s", err.msg);
        qr_params_close(p);
        cr_assert_eq(qr_lora_merge(other, adapter, out, NULL, &err), QR_E_DAMAGED);
        cr_assert_not_null(strstr(err.msg, "/adapter_model.safetensors: tensor base_model.model.model.layers."), "%s", err.msg);
        cr_assert_not_null(strstr(err.msg, fewer_layers ? "belongs to no matrix of " : "lora_A.weight is [4, 112], expected [4, 128] by "), "%s", err.msg);
    }
    qr_backend_close(be);
    static const char *const bad[][2] = {
        {"\"use_dora\": true", "/adapter_config.json: use_dora is set, expected false"},
        {"\"alpha_pattern\": {\"q.*\": 2}", "/adapter_config.json: alpha_pattern \"q.*\", expected names such as q_proj"},
        {"\"modules_to_save\": [\"lm_head\"]", "/adapter_config.json: modules_to_save is not empty"},
        {"\"bias\": \"all\"", "/adapter_config.json: bias is set, expected \"none\""},
        {"\"alora_invocation_tokens\": [7, 9]", "/adapter_config.json: alora_invocation_tokens is not empty"},
        {"\"init_lora_weights\": \"pissa\"", "/adapter_config.json: init_lora_weights is \"pissa\", expected "},
        {"\"peft_type\": \"IA3\"", NULL}, /* twice: no JSON of ours */
    };
    for (int i = 0; i < QR_COUNT(bad); i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, %s}", bad[i][0]);
        put_file(adapter, QR_LORA_CONFIG, text);
        cr_assert_eq(qr_lora_merge(g.base, adapter, out, NULL, &err), bad[i][1] ? QR_E_UNSUPPORTED : QR_E_DAMAGED);
        cr_assert_not_null(strstr(err.msg, bad[i][1] ? bad[i][1] : "/adapter_config.json: "), "%s", err.msg);
    }
    cr_assert_neq(access(out, F_OK), 0);
    world_drop(&g.w);
}
