#include "bench/step.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/files/source.h"
#include "bench/bench.h"
#include "bench/drive.h"
#include "bench/samples.h"

#define PIECES 20       /* of the run, each one sample */

static void choose_sampling(struct qr_sampling *s, const struct qr_step_case *c, int32_t i)
{
    qr_sampling_init(s);
    s->temperature = 0;
    s->ignore_eos = true;
    s->max_tokens = c->n_steps;
    s->seed = (uint64_t)i + 1;
    if (c->mix != QR_STEP_MIXED)
        return;
    if (i % 8 == 2 || i % 8 == 5) {
        s->temperature = 0.8f;
        s->top_p = 0.95f;
    }
    if (i % 8 == 7) {
        s->n_logprobs = 5;
        s->stop[s->n_stops++] = "a text that never comes";
    }
}

struct tally {
    struct qr_samples part[QR_PARTS], own;
};

/* One piece of the run, from `a` to `b`. */
static void add_piece(struct tally *t, const struct qr_stats *a, const struct qr_stats *b)
{
    double n = (double)(b->n_steps - a->n_steps), own = 0;
    QR_ASSERT(b->n_steps > a->n_steps);
    for (int i = 0; i < QR_PARTS; i++) {
        double us = (double)(b->part_ns[i] - a->part_ns[i]) * 1e-3 / n;
        qr_samples_add(&t->part[i], us);
        own += i == QR_PART_MODEL || i == QR_PART_WAIT || i == QR_PART_IDLE ? 0 : us;
    }
    qr_samples_add(&t->own, own);
}

/* Counts pieces in which every sequence decodes: from the step in which the last prompt is complete until the first sequence is near its end. */
static void measure(struct qr_drive *d, const struct qr_step_case *c, struct tally *t, struct qr_step_figures *out)
{
    struct qr_stats from = {0}, now;
    int32_t piece = c->n_steps / (PIECES + 2);
    piece = piece > 0 ? piece : 1;
    while (d->n_open == c->n_seqs) {
        qr_drive_pump(d);
        qr_engine_stats(d->engine, &now);
        bool full = now.sched.n_decode == c->n_seqs;
        if (full && from.n_steps > 0 && now.n_steps - from.n_steps >= (uint64_t)piece) {
            add_piece(t, &from, &now);
            out->n_steps += (int64_t)(now.n_steps - from.n_steps);
            from = now;
        } else if (full && from.n_steps == 0) {
            from = now;
        }
    }
    while (d->n_open > 0)
        qr_drive_pump(d);
}

static void conclude(struct qr_step_figures *out, struct tally *t)
{
    for (int i = 0; i < QR_PARTS; i++) {
        out->part_us[i] = qr_samples_percentile(&t->part[i], 50);
        qr_samples_release(&t->part[i]);
    }
    out->own_us = qr_samples_percentile(&t->own, 50);
    qr_samples_release(&t->own);
}

static int open_engine(struct qr_drive *d, const struct qr_step_case *c, struct qr_err *err)
{
    struct qr_engine_config config;
    struct qr_backend_options bo = {.device = "cpu", .isa = c->isa, .n_threads = c->n_threads};
    struct qr_model_options mo = {0};
    qr_engine_config_init(&config);
    config.running_max = c->n_seqs;
    config.step_tokens_max = config.step_tokens_max > c->n_seqs ? config.step_tokens_max : c->n_seqs;
    config.kv_tokens = (int64_t)c->n_seqs * (c->n_prompt + c->n_steps + config.block_tokens);
    return qr_drive_open(d, c->model, &config, &bo, &mo, err);
}

