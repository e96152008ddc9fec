/* The trainer as an object: a run is a function of settings, data and starting point, however it is cut; what cannot be trained is refused by name. */
#include "tests/train/world.h"

#include "base/half.h"
#include "train/variants/distill.h"
#include "train/log.h"
#include "train/plot.h"
#include "train/variants/prune.h"

Test(trainer, the_loss_falls_and_the_same_seed_gives_the_same_bytes)
{
    struct world w = world_new();
    struct session s = session_new(&w, false, WITH("compute.dtype=f32"), NULL);
    const double first = step(&s);
    double last = first;
    for (int i = 0; i < 11; i++)
        last = step(&s);
    cr_assert(last < 0.7 * first, "from %g to %g", first, last);
    cr_assert_eq(s.t->state.n_tokens, 12 * 128);
    session_drop(&s);
    const uint64_t in_order = run_of(&w, WITH("data.shuffle=false"), NULL, N_DOCS / 4 + 1);
    cr_assert_eq(run_of(&w, WITH("data.shuffle=false"), NULL, N_DOCS / 4 + 1), in_order, "data in order begins anew at its end");
    const uint64_t a = run_of(&w, WITH("seed=7"), NULL, 3);
    cr_assert_eq(run_of(&w, WITH("seed=7"), NULL, 3), a);
    cr_assert_eq(run_of(&w, WITH("seed=7", "compute.threads=2"), NULL, 3), a, "threads show");
    cr_assert_neq(run_of(&w, WITH("seed=8"), NULL, 3), a);
    world_drop(&w);
}

Test(trainer, four_micro_batches_of_one_piece_are_one_batch_of_four)
{
    struct world w = world_new();
    char tied[140], untied[140];
    snprintf(tied, sizeof tied, "model.config=%s/tied.json", w.dir.path);
    snprintf(untied, sizeof untied, "model.config=%s", w.config);
    for (int k = 0; k < 4; k++) {
        const char *dtype = k % 2 ? "compute.dtype=f32" : "compute.dtype=bf16", *model = k < 2 ? untied : tied;
        cr_assert_eq(run_of(&w, WITH(dtype, model, "batch.tokens=32", "batch.sequences=1", "batch.micro=4"), NULL, 3), run_of(&w, WITH(dtype, model), NULL, 3),
                     "%s, %s", dtype, model);
    }
    world_drop(&w);
}

Test(trainer, a_teachers_and_a_students_logits_come_in_chunks_of_rows_that_do_not_show)
{
    struct world w = world_new();
    char model[200], teacher[220];
    struct qr_err err = {0};
    snprintf(model, sizeof model, "%s/teacher", w.dir.path);
    snprintf(teacher, sizeof teacher, "teacher.model=%s", model);
    struct session s = session_new(&w, false, WITH("seed=5"), NULL);
    steps(&s, 3);
    cr_assert_eq(qr_trainer_export(s.t, model, &err), 0, "%s", err.msg);
    session_drop(&s);
    for (int f32 = 0; f32 < 2; f32++) {
        const char *const dtype = f32 ? "compute.dtype=f32" : "compute.dtype=bf16";
        /* 320 rows are two chunks. */
        const uint64_t whole = run_of(&w, WITH(dtype, teacher, "teacher.temperature=2", "batch.tokens=320", "batch.sequences=10"), NULL, 2);
        cr_assert_eq(run_of(&w, WITH(dtype, teacher, "teacher.temperature=2", "batch.tokens=32", "batch.sequences=1", "batch.micro=10"), NULL, 2), whole, "%s",
                     dtype);
        cr_assert_neq(run_of(&w, WITH(dtype, "batch.tokens=320", "batch.sequences=10"), NULL, 2), whole, "%s: the teacher is not heard", dtype);
    }
    world_drop(&w);
}

