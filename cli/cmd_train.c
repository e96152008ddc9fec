/* cmd_train.c - a training run: settings, plan, steps, what is written on the way, the finished model. The run itself
 * is train/trainer.h; here are the loop over steps, evaluation, samples, saves and plots, each when the settings say.
 * The first signal finishes the step and saves, the second one ends the process. A run that ends by a signal resumes to
 * the same bytes. Main thread. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "bench/kern/probe.h"
#include "cli/cli.h"
#include "cli/train_sample.h"
#include "cli/train_screen.h"
#include "cli/train_stop.h"
#include "comm/launch.h"
#include "train/log.h"
#include "train/variants/lora.h"
#include "train/plot.h"
#include "train/trainer.h"
#include "train/variants/variants.h"

#define PLOT_EVERY_US ((int64_t)10 * 1000000)
#define PROBE_ROUNDS 5
#define PROBE_BYTES ((size_t)128 << 20) /* more than caches hold */
#define TRACE_STEPS 10
#define BEST_DIR "best" /* in the run's */

struct train_options {
    struct qr_str_list set;
    bool resume, plan, settings, memory;
    int64_t ranks;
    struct qr_comm_meeting meeting;
    const char *trace;
};

/* One rank's run. All take the same way through it; only rank 0 (`first`) writes files and speaks. */
struct run {
    const struct train_options *o;
    const struct qr_train_config *c;
    struct qr_train_stop *stop;
    struct qr_comm comm;
    bool first;
    bool resume, stopping; /* agreed by all ranks */
    struct qr_trainer *t;
    struct qr_train_sampler sampler;
    struct qr_train_screen screen;
    struct qr_train_log log;
    struct qr_train_peak peak; /* what the machine can do at most; bytes with a trace only */
    struct qr_train_sum sum;
    int64_t saved_step, plotted_us;
    int lock;              /* of the run's directory; -1: none */
};

/* ---- before the first step ---- */

static void print_plan(const struct qr_trainer *t)
{
    struct qr_buf text = {0};
    qr_train_print_params(&text, t->params);
    qr_train_plan_print(&text, &t->plan);
    qr_buf_printf(&text, "a step reads %lld x %d tokens at most, in pieces of %lld; %s, %d threads", (long long)t->c->batch.micro,
                  t->tape_options.n_tokens_max, (long long)t->c->data.sequence, t->be->k->name, t->be->n_threads);
    if (t->par.comm->size > 1)
        qr_buf_printf(&text, "; memory and threads of each of %d ranks (%s)", t->par.comm->size, qr_comm_name(t->par.comm));
    qr_buf_put_byte(&text, '\n');
    if (t->c->epochs > 0)
        qr_buf_printf(&text, "epochs: %g, of %.1f steps each: %lld steps\n", t->c->epochs, t->epoch_steps, (long long)t->n_steps);
    fwrite(text.data, 1, text.len, stdout);
    qr_train_screen_hint(t->c, t->n_steps, t->epoch_steps, qr_shards_index(t->shards)->n_tokens);
    fflush(stdout);
    qr_buf_release(&text);
}

/* One process a run: the system takes the lock away with the process, however that ends. */
static int lock_out(struct run *r, struct qr_err *err)
{
    const char *dir = r->c->save.out;
    r->lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->lock < 0)
        return qr_err_set(err, QR_E_IO, "cannot open the directory %s (save.out): %s", dir, strerror(errno));
    if (flock(r->lock, LOCK_EX | LOCK_NB) == 0)
        return 0;
    return qr_err_set(err, QR_E_USAGE, "another process trains in %s: wait for its end, or name another directory with save.out", dir);
}

static void say_passed(void *user, const char *why)
{
    ++*(int32_t *)user;
    qr_log(QR_LOG_WARN, "train", "a checkpoint is passed over: %s", why);
}

/* A run that has begun is resumed or left alone, never overwritten by mistake. Where there is no checkpoint yet, not even a damaged one, --resume begins: a
 * service says it at every start. */
