/* console_trace.c - a stretch of the server's time as a Chrome trace (chrome://tracing, ui.perfetto.dev): each step of the engine with its phases inside it,
 * and each request as nested spans of queue, prefill and decode. Times are microseconds of the server's clock; spans of a request that came before the stretch
 * begin with it. It has names, numbers and ids, no text. Loop thread. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "server/console.h"

#define STEPS_AT_ONCE 256

/* {"name":..,"ph":..,"pid":1,"tid":..,"ts":.. ; the caller goes on. */
static void open_event(struct qr_buf *out, const char *name, const char *ph, int32_t tid, int64_t ts_us)
{
    qr_buf_put_str(out, ",\n{");
    qr_json_put_member_text(out, "name", name);
    qr_json_put_member_text(out, "ph", ph);
    qr_json_put_member_i64(out, "pid", 1);
    qr_json_put_member_i64(out, "tid", tid);
    qr_json_put_member_i64(out, "ts", ts_us);
}

void qr_trace_put_begin(struct qr_buf *out)
{
    static const char *const thread[] = {"engine steps", "requests"};
    QR_ASSERT(out != NULL);
    qr_buf_put_str(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"quire\"}}");
    for (int i = 0; i < QR_COUNT(thread); i++)
        qr_buf_printf(out, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", i + 1, thread[i]);
}

static void put_step(struct qr_buf *out, const struct qr_step_record *r)
{
    static const char *const phase[QR_STEP_PARTS] = {"plan", "lower", "forward", "wait", "mask", "sample", "output"};
    int64_t at_us = r->begun_us;
    open_event(out, "step", "X", 1, r->begun_us);
    qr_json_put_member_i64(out, "dur", r->us);
    qr_buf_put_str(out, ",\"args\":{");
    qr_json_put_member_i64(out, "prompt_tokens", r->n_prompt);
    qr_json_put_member_i64(out, "decode_rows", r->n_decode);
    qr_json_put_member_i64(out, "waiting", r->n_waiting);
    qr_buf_put_str(out, "}}");
    for (int i = 0; i < QR_STEP_PARTS; i++) {
        if (r->part_us[i] <= 0)
            continue;
        open_event(out, phase[i], "X", 1, at_us);
        qr_json_put_member_i64(out, "dur", r->part_us[i]);
        qr_buf_put_byte(out, '}');
        at_us += r->part_us[i];
    }
}

void qr_trace_put_steps(struct qr_buf *out, struct qr_onlooker *o, const struct qr_view *view)
{
    struct qr_step_record r[STEPS_AT_ONCE];
    QR_ASSERT(out != NULL && o != NULL);
    for (int32_t n = STEPS_AT_ONCE; n == STEPS_AT_ONCE;) {
        const uint64_t before = o->steps;
        n = qr_view_steps(view, &o->steps, r, STEPS_AT_ONCE);
        o->n_steps += (uint64_t)n;
        o->n_missed += o->steps - before - (uint64_t)n;
        for (int32_t i = 0; i < n; i++)
            put_step(out, &r[i]);
    }
}

static void put_edge(struct qr_buf *out, const char *name, const char *ph, const char *id, int64_t ts_us)
{
    open_event(out, name, ph, 2, ts_us);
    qr_json_put_member_text(out, "cat", "request");
    qr_json_put_member_text(out, "id", id);
}

/* One span inside of a request's; nothing where it would be empty. */
static void put_phase(struct qr_buf *out, const char *name, const char *id, int64_t from_us, int64_t to_us)
{
    if (to_us <= from_us)
        return;
    put_edge(out, name, "b", id, from_us);
    qr_buf_put_byte(out, '}');
    put_edge(out, name, "e", id, to_us);
    qr_buf_put_byte(out, '}');
}

/* t, or where that is not known or outside, the nearest time within [from, to]. */
static int64_t within(int64_t t_us, int64_t from_us, int64_t to_us)
{
    return t_us <= 0 || t_us > to_us ? to_us : t_us < from_us ? from_us : t_us;
}

void qr_trace_put_request(struct qr_buf *out, struct qr_onlooker *o, const struct qr_piece *piece, const struct qr_request_look *at, int64_t end_us,
                          const char *state)
{
    QR_ASSERT(out != NULL && o != NULL);
    QR_ASSERT(piece != NULL && at != NULL);
    const struct qr_call *call = piece->call;
    char id[sizeof call->id + 16], who[QR_KEY_DIGEST_TEXT];
    snprintf(id, sizeof id, "%s", call->id);
    if (call->n_pieces > 1)
        snprintf(id, sizeof id, "%s/%d", call->id, (int)(piece - call->piece));
    const int64_t begin_us = within(call->arrived_us, o->from_us, end_us), admitted_us = within(at->admitted_us, begin_us, end_us);
    const int64_t first_us = within(at->first_token_us, admitted_us, end_us);
    put_edge(out, "request", "b", id, begin_us);
    qr_buf_put_str(out, ",\"args\":{");
    qr_json_put_member_text(out, "route", qr_console_route(call));
    qr_json_put_member_text(out, "who", qr_key_digest_text(who, &call->digest));
    qr_json_put_member_text(out, "state", state);
    qr_json_put_member_i64(out, "arrived_us", call->arrived_us);
    qr_json_put_member_i64(out, "prompt_tokens", piece->req->n_prompt);
    qr_json_put_member_i64(out, "cached_tokens", at->n_cached);
    qr_json_put_member_i64(out, "output_tokens", at->n_output);
    qr_buf_put_str(out, "}}");
    put_phase(out, "queue", id, begin_us, admitted_us);
    put_phase(out, "prefill", id, admitted_us, first_us);
    put_phase(out, "decode", id, first_us, end_us);
    put_edge(out, "request", "e", id, end_us);
    qr_buf_put_byte(out, '}');
    o->n_requests++;
}

void qr_trace_put_end(struct qr_buf *out, const struct qr_onlooker *o, const struct qr_server *s, int64_t now_us)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(o != NULL && s != NULL);
    qr_buf_put_str(out, "],\n\"otherData\":{");
    qr_json_put_member_text(out, "version", QUIRE_VERSION);
    qr_json_put_member_text(out, "model", s->n_names > 0 ? s->names[0] : "");
    qr_json_put_member_i64(out, "us", now_us - o->from_us);
    qr_json_put_member_i64(out, "steps", (int64_t)o->n_steps);
    qr_json_put_member_i64(out, "steps_missed", (int64_t)o->n_missed);
    qr_json_put_member_i64(out, "requests", (int64_t)o->n_requests);
    qr_buf_put_str(out, "}}");
}