/* What a model is to learn from itself is nothing at all, if trainer and server compute the same logits. */
Test(trainer, a_granite_that_divides_its_logits_learns_and_is_its_own_teacher_without_any_loss)
{
    struct world w = world_new();
    struct qr_model_config c = tiny_config(QR_ARCH_GRANITE);
    struct qr_err err = {0};
    char path[200], from[220], teacher[220];
    snprintf(path, sizeof path, "%s/granite", w.dir.path);
    snprintf(from, sizeof from, "model.from=%s", path);
    snprintf(teacher, sizeof teacher, "teacher.model=%s", path);
    for (int k = 0; k < 4; k++) {
        const char *const dtype = k % 2 ? "compute.dtype=f32" : "compute.dtype=bf16";
        struct qr_buf text = {0};
        c.logits_divisor = k < 2 ? 8 : 3;
        qr_hf_config_write(&text, &c);
        put_file(w.dir.path, "config.json", text.data);
        qr_buf_release(&text);
        struct session s = session_new(&w, false, WITH(dtype), NULL);
        const double first = step(&s);
        steps(&s, 10);
        const double last = step(&s);
        cr_assert(last < 0.95 * first, "divided by %g, %s: from %g to %g", (double)c.logits_divisor, dtype, first, last);
        cr_assert_eq(qr_trainer_export(s.t, path, &err), 0, "%s", err.msg);
        session_drop(&s);
        s = session_new(&w, false, WITH("model.config=", from, teacher, "teacher.weight=1", dtype), NULL);
        cr_assert_eq(step(&s), 0, "divided by %g, %s", (double)c.logits_divisor, dtype);
        session_drop(&s);
    }
    world_drop(&w);
}

Test(trainer, recomputation_takes_memory_away_and_changes_no_bit)
{
    struct world w = world_new();
    struct session none = session_new(&w, false, NULL, NULL), full = session_new(&w, false, WITH("compute.recompute=full"), NULL);
    cr_assert(full.t->plan.total < none.t->plan.total);
    const uint64_t a = steps(&none, 3);
    cr_assert_eq(steps(&full, 3), a);
    cr_assert_eq(run_of(&w, WITH("compute.recompute=selective"), NULL, 3), a);
    session_drop(&none), session_drop(&full);
    world_drop(&w);
}