static int check_out(struct run *r, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_err none;
    int32_t n_passed = 0;
    int rc = qr_dir_make_all(r->c->save.out, 0777, err);
    if (rc)
        return qr_err_prefix(err, "save.out: ");
    rc = lock_out(r, err);
    rc = rc ? rc : qr_checkpoint_clean(r->c->save.out, NULL, err);
    if (rc)
        return rc;
    const int found = qr_checkpoint_find(r->c->save.out, path, r->o->resume ? say_passed : NULL, &n_passed, &none);
    if (found != QR_E_NOT_FOUND && !r->o->resume)
        return qr_err_set(err, QR_E_USAGE, "%s already exists: add --resume to go on from it, or name another directory with save.out", path);
    r->resume = r->o->resume && (found != QR_E_NOT_FOUND || n_passed > 0);
    if (r->o->resume && !r->resume)
        printf("no checkpoint in %s yet: the run begins\n", r->c->save.out);
    return 0;
}

/* What rank 0 has found: others may not see its directory, and would begin where it goes on. */
static int agree_on_resume(struct run *r, struct qr_err *err)
{
    return qr_comm_run(&r->comm, &(struct qr_comm_call){.kind = QR_COMM_BROADCAST, .dtype = QR_I8, .data = &r->resume, .n = sizeof r->resume}, err);
}

/* What this process holds before the run's own memory, as a row of the plan; and whether all of it fits. */
static int check_memory(struct run *r, struct qr_err *err)
{
    const struct qr_backend *be = r->t->be;
    if (!be->mem->host) {
        const size_t on_device = qr_backend_scratch_bytes(be);
        qr_train_plan_add(&r->t->plan, "kernels' scratch", on_device);
        print_plan(r->t);
        return qr_trainer_check_room(r->t, be->mem->available() + (int64_t)on_device, err);
    }
    const size_t scratch = qr_backend_populate(be);
    qr_mem_populate_program();
    const int64_t held = qr_memory_of_process("VmRSS");
    qr_train_plan_add(&r->t->plan, "kernels' scratch", qr_backend_scratch_bytes(be));
    qr_train_plan_add(&r->t->plan, "program, tokenizer, data read so far", (size_t)held > scratch ? (size_t)held - scratch : 0);
    qr_train_plan_add(&r->t->plan, "a file being written", QR_FILE_BLOCK_BYTES);
    qr_train_plan_add(&r->t->plan, "what travels between ranks", r->comm.window_bytes + (r->t->par.shard == QR_SHARD_NONE ? 0 : QR_PARTS_PIECE_BYTES));
    if (r->o->trace && r->first && (size_t)held + PROBE_BYTES > r->t->plan.total)
        qr_train_plan_add(&r->t->plan, "more, while memory is measured", (size_t)held + PROBE_BYTES - r->t->plan.total);
    print_plan(r->t);
    const bool one_machine = strcmp(qr_comm_name(&r->comm), "shm") == 0;
    return qr_trainer_check_room(r->t, qr_memory_available() / (one_machine ? r->comm.size : 1) + held, err);
}

/* The processor's limits; of another device nothing is measured. */
static void probe(struct run *r)
{
    struct qr_backend *be = r->t->be;
    const enum qr_probe_unit unit = qr_probe_unit_of(r->t->params->compute);
    if (!be->mem->host) {
        printf("device: %s\n", be->title);
        return;
    }
    r->peak.ops_s = r->comm.size * qr_probe_ops_s(be->queue, be->n_threads, be->k->name, unit, PROBE_ROUNDS); /* all ranks look at once */
    if (r->peak.ops_s > 0)
        printf("the machine's peak: %.0f GFLOP/s (%s)\n", r->peak.ops_s * 1e-9, qr_probe_name(be->k->name, unit));
    if (!r->o->trace || !r->first)
        return;
    void *memory = be->mem->alloc(PROBE_BYTES);
    qr_mem_populate(memory, PROBE_BYTES);
    r->peak.bytes_s = qr_probe_bytes_s(be->queue, memory, PROBE_BYTES, PROBE_ROUNDS);
    be->mem->free(memory);
}

