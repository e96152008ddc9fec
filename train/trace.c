/* trace.c - a Chrome trace of training steps. It watches the tape (qr_tape_set_watch) and writes one complete event for
 * each step, layer and verb, with bytes, operations and share of the machine's limits. Events are nested by their times
 * alone. It changes no result. The trainer's thread; the file is complete when it is closed. */
#include "train/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/plan.h"

#define DEPTH_MAX 8

struct qr_train_trace {
    FILE *f;                      /* owned */
    const char *path;             /* borrowed */
    struct qr_train_peak peak;
    struct qr_tape *tape;         /* borrowed, as params; NULL: nothing is watched */
    const struct qr_params *params;
    int64_t began_ns, op_began_ns;
    struct {
        char name[64];
        int64_t began_ns;
    } open[DEPTH_MAX];
    int32_t depth;
    int32_t layer;                /* the layer that is open as a stretch, or -1 */
    enum qr_tape_pass pass;       /* and on which way */
    struct qr_buf line;
};

static const char *const pass_name[] = {"forward", "again", "backward"};

/* ---- costs ---- */

static double rows_of(const struct qr_tensor *t)
{
    return t->data && t->n_dims > 0 ? (double)t->shape[0] : 0;
}

static double count_of(const struct qr_tensor *t)
{
    return t->data && t->n_dims > 0 ? (double)qr_tensor_count(t) : 0;
}

struct qr_train_cost qr_train_cost_of(const struct qr_tape_op *op, const struct qr_batch *b)
{
    QR_ASSERT(op != NULL && b != NULL);
    QR_ASSERT(op->in != NULL && op->out != NULL);
    const bool back = op->pass == QR_PASS_BACKWARD;
    const double in = count_of(&op->in[0]) + count_of(&op->in[1]) + count_of(&op->in[2]), out = count_of(&op->out[0]) + count_of(&op->out[1]);
    const double w = op->w ? count_of(&op->w->t) : 0, w_bytes = op->w ? (double)qr_dtype_bytes(op->w->t.dtype) : 0;
    struct qr_train_cost c = {.ops = in + out, .bytes = 4 * (in + out)};
    if (strcmp(op->verb, "linear") == 0) {
        c.ops = (back ? 4 : 2) * rows_of(&op->in[0]) * w;
        c.bytes = back ? 4 * (2 * out + 3 * in + 2 * w) + w_bytes * w : 4 * (in + out) + w_bytes * w; /* x, dy twice, dx and dw read and written */
    } else if (strcmp(op->verb, "loss") == 0) {
        c.ops = back ? 0 : 6 * rows_of(&op->in[0]) * w; /* with its gradients, on the way there */
        c.bytes = back ? 0 : 4 * 4 * in + (2 * w_bytes + 8) * w;
    } else if (strcmp(op->verb, "attention") == 0) {
        const double width = rows_of(&op->in[0]) > 0 ? count_of(&op->in[0]) / rows_of(&op->in[0]) : 0; /* heads x their size */
        c.ops = (back ? 10 : 4) * width * qr_train_attended(b);
        c.bytes *= back ? 2 : 1;
    } else if (strcmp(op->verb, "embed") == 0)
        c = (struct qr_train_cost){.ops = back ? out : 0, .bytes = out * (4 + (back ? 8 : w_bytes))};
    else
        c.bytes *= back ? 2 : 1;
    return c;
}

/* ---- events ---- */

/* A complete event up to now; args are behind `"args":{` and end without the brace. */
static void put_event(struct qr_train_trace *t, const char *name, const char *category, int64_t began_ns, const struct qr_buf *args)
{
    const int64_t now = qr_clock_ns();
    fprintf(t->f, ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f", name, category,
            (double)(began_ns - t->began_ns) * 1e-3, (double)(now - began_ns) * 1e-3);
    if (args && args->len)
        fprintf(t->f, ",\"args\":{%s}", args->data);
    fputs("}", t->f);
}

static void push(struct qr_train_trace *t, const char *name, int64_t number)
{
    QR_ASSERT(t->depth < DEPTH_MAX);
    t->open[t->depth].began_ns = qr_clock_ns();
    if (number >= 0)
        snprintf(t->open[t->depth++].name, sizeof t->open[0].name, "%s %lld", name, (long long)number);
    else
        snprintf(t->open[t->depth++].name, sizeof t->open[0].name, "%s", name);
}

static void pop(struct qr_train_trace *t, const char *category)
{
    QR_ASSERT(t->depth > 0);
    t->depth--;
    put_event(t, t->open[t->depth].name, category, t->open[t->depth].began_ns, NULL);
}

