/* plan.c - which requests are sent when (see parts.h). Draws are counter-based, so request i is the same whatever
 * happened before it, and two runs with one seed send the same bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/load/parts.h"

enum stream { STREAM_IN = 1, STREAM_OUT, STREAM_ABORT, STREAM_ABORT_AT, STREAM_PREFIX, STREAM_GAP = 1 << 20, STREAM_IDS = 1 << 28 };

#define LEN_MAX (1 << 24)
#define TRACE_MAX (4 << 20)
#define AT_MAX_US 1e15 /* 31 years: longer than any run, and as nanoseconds it fits */

/* "128" or "64:256". */
static int parse_range(const char *text, const char *flag, int32_t *lo, int32_t *hi, struct qr_err *err)
{
    char *end;
    long a = strtol(text, &end, 10), b = a;
    bool ok = end != text && *text != '-' && *text != '+';
    if (ok && *end == ':') {
        const char *second = end + 1;
        b = strtol(second, &end, 10);
        ok = end != second;
    }
    if (!ok || *end != '\0' || a < 1 || b < a || b > LEN_MAX)
        return qr_err_set(err, QR_E_USAGE, "%s: expected a length from 1 to %d, or a range LOW:HIGH of them, found '%.60s'", flag, LEN_MAX,
                          text);
    *lo = (int32_t)a;
    *hi = (int32_t)b;
    return 0;
}

int qr_load_plan_init(struct qr_load_plan *p, const struct qr_load_options *opt, struct qr_err *err)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(opt != NULL);
    *p = (struct qr_load_plan){.opt = opt};
    int rc = parse_range(opt->input_len, "--input-len", &p->in_min, &p->in_max, err);
    if (rc == 0)
        rc = parse_range(opt->output_len, "--output-len", &p->out_min, &p->out_max, err);
    if (rc == 0 && opt->trace != NULL)
        rc = qr_trace_read(&p->trace, opt->trace, TRACE_MAX, err);
    if (rc != 0)
        return rc;
    p->timed = p->trace.n > 0 && p->trace.entry[p->trace.n - 1].arrival_us > 0;
    if (p->timed && opt->rate > 0)
        return qr_err_set(err, QR_E_USAGE, "--rate: the trace %.200s has times of its own; leave --rate away or use --trace-scale",
                          opt->trace);
    p->open = p->timed || (opt->rate > 0 && (opt->rate < QR_LOAD_RATE_INF || opt->users == 0));
    p->n_max_users = opt->users > 0 ? (int32_t)opt->users : p->open ? INT32_MAX : 8;
    p->n_max = opt->n_requests > 0 ? opt->n_requests : opt->duration_us > 0 || p->trace.n > 0 ? INT64_MAX : 100;
    if (p->trace.n > 0 && p->n_max > p->trace.n)
        p->n_max = p->trace.n;
    return 0;
}

void qr_load_plan_release(struct qr_load_plan *p)
{
    qr_trace_release(&p->trace);
    p->trace = (struct qr_trace){0};
}

/* Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; shapes below 1 through gamma(a + 1) * u^(1/a). */
double qr_load_gamma(double shape, uint64_t seed, uint64_t stream)
{
    QR_ASSERT(shape > 0);
    QR_ASSERT(isfinite(shape));
    uint64_t pos = 0;
    if (shape == 1)
        return -log1p(-qr_rng_unit(seed, stream, pos));
    double boost = shape < 1 ? pow(1 - qr_rng_unit(seed, stream, pos++), 1 / shape) : 1, a = shape < 1 ? shape + 1 : shape;
    double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double u1 = 1 - qr_rng_unit(seed, stream, pos++), u2 = qr_rng_unit(seed, stream, pos++);
        double x = sqrt(-2 * log(u1)) * cos(2 * M_PI * u2), v = 1 + c * x; /* x: normal, Box and Muller */
        double u = 1 - qr_rng_unit(seed, stream, pos++);
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(u) < x * x / 2 + d - d * v + d * log(v))
            return d * v * boost / shape;
    }
}

static int32_t draw(const struct qr_load_plan *p, enum stream stream, int64_t index, int32_t lo, int32_t hi)
{
    double u = qr_rng_unit((uint64_t)p->opt->seed, stream, (uint64_t)index);
    return lo + (int32_t)(u * (double)(hi - lo + 1));
}

static int64_t moment(double us)
{
    return (int64_t)(us < AT_MAX_US ? us : AT_MAX_US);
}

static int32_t clip(struct qr_load_plan *p, int32_t n, int64_t n_max)
{
    if (n_max == 0 || n <= n_max)
        return n < 1 ? 1 : n;
    p->n_clipped++;
    return (int32_t)n_max;
}