/* With --trace: the trace, which says how near each verb comes to the limits. */
static int begin_trace(struct run *r, struct qr_err *err)
{
    struct qr_trainer *t = r->t;
    if (!r->o->trace || !r->first)
        return 0;
    int rc = qr_train_trace_open(&t->trace, r->o->trace, r->c->save.out, &r->peak, err);
    if (rc == 0)
        qr_train_trace_watch(t->trace, t->tape, t->params);
    return rc;
}

static int begin(struct run *r, struct qr_err *err)
{
    struct qr_trainer *t = r->t;
    int rc = r->first ? check_out(r, err) : 0;
    rc = rc ? rc : agree_on_resume(r, err);
    if (rc == 0)
        probe(r); /* before the run's own memory is there: this gives its own back */
    struct qr_progress progress;
    qr_progress_open(&progress, r->c->model.from ? "reading the model" : "drawing weights");
    t->progress = r->first ? &progress : NULL;
    rc = rc ? rc : qr_trainer_begin(t, r->resume, err);
    t->progress = NULL;
    qr_progress_end(&progress);
    if (rc == 0 && r->first)
        rc = qr_train_sampler_begin(&r->sampler, t, err);
    if (rc == 0 && r->first)
        rc = qr_train_log_open(&r->log, r->c->save.out, r->resume ? t->state.step : -1, err);
    if (rc)
        return rc;
    if (r->resume)
        printf("resumed behind step %lld\n", (long long)t->state.step);
    rc = begin_trace(r, err);
    r->saved_step = r->resume ? t->state.step : -1;
    qr_train_screen_open(&r->screen, t->state.step, r->t->n_steps);
    r->screen.bar &= strcmp(qr_comm_name(&r->comm), "mpi") != 0; /* mpirun gives ranks a terminal, whatever its own output is */
    return rc;
}

/* ---- on the way ---- */

static bool due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Before a checkpoint is saved that knows of it: a run that is killed between the two comes to its best model again. */
static int save_best(struct run *r, struct qr_err *err)
{
    char dir[QR_PATH_MAX];
    if (!r->c->save.best || r->t->state.best_step != r->t->state.step)
        return 0;
    int rc = qr_path_join(dir, r->c->save.out, BEST_DIR, err);
    rc = rc ? rc : qr_trainer_export(r->t, dir, err);
    if (rc == 0)
        qr_train_screen_say(&r->screen, "saved %s, the lowest held-out loss so far: %.4f", dir, r->t->state.best_loss);
    return rc;
}

static int evaluate(struct run *r, struct qr_train_row *row, struct qr_err *err)
{
    int64_t n_targets;
    qr_train_trace_begin(r->t->trace, "evaluation", -1);
    int rc = qr_trainer_evaluate(r->t, &row->eval_loss, &n_targets, err);
    qr_train_trace_end(r->t->trace);
    r->sum.eval_loss = row->eval_loss;
    return rc;
}

/* A text with a mark in front of each of its lines. */
static void show_sample(struct run *r, const char *text)
{
    struct qr_buf marked = {0};
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if (isatty(STDOUT_FILENO)) /* a model that has learnt little writes any byte */
            qr_buf_put_visible(&marked, text, n);
        else
            qr_buf_put(&marked, text, n);
        qr_buf_put_str(&marked, text[n] == '\n' ? "\n  | " : "");
    }
    qr_train_screen_say(&r->screen, "  | %s", marked.data ? marked.data : "");
    qr_buf_release(&marked);
}

