/* What routers ask a worker: GET /v1/loads and /loads, /server_info, /model_info, in the shapes of SGLang, which its gateways and their offspring read.
 * One process is one worker: dp_rank is 0. */
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "server/console.h"
#include "server/disagg.h"
#include "server/route.h"

static void reply_json(struct qr_conn *c, struct qr_buf *body)
{
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .taken = body};
    qr_conn_reply(c, &reply);
}

static void put_time(struct qr_buf *out, const char *name)
{
    struct tm tm;
    char text[40];
    const time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &tm);
    qr_json_put_member_text(out, name, text);
}

static void put_real(struct qr_buf *out, const char *name, double v)
{
    qr_buf_put_comma(out);
    qr_buf_printf(out, "\"%s\":%.4f", name, v);
}

/* Tokens of prompts that wait are taken to be cached as often as those of late were: each is looked up when it leaves the queue. */
static void put_load(struct qr_buf *out, struct qr_server *s)
{
    const struct qr_engine_limits *l = qr_engine_limits(s->model.engine);
    struct qr_console_rates rates;
    struct qr_stats t;
    qr_engine_stats(s->model.engine, &t);
    qr_console_rates(s->console, &t, qr_clock_us(), &rates);
    const int32_t n_waiting = t.sched.n_waiting + t.sched.n_held;
    const int64_t used = qr_engine_tokens_of(l, t.kv.n_owned), most = qr_engine_tokens_of(l, l->n_blocks);
    qr_buf_put_byte(out, '{');
    qr_json_put_member_i64(out, "dp_rank", 0);
    qr_json_put_member_i64(out, "num_running_reqs", t.sched.n_prefill + t.sched.n_decode);
    qr_json_put_member_i64(out, "num_waiting_reqs", n_waiting);
    qr_json_put_member_i64(out, "num_waiting_uncached_tokens", (int64_t)((double)t.sched.waiting_tokens * (1 - rates.hit_ratio)) + t.sched.held_tokens);
    qr_json_put_member_i64(out, "num_used_tokens", used);
    qr_json_put_member_i64(out, "num_total_tokens", used + t.sched.waiting_tokens + t.sched.held_tokens);
    qr_json_put_member_i64(out, "max_total_num_tokens", most);
    qr_json_put_member_i64(out, "max_running_requests", l->running_max);
    put_real(out, "token_usage", most > 0 ? (double)used / (double)most : 0);
    put_real(out, "gen_throughput", rates.output_tokens_s);
    put_real(out, "cache_hit_rate", rates.hit_ratio);
    put_real(out, "utilization", (double)(t.sched.n_prefill + t.sched.n_decode) / l->running_max);
    put_real(out, "backlog_seconds", t.backlog_s);
    qr_buf_printf(out, ",\"queues\":{\"waiting\":%d,\"grammar\":0,\"paused\":0,\"retracted\":0}", t.sched.n_waiting);
    qr_buf_printf(out, ",\"disaggregation\":{\"mode\":\"%s\"}", qr_disagg_mode(s));
    qr_buf_printf(out, ",\"memory\":{\"weight_gb\":%.3f,\"kv_cache_gb\":%.3f,\"token_capacity\":%lld}}", (double)l->weight_bytes * 0x1p-30,
                  (double)l->kv_bytes * 0x1p-30, (long long)most);
}

void qr_api_loads(struct qr_server *s, struct qr_conn *c)
{
    struct qr_buf b = {0};
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    qr_buf_put_byte(&b, '{');
    put_time(&b, "timestamp");
    qr_json_put_member_text(&b, "version", QUIRE_VERSION);
    qr_buf_put_str(&b, ",\"dp_rank_count\":1,\"loads\":[");
    if (s->phase == QR_PHASE_READY)
        put_load(&b, s);
    qr_buf_put_str(&b, "]}");
    reply_json(c, &b);
}

void qr_api_server_info(struct qr_server *s, struct qr_conn *c)
{
    struct qr_buf b = {0};
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->n_names > 0);
    const struct qr_engine_limits *l = qr_engine_limits(s->model.engine);
    qr_buf_put_byte(&b, '{');
    qr_json_put_member_text(&b, "version", QUIRE_VERSION);
    qr_json_put_member_text(&b, "model_path", s->names[0]);
    qr_json_put_member_text(&b, "served_model_name", s->names[0]);
    qr_json_put_member_text(&b, "status", qr_server_trouble(s) ? qr_server_trouble(s) : "ready");
    qr_json_put_member_text(&b, "kv_cache_dtype", qr_dtype_name(l->kv_dtype));
    qr_json_put_member_text(&b, "disaggregation_mode", qr_disagg_mode(s));
    if (qr_disagg_port(s) > 0)
        qr_json_put_member_i64(&b, "disaggregation_bootstrap_port", qr_disagg_port(s));
    qr_json_put_member_i64(&b, "tp_size", l->n_ranks > 1 ? l->n_ranks : 1);
    qr_json_put_member_i64(&b, "dp_size", 1);
    qr_json_put_member_i64(&b, "page_size", l->block_tokens);
    qr_json_put_member_i64(&b, "context_length", l->ctx_max);
    qr_json_put_member_i64(&b, "max_total_num_tokens", qr_engine_tokens_of(l, l->n_blocks));
    qr_json_put_member_i64(&b, "max_running_requests", l->running_max);
    qr_json_put_member_i64(&b, "max_queued_requests", l->waiting_max);
    qr_json_put_member_i64(&b, "chunked_prefill_size", l->step_tokens_max);
    qr_buf_printf(&b, ",\"is_embedding\":%s}", qr_engine_model(s->model.engine)->headless ? "true" : "false");
    reply_json(c, &b);
}

void qr_api_model_info(struct qr_server *s, struct qr_conn *c)
{
    struct qr_buf b = {0};
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(s->n_names > 0);
    const struct qr_model_config *m = qr_engine_model(s->model.engine);
    qr_buf_put_byte(&b, '{');
    qr_json_put_member_text(&b, "model_path", s->names[0]);
    qr_json_put_member_text(&b, "tokenizer_path", s->names[0]);
    qr_json_put_member_text(&b, "model_type", m->arch_name);
    qr_buf_printf(&b, ",\"architectures\":[\"%s\"],\"preferred_sampling_params\":null,\"is_generation\":%s", m->arch_name, m->headless ? "false" : "true");
    qr_json_put_member_i64(&b, "vocab_size", m->n_vocab);
    qr_json_put_member_i64(&b, "max_context_length", qr_engine_limits(s->model.engine)->ctx_max);
    qr_buf_put_byte(&b, '}');
    reply_json(c, &b);
}