bool qr_load_plan_next(struct qr_load_plan *p, struct qr_load_request *r)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(r != NULL);
    const struct qr_load_options *opt = p->opt;
    if (p->next >= p->n_max)
        return false;
    *r = (struct qr_load_request){.index = p->next, .at_us = -1, .abort_after = -1};
    if (p->trace.n > 0) {
        const struct qr_trace_entry *e = &p->trace.entry[p->next];
        r->n_prompt = e->n_prompt;
        r->n_new = e->n_new;
    } else {
        r->n_prompt = draw(p, STREAM_IN, p->next, p->in_min, p->in_max);
        r->n_new = draw(p, STREAM_OUT, p->next, p->out_min, p->out_max);
    }
    if (p->timed)
        r->at_us = moment((double)p->trace.entry[p->next].arrival_us * opt->trace_scale);
    else if (p->open) {
        r->at_us = moment(p->clock_us);
        p->clock_us += 1e6 / opt->rate * qr_load_gamma(opt->burstiness, (uint64_t)opt->seed, STREAM_GAP + (uint64_t)p->next);
    }
    if (opt->duration_us > 0 && r->at_us >= opt->duration_us) {
        p->n_max = p->next;
        return false;
    }
    r->n_prompt = clip(p, r->n_prompt, opt->input_max);
    r->n_new = clip(p, r->n_new, opt->output_max);
    if (opt->abort_fraction > 0 && qr_rng_unit((uint64_t)opt->seed, STREAM_ABORT, (uint64_t)p->next) < opt->abort_fraction)
        r->abort_after = draw(p, STREAM_ABORT_AT, p->next, 0, r->n_new - 1);
    p->next++;
    return true;
}

/* ---- bodies ---- */

static void put_ids(struct qr_buf *out, const struct qr_load_options *opt, const struct qr_load_request *r)
{
    uint32_t words[4];
    uint64_t seed = (uint64_t)opt->seed, stream = (uint64_t)STREAM_IDS + (uint64_t)r->index;
    qr_buf_reserve(out, (size_t)r->n_prompt * 7);
    qr_buf_put_byte(out, '[');
    for (int32_t i = 0; i < r->n_prompt; i++) {
        bool shared = i < opt->prefix_len;
        if (i % 4 == 0 || i == opt->prefix_len)
            qr_rng_words(words, seed, shared ? (uint64_t)STREAM_PREFIX : stream, (uint64_t)(i / 4));
        if (i > 0)
            qr_buf_put_byte(out, ',');
        qr_buf_put_i64(out, 3 + (int64_t)((uint64_t)words[i % 4] * (uint64_t)(opt->vocab - 3) >> 32));
    }
    qr_buf_put_byte(out, ']');
}

/* A prompt of the trace, cut to the planned length. Ids 0 to 2 are left out: they are special in many vocabularies. */
static void put_traced_ids(struct qr_buf *out, const struct qr_load_plan *p, const struct qr_load_request *r)
{
    int32_t entry = (int32_t)r->index, *ids = qr_alloc((size_t)p->trace.entry[entry].n_prompt, sizeof *ids);
    qr_trace_prompt(&p->trace, entry, ids, (int32_t)p->opt->vocab - 3);
    for (int32_t i = 0; i < r->n_prompt; i++) {
        qr_buf_put_byte(out, i == 0 ? '[' : ',');
        qr_buf_put_i64(out, 3 + (int64_t)ids[i]);
    }
    qr_buf_put_byte(out, ']');
    qr_free(ids);
}

static void put_words(struct qr_buf *out, const struct qr_load_options *opt, const struct qr_load_request *r)
{
    static const char *const word[] = {"river", "green", "seven", "house", "light", "under", "paper", "stone",
                                       "music", "table", "north", "glass", "bread", "horse", "cloud", "water"};
    for (int32_t i = 0; i < r->n_prompt; i++) {
        uint32_t w[4];
        bool shared = i < opt->prefix_len;
        qr_rng_words(w, (uint64_t)opt->seed, shared ? (uint64_t)STREAM_PREFIX : (uint64_t)STREAM_IDS + (uint64_t)r->index, (uint64_t)i);
        qr_buf_printf(out, "%s%s", i > 0 ? " " : "", word[w[0] % QR_COUNT(word)]);
    }
}

void qr_load_body(struct qr_buf *out, const struct qr_load_plan *p, const char *model, const struct qr_load_request *r)
{
    QR_ASSERT(out != NULL && p != NULL);
    QR_ASSERT(r->n_prompt >= 1 && r->n_new >= 1);
    const struct qr_load_options *opt = p->opt;
    qr_buf_put_str(out, "{\"model\":");
    qr_json_put_str(out, model, strlen(model));
    if (opt->endpoint % 2 == 0) {
        qr_buf_put_str(out, ",\"prompt\":");
        if (p->trace.n > 0)
            put_traced_ids(out, p, r);
        else
            put_ids(out, opt, r);
    } else {
        qr_buf_put_str(out, ",\"messages\":[{\"role\":\"user\",\"content\":\"");
        put_words(out, opt, r);
        qr_buf_put_str(out, "\"}]");
    }
    qr_buf_printf(out, ",\"max_tokens\":%d,\"temperature\":", r->n_new);
    qr_json_put_f64(out, opt->temperature);
    qr_buf_put_str(out, opt->ignore_eos ? ",\"ignore_eos\":true" : "");
    qr_buf_put_str(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
}