static int write_samples(struct run *r, struct qr_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < r->c->sample.prompts.n && rc == 0; i++) {
        const char *prompt = r->c->sample.prompts.item[i];
        struct qr_buf text = {0};
        qr_buf_put_str(&text, prompt);
        qr_train_sampler_write(&r->sampler, i, &text);
        show_sample(r, text.data);
        rc = qr_train_log_sample(&r->log, r->t->state.step, prompt, text.data + strlen(prompt), err);
        qr_buf_release(&text);
    }
    return rc;
}

static int save(struct run *r, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    if (r->saved_step == r->t->state.step)
        return 0;
    int rc = qr_trainer_save(r->t, path, err);
    if (rc)
        return rc;
    r->saved_step = r->t->state.step;
    qr_train_screen_say(&r->screen, "saved %s", path);
    return 0;
}

static int plot(struct run *r, bool now, struct qr_err *err)
{
    if (!r->first || (!now && qr_clock_us() - r->plotted_us < PLOT_EVERY_US))
        return 0;
    int rc = qr_train_plot(r->c->save.out, r->c->save.out, r->c->log.plot_log, err);
    r->plotted_us = qr_clock_us();
    return rc;
}

static int end_trace(struct run *r, struct qr_err *err)
{
    struct qr_train_trace *trace = r->t->trace;
    r->t->trace = NULL;
    const int rc = qr_train_trace_close(trace, err);
    if (trace && rc == 0)
        qr_train_screen_say(&r->screen, "the trace is in %s", r->o->trace);
    return rc;
}

/* A step and what is due behind it. */
static int one_step(struct run *r, struct qr_err *err)
{
    struct qr_train_step s;
    int rc = qr_trainer_step(r->t, &s, err);
    if (rc)
        return rc;
    const bool last = s.step == r->t->n_steps;
    r->stopping = s.stop;
    struct qr_train_row row = {.step = s.step, .n_tokens = s.n_tokens, .loss = s.loss, .eval_loss = NAN, .norm = s.norm, .lr = s.lr,
                               .tokens_s = (double)s.n_tokens / s.seconds, .seconds = s.seconds, .waited = r->comm.size > 1 ? s.waited : NAN,
                               .peak_share = r->peak.ops_s > 0 ? s.flops / s.seconds / r->peak.ops_s : NAN};
    if (r->t->eval_feed && (last || due(r->c->eval.every, s.step)))
        rc = evaluate(r, &row, err);
    if (rc)
        return rc;
    r->sum.loss = s.loss;
    qr_train_screen_step(&r->screen, &row, last || due(r->c->log.every, s.step) || isfinite(row.eval_loss));
    if (r->first)
        rc = qr_train_log_row(&r->log, &row, err);
    rc = rc ? rc : save_best(r, err);
    if (rc == 0 && r->first && due(r->c->sample.every, s.step))
        rc = write_samples(r, err);
    if (rc == 0 && due(r->c->save.every, s.step))
        rc = save(r, err);
    if (rc == 0 && s.step - r->screen.first == TRACE_STEPS)
        rc = end_trace(r, err);
    return rc ? rc : plot(r, false, err);
}

/* Before anything was learned. */
static int first_evaluation(struct run *r, struct qr_err *err)
{
    struct qr_train_row row = {.step = 0, .loss = NAN, .eval_loss = NAN, .norm = NAN, .lr = NAN, .tokens_s = NAN, .peak_share = NAN, .seconds = NAN,
                               .waited = NAN};
    if (!r->t->eval_feed || r->t->state.step > 0)
        return 0;
    int rc = evaluate(r, &row, err);
    if (rc)
        return rc;
    qr_train_screen_say(&r->screen, "held-out loss before the first step: %.4f", row.eval_loss);
    rc = r->first ? qr_train_log_row(&r->log, &row, err) : 0;
    return rc ? rc : save_best(r, err);
}

/* Ranks stop behind the same step; one alone need not take another one to agree with itself. */
static bool to_stop(const struct run *r)
{
    return r->stopping || (r->comm.size == 1 && atomic_load(&r->stop->asked));
}