static void leave_layer(struct qr_train_trace *t)
{
    if (t->layer >= 0)
        pop(t, pass_name[t->pass == QR_PASS_AGAIN ? QR_PASS_BACKWARD : t->pass]);
    t->layer = -1;
}

/* Running a layer's verbs again belongs to its way back. */
static void op_begins(void *user, const struct qr_tape_op *op)
{
    struct qr_train_trace *t = user;
    const enum qr_tape_pass pass = op->pass == QR_PASS_AGAIN ? QR_PASS_BACKWARD : op->pass;
    if (t->layer != op->layer || t->pass != pass)
        leave_layer(t);
    t->pass = pass;
    if (t->layer < 0 && op->layer >= 0)
        push(t, "layer", op->layer);
    t->layer = op->layer;
    t->op_began_ns = qr_clock_ns();
}

static void op_ends(void *user, const struct qr_tape_op *op)
{
    struct qr_train_trace *t = user;
    const struct qr_exec *x = qr_tape_exec(t->tape);
    x->be->mem->sync(x->be->queue);
    const double seconds = (double)(qr_clock_ns() - t->op_began_ns) * 1e-9;
    const struct qr_train_cost c = qr_train_cost_of(op, qr_batch_host(x->batch));
    double share = t->peak.ops_s > 0 ? c.ops / seconds / t->peak.ops_s : 0;
    if (t->peak.bytes_s > 0 && c.bytes / seconds / t->peak.bytes_s > share)
        share = c.bytes / seconds / t->peak.bytes_s;
    qr_buf_clear(&t->line);
    qr_buf_printf(&t->line, "\"rows\":%.0f,\"flops\":%.0f,\"bytes\":%.0f,\"gflops_per_s\":%.2f,\"gb_per_s\":%.2f,\"peak_share\":%.4f",
                  rows_of(op->in[0].data ? &op->in[0] : &op->out[0]), c.ops, c.bytes, c.ops / seconds * 1e-9, c.bytes / seconds * 1e-9, share);
    if (op->w)
        qr_buf_printf(&t->line, ",\"weight\":\"%s\"", qr_params_name(t->params, op->w));
    put_event(t, op->verb, pass_name[op->pass], t->op_began_ns, &t->line);
}

/* ---- the file ---- */

int qr_train_trace_open(struct qr_train_trace **out, const char *path, const char *what, const struct qr_train_peak *peak, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL && what != NULL);
    QR_ASSERT(peak != NULL && err != NULL);
    FILE *f = fopen(path, "we");
    if (!f)
        return qr_err_set(err, QR_E_IO, "cannot write the trace %s: %s", path, strerror(errno));
    struct qr_train_trace *t = qr_alloc(1, sizeof *t);
    *t = (struct qr_train_trace){.f = f, .path = path, .peak = *peak, .began_ns = qr_clock_ns(), .layer = -1};
    qr_json_put_str(&t->line, what, strlen(what));
    fprintf(f, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"run\":%s,\"peak_gflops_per_s\":%.1f,\"peak_gb_per_s\":%.2f},\"traceEvents\":[\n"
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"quire train\"}}", t->line.data, peak->ops_s * 1e-9, peak->bytes_s * 1e-9);
    *out = t;
    return 0;
}

void qr_train_trace_watch(struct qr_train_trace *trace, struct qr_tape *t, const struct qr_params *params)
{
    QR_ASSERT(trace != NULL && t != NULL);
    QR_ASSERT(params != NULL);
    const struct qr_tape_watch watch = {.begin = op_begins, .end = op_ends, .user = trace};
    trace->tape = t;
    trace->params = params;
    qr_tape_set_watch(t, &watch);
}

void qr_train_trace_begin(struct qr_train_trace *trace, const char *name, int64_t number)
{
    QR_ASSERT(name != NULL);
    if (trace)
        push(trace, name, number);
}

void qr_train_trace_end(struct qr_train_trace *trace)
{
    if (!trace)
        return;
    leave_layer(trace);
    pop(trace, "run");
}

int qr_train_trace_close(struct qr_train_trace *trace, struct qr_err *err)
{
    QR_ASSERT(err != NULL);
    if (!trace)
        return 0;
    while (trace->depth > 0) /* after an error in the middle */
        pop(trace, "run");
    if (trace->tape)
        qr_tape_set_watch(trace->tape, NULL);
    fputs("\n]}\n", trace->f);
    const bool bad = ferror(trace->f) != 0;
    int rc = fclose(trace->f) != 0 || bad ? qr_err_set(err, QR_E_IO, "cannot write the trace %s: %s", trace->path, strerror(errno)) : 0;
    qr_buf_release(&trace->line);
    qr_free(trace);
    return rc;
}