Test(trainer, an_interrupted_and_resumed_run_equals_an_uninterrupted_one)
{
    struct world w = world_new();
    struct qr_err err = {0};
    char path[QR_PATH_MAX];
    struct session whole = session_new(&w, false, NULL, NULL), first = session_new(&w, false, NULL, NULL);
    steps(&whole, 4), steps(&first, 4);
    cr_assert_eq(qr_trainer_save(first.t, path, &err), 0, "%s", err.msg);
    session_drop(&first);
    struct session second = session_new(&w, true, NULL, NULL);
    cr_assert_eq(second.t->state.step, 4);
    cr_assert_eq(steps(&second, 4), steps(&whole, 4));
    session_drop(&whole), session_drop(&second);

    struct session other;
    cr_assert_eq(try_open(&other, &w, WITH("seed=2"), NULL, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_trainer_begin(other.t, true, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "--set seed: 2, but the run in "), "%s", err.msg);
    session_drop(&other);
    cr_assert_eq(try_open(&other, &w, WITH("data.sequence=16"), NULL, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_trainer_begin(other.t, true, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "data.sequence 16, is not what the run in "), "%s", err.msg);
    session_drop(&other);
    world_drop(&w);
}

Test(trainer, frozen_tensors_stay_as_they_are)
{
    struct world w = world_new();
    struct session s = session_new(&w, false, WITH("model.freeze=model.layers.0.", "model.freeze=model.embed"), NULL);
    const struct qr_params *p = s.t->params;
    float *before = qr_alloc((size_t)p->n, sizeof *before);
    memcpy(before, p->value, (size_t)p->n * sizeof *before);
    steps(&s, 2);
    for (int32_t k = 0; k < p->n_params; k++) {
        const struct qr_param *t = &p->param[k];
        const bool same = memcmp(before + t->first, (float *)p->value + t->first, (size_t)t->n * sizeof *before) == 0;
        const bool frozen = strncmp(t->name, "model.layers.0.", 15) == 0 || strncmp(t->name, "model.embed", 11) == 0;
        cr_assert_eq(same, frozen, "%s", t->name);
    }
    qr_free(before);
    session_drop(&s);
    world_drop(&w);
}

/* Makes a number of a tensor `value` and takes a step, which must fail with this in its message, and change nothing else. */
static void check_bad(const struct world *w, const char *tensor, float value, const char *message)
{
    struct session s = session_new(w, false, WITH("compute.dtype=f32"), NULL);
    struct qr_params *p = s.t->params;
    struct qr_train_step out;
    struct qr_err err = {0};
    const struct qr_param *t = qr_params_find(p, tensor);
    ((float *)p->value)[t->first + 3] = value;
    qr_params_pack(p);
    cr_assert_eq(qr_trainer_step(s.t, &out, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, message), "%s", err.msg);
    cr_assert_eq(s.t->state.step, 0);
    cr_assert_eq(s.t->state.position, 0);
    session_drop(&s);
}

Test(trainer, the_first_tensor_that_is_not_finite_is_named)
{
    struct world w = world_new();
    check_bad(&w, "model.layers.1.mlp.up_proj.weight", NAN,
              "step 1: the loss is nan; the first tensor that is not finite: model.layers.1.mlp.up_proj.weight, number 3.");
    /* Nearly the largest float there is, times what a gated unit gives: infinity in some row. */
    check_bad(&w, "model.layers.1.mlp.down_proj.weight", 3e38f, "the output of linear with model.layers.1.mlp.down_proj.weight in layer 1, row ");
    world_drop(&w);
}

Test(trainer, settings_and_files_that_do_not_fit_are_refused_by_name)
{
    struct world w = world_new();
    char other[120], from[140];
    snprintf(other, sizeof other, "data.train=%s/other", w.dir.path);
    snprintf(from, sizeof from, "model.tokenizer=%s", w.data);
    make_data(other + strlen("data.train="), 300, "{\"other\": 1}");
    const struct {
        const char *const *pairs;
        enum qr_code code;
        const char *message;
    } bad[] = {
        {WITH("data.train=/nowhere"), QR_E_NOT_FOUND, "--set data.train: '/nowhere' holds no prepared data"},
        {WITH("model.config=/nowhere.json"), QR_E_NOT_FOUND, "--set model.config: "},
        {WITH("model.from=/nowhere"), QR_E_USAGE, "--set model.config: model.from is set, too; expected one of the two"},
        {WITH("batch.tokens=16"), QR_E_USAGE, "--set batch.tokens: 16 is less than data.sequence, 32: a piece would not fit"},
        {WITH("data.sequence=600", "batch.tokens=600"), QR_E_USAGE, "--set data.sequence: 600 is more than the model's context, 512 (max_position_embeddings)"},
        {WITH("sample.every=1"), QR_E_USAGE, "--set sample.every: sample.prompts is empty; expected texts to go on from"},
        {WITH("model.freeze=layers"), QR_E_USAGE,
         "--set model.freeze: 'layers' is the beginning of no tensor's name; the first is 'model.embed_tokens.weight'"},
        {WITH("optimizer.lr=-1"), QR_E_USAGE, "--set optimizer.lr must be from 0 to"},
        {WITH(other), QR_E_INVALID, "has ids up to 299, the model's vocabulary (vocab_size) is 256"},
        {WITH("compute.isa=mmx"), QR_E_USAGE, "mmx"},
        {WITH("prune.kind=2:4", "prune.fraction=0.6"), QR_E_USAGE, "--set prune.fraction: 0.6, but prune.kind 2:4 takes two weights of every four: 0.5"},
        {WITH("prune.kind=2:4", "quantize.type=int8"), QR_E_USAGE, "--set prune.kind: quantize.type is set, too; expected one kind of training at a time"},
        {WITH("quantize.type=int8", "compute.dtype=f32"), QR_E_USAGE, "--set compute.dtype: f32, expected bf16 with quantize.type"},
        {WITH("prune.kind=2:4", "model.freeze=model.layers."), QR_E_USAGE, "prune.kind: every matrix of the layers is frozen (model.freeze)"},
    };
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct session s;
        struct qr_err err = {0};
        const int rc = try_open(&s, &w, bad[i].pairs, NULL, &err);
        cr_assert_eq(rc, bad[i].code, "%s: %d", err.msg, rc);
        cr_assert_not_null(strstr(err.msg, bad[i].message), "found: %s\nexpected: %s", err.msg, bad[i].message);
        session_drop(&s);
    }
    struct session s;
    struct qr_err err = {0};
    put_file(w.data, "tokenizer.json", "{\"changed\": 1}");
    cr_assert_eq(try_open(&s, &w, NULL, NULL, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "was prepared with another tokenizer (data.json: hash "), "%s", err.msg);
    session_drop(&s);
    world_drop(&w);
}

Test(trainer, a_plan_that_does_not_fit_names_settings_that_would)
{
    struct world w = world_new();
    struct session s;
    struct qr_err err = {0};
    cr_assert_eq(try_open(&s, &w, NULL, NULL, &err), 0, "%s", err.msg);
    const size_t total = s.t->plan.total;
    cr_assert_eq(qr_trainer_check_room(s.t, (int64_t)total, &err), 0);
    cr_assert_eq(qr_trainer_check_room(s.t, (int64_t)total - 1, &err), QR_E_NO_ROOM);
    cr_assert_not_null(strstr(err.msg, "what would fit: batch.tokens=64 batch.micro=2 ("), "%s", err.msg);
    cr_assert_not_null(strstr(err.msg, ", or compute.recompute=full ("), "%s", err.msg);
    cr_assert_eq(qr_trainer_check_room(s.t, 4096, &err), QR_E_NO_ROOM);
    cr_assert_not_null(strstr(err.msg, "a smaller model is needed"), "%s", err.msg);
    cr_assert_eq(qr_trainer_begin(s.t, false, &err), 0, "%s", err.msg);
    const struct qr_trainer *t = s.t;
    cr_assert_eq(qr_params_bytes(t->params) + qr_optim_bytes(t->params, QR_OPTIMIZER_ADAMW, NULL) + qr_tape_memory(t->tape)->total, total,
                 "the plan is not what is allocated");
    session_drop(&s);
    world_drop(&w);
}

/* A variant that computes what plain training does, and counts. */
struct count {
    int begin, loss, before, after, end;
};

static int count_begin(void *user, struct qr_params *p, struct qr_tape *t, struct qr_err *err)
{
    (void)p, (void)t, (void)err;
    return ((struct count *)user)->begin++ * 0;
}

static int count_loss(void *user, struct qr_tape *t, const struct qr_train_batch *b, float scale, double *losses, struct qr_err *err)
{
    ((struct count *)user)->loss++;
    qr_tape_loss(t, b, scale, losses);
    return qr_tape_backward(t, err);
}

static void count_before(void *user, struct qr_params *p)
{
    (void)p;
    ((struct count *)user)->before++;
}

static void count_after(void *user, struct qr_params *p)
{
    (void)p;
    ((struct count *)user)->after++;
}

static void count_end(void *user)
{
    ((struct count *)user)->end++;
}

Test(trainer, a_variant_is_called_around_every_step)
{
    struct world w = world_new();
    struct count n = {0};
    const struct qr_train_variant v = {.name = "count", .user = &n, .begin = count_begin, .loss = count_loss, .before_step = count_before,
                                       .after_step = count_after, .end = count_end};
    cr_assert_eq(run_of(&w, WITH("batch.micro=2"), &v, 3), run_of(&w, WITH("batch.micro=2"), NULL, 3));
    cr_assert(n.begin == 1 && n.loss == 6 && n.before == 3 && n.after == 3 && n.end == 1);
    world_drop(&w);
}

static int32_t count_lines(const char *dir, const char *name, const char *with)
{
    char path[300], line[1000];
    int32_t n = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    while (fgets(line, sizeof line, f))
        n += strstr(line, with) != NULL;
    fclose(f);
    return n;
}

Test(trainer, a_resumed_log_has_every_step_once)
{
    struct world w = world_new();
    struct qr_err err = {0};
    struct qr_train_log log;
    for (int again = 0; again < 2; again++) {
        cr_assert_eq(qr_train_log_open(&log, w.out, again ? 4 : -1, &err), 0, "%s", err.msg);
        for (int64_t i = again ? 5 : 0; i < 8; i++) {
            const struct qr_train_row row = {.step = i, .n_tokens = 10, .loss = i ? 5.5 - (double)i / 3 : NAN, .eval_loss = i % 4 ? NAN : 5, .norm = 1,
                                             .lr = 0.1, .tokens_s = NAN, .peak_share = NAN, .seconds = 1, .waited = NAN};
            cr_assert_eq(qr_train_log_row(&log, &row, &err), 0, "%s", err.msg);
            cr_assert_eq(qr_train_log_sample(&log, i, "a\n", "\"b", &err), 0, "%s", err.msg);
        }
        if (!again)
            fputs("7,10,3.1", log.csv), fputs("{\"step\":4,\"prompt\":\"cut", log.jsonl); /* as a killed process leaves them */
        qr_train_log_close(&log);
    }
    cr_assert_eq(count_lines(w.out, "log.csv", ","), 9);
    cr_assert_eq(count_lines(w.out, "log.csv", "7,10,3.1"), 1);
    cr_assert_eq(count_lines(w.out, "log.jsonl", "\"prompt\":\"a\\n\",\"text\":\"\\\"b\"}"), 8);
    cr_assert_eq(count_lines(w.out, "log.jsonl", "{\"step\":"), 16);
    cr_assert_eq(qr_train_plot(w.out, "a <run>", true, &err), 0, "%s", err.msg);
    cr_assert_eq(count_lines(w.out, "loss.html", "a &lt;run&gt;"), 2);
    cr_assert_eq(count_lines(w.out, "loss.html", "<figure>"), 5);
    world_drop(&w);
}

Test(trainer, a_long_log_is_plotted_and_its_least_and_last_are_exact)
{
    struct world w = world_new();
    struct qr_err err = {0};
    struct qr_train_log log;
    const int64_t n = 40001;
    cr_assert_eq(qr_train_log_open(&log, w.out, -1, &err), 0, "%s", err.msg);
    for (int64_t i = 0; i < n; i++)
        fprintf(log.csv, "%lld,10,%.4f,%s,1,0.1,20,,0.5\n", (long long)i, 4 - (double)i * 1e-5, i == 20003 ? "1.2345" : i % 7 ? "" : "3.5");
    qr_train_log_close(&log);
    cr_assert_eq(qr_train_plot(w.out, "long", false, &err), 0, "%s", err.msg);
    static const char *const cards[] = {"<b>40000</b><span>steps", "<b>3.6000</b><span>loss now", "<b>3.5000</b><span>held-out loss now",
                                        "<b>1.2345</b><span>held-out loss, least", "<b>400010</b><span>tokens", "<b>20</b><span>tokens/s"};
    for (int i = 0; i < QR_COUNT(cards); i++)
        cr_assert_eq(count_lines(w.out, "loss.html", cards[i]), 1, "%s", cards[i]);
    world_drop(&w);
}

/* Whether a layer's matrix has the zeros asked for, as value and as what is computed with, and every moment there is 0. */
static void check_pruned(const struct qr_trainer *t, bool two_of_four)
{
    const float *value = t->params->value, *m = t->optim.m, *v = t->optim.v;
    for (int32_t k = 0; k < t->params->n_params; k++) {
        const struct qr_param *w = &t->params->param[k];
        int64_t n = 0;
        for (int64_t i = 0; i < w->n; i++) {
            const int64_t at = w->first + i;
            const bool zero = value[at] == 0;
            n += zero;
            cr_assert(!zero || !qr_param_is_layer_matrix(w) || (t->params->half[at] == 0 && m[at] == 0 && v[at] == 0), "%s %lld", w->name, (long long)i);
            if (two_of_four && i % 4 == 3 && qr_param_is_layer_matrix(w))
                cr_assert_eq(n, (i + 1) / 2, "%s %lld", w->name, (long long)i);
        }
        if (qr_param_is_layer_matrix(w))
            cr_assert_eq(n, two_of_four ? w->n / 2 : (int64_t)(0.75 * (double)w->n), "%s", w->name);
        else if (w->n_dims == 2)
            cr_assert_eq(n, 0, "%s", w->name);
    }
}

Test(trainer, what_is_pruned_stays_exactly_zero_and_a_resumed_run_knows_its_masks)
{
    struct world w = world_new();
    for (int i = 0; i < 3; i++) {
        const bool fours = i == 0;
        const char *kind = fours ? "prune.kind=2:4" : "prune.kind=unstructured", *fraction = fours ? "prune.fraction=0.5" : "prune.fraction=0.75";
        const char *optimizer = i == 2 ? "optimizer.kind=muon" : "optimizer.kind=adamw";
        struct session whole = session_new(&w, false, WITH(kind, fraction, optimizer), NULL);
        struct session first = session_new(&w, false, WITH(kind, fraction, optimizer), NULL);
        char path[QR_PATH_MAX];
        struct qr_err err = {0};
        check_pruned(whole.t, fours);
        const double before = step(&whole);
        step(&first);
        steps(&whole, 3), steps(&first, 3);
        check_pruned(whole.t, fours);
        cr_assert_eq(qr_trainer_save(first.t, path, &err), 0, "%s", err.msg);
        session_drop(&first);
        first = session_new(&w, true, WITH(kind, fraction, optimizer), NULL);
        cr_assert_eq(steps(&first, 3), steps(&whole, 3), "the resumed run differs");
        check_pruned(first.t, fours);
        const double after = step(&first);
        cr_assert(after < 0.9 * before, "from %g to %g", before, after);
        session_drop(&whole), session_drop(&first);
    }
    struct session other;
    struct qr_err err = {0};
    cr_assert_eq(try_open(&other, &w, WITH("prune.kind=unstructured", "prune.fraction=0.8", "optimizer.kind=muon"), NULL, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_trainer_begin(other.t, true, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "the checkpoint has weights that are not 0 where this run prunes"), "%s", err.msg);
    session_drop(&other);
    world_drop(&w);
}

Test(trainer, the_smallest_magnitudes_are_pruned_the_first_of_equal_ones)
{
    const float w[10] = {3, -1, 2, 1, -0.0f, 1, 1e-42f, -5, INFINITY, 1};
    static const uint16_t want[11] = {0, 0x010, 0x050, 0x052, 0x05a, 0x07a, 0x27a, 0x27e, 0x27f, 0x2ff, 0x3ff};
    for (int n = 0; n <= 10; n++) {
        uint8_t mask[3] = {0};
        qr_prune_smallest(mask, 3, w, 10, n);
        const int found = (mask[0] | mask[1] << 8) >> 3;
        cr_assert_eq(found, want[n], "%d: found %x, expected %x", n, (unsigned)found, want[n]);
    }
}

/* The rows of a matrix as products of one weight with 1 give them, against those that gradients go back through. */
static void check_seen(const struct qr_trainer *t, const struct qr_weight *w)
{
    const int32_t n_out = (int32_t)w->t.shape[0], n_in = (int32_t)w->t.shape[1];
    float *x = qr_alloc((size_t)n_in, sizeof *x), *y = qr_alloc((size_t)n_out, sizeof *y);
    const uint16_t *seen = w->t.data;
    for (int32_t i = 0; i < n_in; i++) {
        const struct qr_linear_args a = {.out = y, .x = x, .w = w, .out_stride = n_out, .x_stride = n_in, .n_rows = 1, .n_in = n_in, .n_out = n_out};
        x[i] = 1;
        t->be->k->linear(t->be->queue, &a);
        x[i] = 0;
        for (int32_t o = 0; o < n_out; o++) {
            const double found = (double)qr_bf16_to_f32(seen[(int64_t)o * n_in + i]), want = (double)y[o];
            /* One rounding to bf16 (8 bits of precision): 2^-8; three of f32 in the product: less than another 2^-20. */
            cr_assert(fabs(found - want) <= fabs(want) * (ldexp(1, -8) + ldexp(1, -20)), "[%d, %d]: %g, expected %g", o, i, found, want);
        }
    }
    qr_free(x), qr_free(y);
}

Test(trainer, a_model_learns_with_rounded_weights_as_its_products_see_them)
{
    static const char *const type[] = {"quantize.type=int8", "quantize.type=int4", "quantize.type=int8-g64", "quantize.type=w4a16"};
    struct world w = world_new();
    for (int i = 0; i < QR_COUNT(type); i++) {
        struct session whole = session_new(&w, false, WITH(type[i]), NULL), first = session_new(&w, false, WITH(type[i]), NULL);
        struct qr_err err = {0};
        char path[QR_PATH_MAX];
        const struct qr_trainer *t = whole.t;
        cr_assert_eq(qr_params_bytes(t->params) + qr_optim_bytes(t->params, QR_OPTIMIZER_ADAMW, NULL) + qr_tape_memory(t->tape)->total, t->plan.total,
                     "not as planned");
        const double before = step(&whole);
        step(&first);
        steps(&whole, 3), steps(&first, 3);
        cr_assert_eq(qr_trainer_save(first.t, path, &err), 0, "%s", err.msg);
        session_drop(&first);
        first = session_new(&w, true, WITH(type[i]), NULL);
        cr_assert_eq(steps(&first, 4), steps(&whole, 4), "the resumed run differs");
        check_seen(t, &t->params->weights.layer[1].qkv);
        check_seen(t, &t->params->weights.layer[0].down);
        check_seen(t, &t->params->weights.head);
        const double after = step(&first);
        cr_assert(after < 0.9 * before, "%s: from %g to %g", type[i], before, after);
        session_drop(&whole), session_drop(&first);
    }
    world_drop(&w);
}

Test(trainer, the_gradient_of_a_taught_row_is_that_of_its_loss)
{
    enum { N = 9 };
    const double h = ldexp(1, -7), pairs[][2] = {{0, 1}, {1, 1}, {0.5, 1}, {1, 3}, {0.25, 2}};
    struct qr_rng rng = {.seed = 77};
    float z[N], taught[N], grad[N], ignored[N];
    for (int i = 0; i < N; i++) { /* multiples of 1/64: a step of h is exact */
        z[i] = (float)((int32_t)qr_rng_below(&rng, 512) - 256) / 64;
        taught[i] = (float)((int32_t)qr_rng_below(&rng, 512) - 256) / 64;
    }
    for (int k = 0; k < QR_COUNT(pairs); k++) {
        struct qr_distill_row r = {.grad = grad, .student = z, .teacher = taught, .n = N, .target = 4, .weight = pairs[k][0], .temperature = pairs[k][1],
                                   .scale = 1};
        qr_distill_row(&r);
        r.grad = ignored;
        for (int i = 0; i < N; i++) {
            const float was = z[i];
            z[i] = was + (float)h;
            const double up = qr_distill_row(&r);
            z[i] = was - (float)h;
            const double down = qr_distill_row(&r);
            z[i] = was;
            /* The third derivative of a log-sum is p (1 - p) (1 - 2 p), below 0.1 (over T for the taught part): central differences are off by h^2 / 60. */
            cr_assert_float_eq((up - down) / (2 * h), (double)grad[i], h * h / 60 + ldexp(1, -22), "%d of pair %d", i, k);
        }
    }
    const struct qr_distill_row same = {.grad = grad, .student = z, .teacher = z, .n = N, .target = 0, .weight = 1, .temperature = 2, .scale = 1};
    cr_assert_eq(qr_distill_row(&same), 0);
    for (int i = 0; i < N; i++)
        cr_assert_eq(grad[i], 0);
}

Test(trainer, a_student_comes_nearer_to_its_teacher)
{
    struct world w = world_new();
    struct qr_err err = {0};
    char teacher[160], from[160], dir[140], path[QR_PATH_MAX];
    snprintf(dir, sizeof dir, "%s/teacher", w.dir.path);
    snprintf(teacher, sizeof teacher, "teacher.model=%s", dir);
    snprintf(from, sizeof from, "model.from=%s", dir);
    struct session s = session_new(&w, false, WITH("seed=5"), NULL);
    steps(&s, 6);
    cr_assert_eq(qr_trainer_export(s.t, dir, &err), 0, "%s", err.msg);
    session_drop(&s);

    s = session_new(&w, false, WITH(teacher, from, "model.config=", "teacher.weight=1", "teacher.temperature=2"), NULL);
    cr_assert_eq(step(&s), 0, "the teacher itself has something to learn");
    session_drop(&s);

    s = session_new(&w, false, WITH(teacher, "teacher.weight=1", "teacher.temperature=2"), NULL);
    const double before = step(&s);
    steps(&s, 3);
    cr_assert_eq(qr_trainer_save(s.t, path, &err), 0, "%s", err.msg);
    struct session again = session_new(&w, true, WITH(teacher, "teacher.weight=1", "teacher.temperature=2", "compute.threads=2"), NULL);
    cr_assert_eq(steps(&again, 6), steps(&s, 6), "the resumed run differs");
    const double after = step(&s);
    cr_assert(after > 0 && after < 0.7 * before, "KL from %g to %g", before, after);
    session_drop(&s), session_drop(&again);
    cr_assert_eq(run_of(&w, WITH(teacher, "teacher.weight=0.5", "compute.recompute=full"), NULL, 2), run_of(&w, WITH(teacher), NULL, 2));

    cr_assert_eq(try_open(&s, &w, WITH(teacher, "prune.kind=2:4"), NULL, &err), QR_E_USAGE);
    session_drop(&s);
    put_file(dir, "tokenizer.json", "{\"of\": \"another\"}");
    cr_assert_eq(try_open(&s, &w, WITH(teacher), NULL, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "is not the tokenizer of "), "%s", err.msg);
    session_drop(&s);
    cr_assert_eq(try_open(&s, &w, WITH("teacher.model=/nowhere"), NULL, &err), QR_E_NOT_FOUND);
    cr_assert_not_null(strstr(err.msg, "--set teacher.model: "), "%s", err.msg);
    session_drop(&s);
    world_drop(&w);
}