/* What there was, in one line. */
static void print_sum(struct run *r)
{
    const struct qr_checkpoint_state *s = &r->t->state;
    r->sum.n_steps = s->step, r->sum.n_tokens = s->n_tokens, r->sum.seconds = s->seconds;
    r->sum.best_step = s->best_step, r->sum.best_loss = s->best_loss;
    qr_train_screen_sum(&r->sum);
}

/* *status: what a shell sees when the run was interrupted. */
static int steps(struct run *r, int *status, struct qr_err *err)
{
    int rc = first_evaluation(r, err);
    while (rc == 0 && r->t->state.step < r->t->n_steps && !to_stop(r))
        rc = one_step(r, err);
    if (rc == 0)
        rc = save(r, err);
    if (rc == 0)
        rc = plot(r, true, err);
    if (rc == 0)
        rc = end_trace(r, err);
    qr_train_screen_close(&r->screen);
    if (rc == 0 && r->t->state.step < r->t->n_steps) {
        print_sum(r);
        printf("interrupted behind step %lld of %lld; --resume goes on\n", (long long)r->t->state.step, (long long)r->t->n_steps);
        *status = r->first ? 128 + atomic_load(&r->stop->asked) : 0;
    }
    return rc;
}

static void put_memory(struct qr_buf *out, const char *what, size_t planned, size_t peak)
{
    char size[2][QR_SIZE_TEXT];
    qr_buf_printf(out, "  %-38s%12s%12s\n", what, qr_size_text(size[0], (int64_t)planned),
                  qr_size_text(size[1], (int64_t)peak));
}

/* --memory: every part as planned and at its peak. What is not of the tape is in use as a whole. */
static void print_memory(const struct run *r)
{
    const struct qr_train_plan *p = &r->t->plan;
    const struct qr_tape_memory peak = qr_tape_peak(r->t->tape);
    const struct {
        const char *what;
        size_t n_bytes;
    } tape[] = {{QR_PLAN_KEEP, peak.keep}, {QR_PLAN_WORK, peak.work}, {QR_PLAN_GRAD, peak.grad}, {QR_PLAN_LOGITS, peak.logits}, {QR_PLAN_LATER, peak.later},
                {QR_PLAN_KV, peak.kv}};
    struct qr_buf out = {0};
    qr_buf_printf(&out, "%-40s%12s%12s\n", "memory", "planned", "peak");
    for (int32_t i = 0; i < p->n_rows; i++) {
        size_t used = p->row[i].n_bytes;
        for (int k = 0; k < QR_COUNT(tape); k++)
            used = strcmp(tape[k].what, p->row[i].what) == 0 ? tape[k].n_bytes : used;
        if (p->row[i].n_bytes)
            put_memory(&out, p->row[i].what, p->row[i].n_bytes, used);
    }
    put_memory(&out, "together, and the process (VmHWM)", p->total, (size_t)qr_memory_of_process("VmHWM"));
    fwrite(out.data, 1, out.len, stdout);
    qr_buf_release(&out);
}

static int finish(struct run *r, struct qr_err *err)
{
    char dir[QR_PATH_MAX];
    int rc = qr_path_join(dir, r->c->save.out, "final", err);
    if (rc)
        return rc;
    if (r->c->save.final)
        snprintf(dir, sizeof dir, "%s", r->c->save.final);
    rc = qr_trainer_finish(r->t, dir, err);
    if (rc == 0)
        print_sum(r);
    if (rc == 0)
        printf("the model is in %s: quire serve --model %s\n", dir, dir);
    if (rc == 0 && r->c->save.best && r->sum.best_step < r->sum.n_steps)
        printf("the one with the lowest held-out loss is in %s/" BEST_DIR "\n", r->c->save.out);
    if (rc == 0 && r->c->lora.rank > 0)
        printf("its adapters are in %s/" QR_LORA_DIR "\n", r->c->save.out);
    return rc;
}