int qr_bench_step(struct qr_step_figures *out, const struct qr_step_case *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL && err != NULL);
    QR_ASSERT(c->n_seqs > 0 && c->n_prompt > 0 && c->n_steps > 1);
    struct qr_drive d = {0};
    struct tally t = {0};
    struct qr_sampling s;
    *out = (struct qr_step_figures){0};
    int rc = open_engine(&d, c, err);
    if (rc == 0 && qr_engine_limits(d.engine)->ctx_max < c->n_prompt + c->n_steps)
        rc = qr_err_set(err, QR_E_USAGE, "%d prompt tokens and %d steps need a longer context than %d; ask for fewer steps", c->n_prompt, c->n_steps,
                        qr_engine_limits(d.engine)->ctx_max);
    for (int32_t i = 0; i < c->n_seqs && rc == 0; i++) {
        choose_sampling(&s, c, i);
        rc = qr_drive_submit(&d, &s, c->n_prompt, err);
    }
    if (rc == 0)
        measure(&d, c, &t, out);
    if (rc == 0 && (d.err.code != 0 || out->n_steps == 0))
        rc = qr_err_set(err, QR_E_INTERNAL, d.err.code != 0 ? "a sequence ended with an error" : "no step had all sequences in it; ask for more steps");
    conclude(out, &t);
    qr_drive_close(&d);
    return rc;
}

/* ---- the command ---- */

struct step_options {
    const char *model, *isa;
    int32_t mix;
    int64_t threads, seqs, prompt, steps;
};

#define AT(field) offsetof(struct step_options, field)

static const struct qr_option table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = AT(model), .arg = "DIR", .help = "Model directory."},
    {.name = "isa", .brief = true, .type = QR_OPT_STR, .offset = AT(isa), .builtin = "null", .arg = "LEVEL",
     .help = "Kernels to use; null computes nothing, so that only the engine's own work is left."},
    {.name = "threads", .brief = true, .letter = 't', .type = QR_OPT_INT, .offset = AT(threads), .builtin = "0", .min = 0, .max = 1024, .arg = "N",
     .help = "Worker threads; 0 means every usable processor."},
    {.name = "seqs", .brief = true, .type = QR_OPT_INT, .offset = AT(seqs), .builtin = "64", .min = 1, .max = 4096, .arg = "N",
     .help = "Sequences decoded at once."},
    {.name = "prompt", .brief = true, .type = QR_OPT_INT, .offset = AT(prompt), .builtin = "32", .min = 1, .max = 1 << 20, .arg = "N",
     .help = "Prompt tokens of each."},
    {.name = "steps", .brief = true, .type = QR_OPT_INT, .offset = AT(steps), .builtin = "400", .min = 2, .max = 1 << 20, .arg = "N",
     .help = "Tokens generated by each."},
    {.name = "mix", .brief = true, .type = QR_OPT_ENUM, .offset = AT(mix), .builtin = "greedy", .choices = "greedy|mixed", .arg = "NAME",
     .help = "mixed: of eight sequences two draw with top_p 0.95, one wants 5 log-probabilities and has a stop string."}};

static void print_figures(const struct qr_step_case *c, const struct qr_step_figures *f)
{
    printf("%s, %s kernels, %d sequences, %s, %lld steps counted: us per step\n", c->model, c->isa, c->n_seqs,
           c->mix == QR_STEP_GREEDY ? "greedy" : "mixed", (long long)f->n_steps);
    for (int i = 0; i < QR_PARTS; i++)
        printf("%-8s %10.2f\n", qr_step_part_name((enum qr_step_part)i), f->part_us[i]);
    printf("%-8s %10.2f   (all but model, wait and idle)\n", "own", f->own_us);
}

static int run_command(struct qr_command_run *r, struct qr_err *err)
{
    const struct step_options *o = r->options;
    struct qr_step_figures f;
    if (!o->model)
        return qr_err_set(err, QR_E_USAGE, "no model named: add --model DIR (quire bench make-model makes one)");
    const struct qr_step_case c = {.model = o->model, .isa = o->isa, .n_threads = (int32_t)o->threads, .n_seqs = (int32_t)o->seqs,
                                   .n_prompt = (int32_t)o->prompt, .n_steps = (int32_t)o->steps, .mix = (enum qr_step_mix)o->mix};
    int rc = qr_source_find(o->model, err);
    rc = rc ? rc : qr_bench_step(&f, &c, err);
    if (rc == 0)
        print_figures(&c, &f);
    return rc;
}

const struct qr_command qr_bench_step_command = {
    .name = "bench step", .purpose = "the engine's own work per step, without kernels",
    .usage = "quire bench step MODEL [flags]",
    .examples = "quire bench step models/quire-tiny --seqs 64",
    .args = "model", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct step_options), .run = run_command,
};