static int run_all(struct run *r, int *status, struct qr_err *err)
{
    struct qr_train_variant variant;
    int rc = qr_train_variant_choose(&variant, r->c, err);
    rc = rc ? rc : qr_trainer_open(&r->t, r->c, &variant, &r->comm, err);
    if (rc == 0)
        r->t->stop = &r->stop->asked;
    rc = rc ? rc : qr_train_sampler_open(&r->sampler, r->t, err);
    rc = rc ? rc : check_memory(r, err);
    if (rc || r->o->plan)
        return rc;
    rc = begin(r, err);
    rc = rc ? rc : steps(r, status, err);
    if (rc == 0 && r->t->state.step >= r->t->n_steps)
        rc = finish(r, err);
    if (rc == 0 && r->o->memory)
        print_memory(r);
    return rc;
}

static int as_rank(struct run *r, int *status, struct qr_err *err)
{
    struct qr_train_stop stop;
    r->stop = &stop;
    r->first = r->comm.rank == 0;
    qr_train_stop_open(&stop, r->first ? "\nstopping behind this step; once more ends at once\n" : "");
    int rc = run_all(r, status, err);
    if (rc)
        qr_comm_abort(&r->comm, err->msg);
    if (r->screen.last)
        qr_train_screen_close(&r->screen);
    struct qr_err late;
    if (r->t)
        qr_train_trace_close(r->t->trace, &late); /* there still after an error */
    qr_train_log_close(&r->log);
    qr_train_sampler_close(&r->sampler);
    qr_trainer_close(r->t);
    qr_comm_close(&r->comm);
    qr_train_stop_close(&stop);
    if (r->lock >= 0)
        close(r->lock);
    return rc;
}

/* Ranks that are not the first say nothing: the first hears why they failed, and tells it. */
static int train(const struct train_options *o, const struct qr_train_config *c, int *status, struct qr_err *err)
{
    const struct qr_comm_launch_options launch = {.n_ranks = (int32_t)o->ranks, .share_cpus = !c->compute.cpus, .meeting = &o->meeting};
    struct run r = {.o = o, .c = c, .lock = -1, .sum = {.loss = NAN, .eval_loss = NAN}};
    struct qr_comm_crew *crew;
    sigset_t before;
    qr_train_stop_hold(&before); /* launching makes threads */
    int rc = qr_comm_launch(&r.comm, &crew, &launch, err);
    if (rc) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return rc;
    }
    const bool first = r.comm.rank == 0;
    if (!first && !freopen("/dev/null", "w", stdout))
        qr_panic("cannot open /dev/null: %s", strerror(errno));
    const bool speaks = !first && qr_comm_apart(&r.comm);
    rc = as_rank(&r, status, err);
    if (rc && speaks)
        qr_log(QR_LOG_ERROR, "ranks", "%s", err->msg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (first)
        return qr_comm_crew_end(crew, rc == 0, *status, err);
    *status = rc ? qr_err_exit_status(err->code) : *status;
    return 0;
}

/* ---- the command ---- */

/* A run that is resumed keeps its leaves unless the settings name others, so that its bits do not depend on the number
 * of ranks it goes on with. */
static void keep_leaves(struct qr_train_config *c)
{
    char path[QR_PATH_MAX];
    struct qr_checkpoint_state state;
    struct qr_err none; /* what is wrong with the checkpoint is said when it is loaded */
    if (c->batch.leaves == 0 && qr_checkpoint_latest(c->save.out, path, &none) == 0 && qr_checkpoint_read_state(path, &state, &none) == 0)
        c->batch.leaves = state.leaves;
}

static int with_config(const struct train_options *o, const char *file, bool check_only, int *status, struct qr_err *err)
{
    struct qr_train_config c;
    struct qr_buf text = {0};
    int rc = qr_train_config_load(&c, file, o->set.item, o->set.n, err);
    if (rc == 0 && o->resume && !check_only)
        keep_leaves(&c);
    if (rc == 0 && o->settings) {
        qr_train_config_print(&text, &c);
        fwrite(text.data, 1, text.len, stdout);
    } else if (rc == 0 && !check_only)
        rc = train(o, &c, status, err);
    qr_buf_release(&text);
    qr_train_config_release(&c);
    return rc;
}

static int without_config(const struct train_options *o, struct qr_err *err)
{
    struct qr_buf text = {0};
    if (!o->settings)
        return qr_err_set(err, QR_E_USAGE, "no configuration named: expected quire train CONFIG.yaml; configs/train/ has examples, --settings lists what "
                          "can be set");
    qr_train_config_help(&text, 110);
    fwrite(text.data, 1, text.len, stdout);
    qr_buf_release(&text);
    return 0;
}

static const struct qr_option table[] = {
    {.name = "set", .brief = true, .letter = 's', .type = QR_OPT_LIST, .offset = offsetof(struct train_options, set), .arg = "NAME=VALUE", .group = "Run",
     .help = "A setting in place of the file's, such as optimizer.lr=1e-3; of a list setting one item."},
    {.name = "resume", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct train_options, resume), .builtin = "false", .group = "Run",
     .help = "Go on from the latest checkpoint in save.out, to the same bytes as without the interruption; begin where there is none yet."},
    {.name = "ranks", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct train_options, ranks), .builtin = "0", .min = 0, .max = QR_COMM_RANKS_MAX,
     .arg = "N",
     .group = "Run",
     .help = "Share the work among N processes of this machine, each with its part of the processors; 0: as many as mpirun, srun or LeaderWorkerSet "
             "have started, or one."},
    QR_COMM_MEETING_ROWS(struct train_options, meeting, "Run"),
    {.name = "trace", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct train_options, trace), .arg = "FILE", .group = "Run",
     .help = "Write a Chrome trace of the first ten steps: steps, layers and verbs with bytes, operations and share of the machine's peak."},
    {.name = "memory", .type = QR_OPT_FLAG, .offset = offsetof(struct train_options, memory), .builtin = "false", .group = "Run",
     .help = "Print at the end what every part of the memory held at its peak."},
    {.name = "plan", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct train_options, plan), .builtin = "false", .group = "Run",
     .help = "Print parameters and memory, and exit: with status 5 when it does not fit."},
    {.name = "settings", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct train_options, settings), .builtin = "false", .group = "Run",
     .help = "Print the settings and exit: of CONFIG.yaml with the source of each, or all there are."}};

static int run(struct qr_command_run *r, struct qr_err *err)
{
    const bool check_only = qr_options_wants_check(r->set);
    if (r->n_args == 0)
        return check_only ? 0 : without_config(r->options, err);
    if (r->n_args > 1)
        return qr_err_set(err, QR_E_USAGE, "%d arguments, expected one: CONFIG.yaml", r->n_args);
    const int rc = with_config(r->options, r->args[0], check_only, &r->status, err);
    r->status = rc ? 0 : r->status;
    return rc;
}

const struct qr_command qr_cmd_train = {
    .name = "train", .purpose = "train a model, from random weights or from a model directory",
    .usage = "quire train CONFIG.yaml [--set NAME=VALUE]... [--resume] [flags]",
    .examples = "quire train configs/train/book.yaml\n"
                "quire train configs/train/book.yaml --set optimizer.lr=1e-3 --plan\n"
                "quire train configs/train/book.yaml --resume",
    .text = "Trains a model, from random weights or from a model directory, with the forward pass that serves it. Ctrl-C finishes\n"
            "the step and saves. The run's directory gets checkpoints, log.csv, log.jsonl, loss.html and the finished model. A run's\n"
            "settings are CONFIG.yaml's; --config FILE is for the flags below, as in every command.",
    .checks = true, .config_hint = "A run's configuration is named without --config: quire train CONFIG.yaml",
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct train_options), .run = run,
};
