/* metrics.c - the text of /metrics. Counters and histograms are rows of tables: name, help, where the value lies.
 * Engine figures are copied out under one lock, so the ledger adds up in every scrape. Labels are escaped; the text is
 * charged to the call like any answer. Loop thread. */
#include "server/forms.h"
#include "server/metrics.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "engine/adapters.h"
#include "engine/exchange.h"
#include "server/route.h"

struct out {
    struct qr_buf *b;      /* borrowed */
    struct qr_buf labels;  /* owned: model_name="...",engine="0" */
};

/* ---- the text format ---- */

static void put_label_value(struct qr_buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\\' || *s == '"')
            qr_buf_put_byte(b, '\\');
        if (*s == '\n')
            qr_buf_put_str(b, "\\n");
        else
            qr_buf_put_byte(b, *s);
    }
}

static void put_number(struct qr_buf *b, double v)
{
    if (v == floor(v) && fabs(v) < 1e15)
        qr_buf_printf(b, "%.1f", v);
    else
        qr_json_put_f64(b, v);
}

static void put_meta(struct out *o, const char *name, const char *type, const char *help)
{
    qr_buf_printf(o->b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_sample(struct out *o, const char *name, const char *suffix, const char *extra, double v)
{
    qr_buf_printf(o->b, "%s%s{%.*s%s%s} ", name, suffix, (int)o->labels.len, o->labels.data, extra[0] ? "," : "", extra);
    put_number(o->b, v);
    qr_buf_put_byte(o->b, '\n');
}

static void put_one(struct out *o, const char *name, const char *type, const char *help, double v)
{
    put_meta(o, name, type, help);
    put_sample(o, name, "", "", v);
}

static void put_hist(struct out *o, const char *name, const char *help, const struct qr_hist *h)
{
    uint64_t below = 0;
    put_meta(o, name, "histogram", help);
    for (int32_t i = 0; i <= h->n_bounds; i++) {
        char le[48] = "le=\"+Inf\"";
        below += h->count[i];
        if (i < h->n_bounds)
            snprintf(le, sizeof le, h->bound[i] == floor(h->bound[i]) ? "le=\"%.1f\"" : "le=\"%.6g\"", h->bound[i]);
        put_sample(o, name, "_bucket", le, (double)below);
    }
    put_sample(o, name, "_sum", "", h->sum);
    put_sample(o, name, "_count", "", (double)h->n);
}

/* ---- the engine ---- */

static void put_gauges(struct out *o, const struct qr_stats *t)
{
    static const char by_reason[] = "vllm:num_requests_waiting_by_reason", sleep[] = "vllm:engine_sleep_state";
    double used = t->kv.n_blocks > 0 ? (double)t->kv.n_owned / (double)t->kv.n_blocks : 0;
    put_one(o, "vllm:num_requests_running", "gauge", "Sequences in prefill or decode.", t->sched.n_prefill + t->sched.n_decode);
    put_one(o, "vllm:num_requests_waiting", "gauge", "Sequences in the queue.", t->sched.n_waiting + t->sched.n_held);
    put_meta(o, by_reason, "gauge", "Those, by what they wait for.");
    put_sample(o, by_reason, "", "reason=\"capacity\"", t->sched.n_waiting);
    put_sample(o, by_reason, "", "reason=\"deferred\"", t->sched.n_held);
    put_meta(o, sleep, "gauge", "This server never sleeps.");
    put_sample(o, sleep, "", "sleep_state=\"awake\"", 1);
    put_sample(o, sleep, "", "sleep_state=\"weights_offloaded\"", 0);
    put_sample(o, sleep, "", "sleep_state=\"discard_all\"", 0);
    put_one(o, "vllm:kv_cache_usage_perc", "gauge", "Share of cache blocks that requests own, 0 to 1.", used);
    put_one(o, "quire_prefill_sequences", "gauge", "Sequences whose prompt is being computed.", t->sched.n_prefill);
    put_one(o, "quire_decode_sequences", "gauge", "Sequences that produce tokens.", t->sched.n_decode);
    put_one(o, "quire_backlog_seconds", "gauge", "How long the work would take that was accepted and is not done, at the rates of late.", t->backlog_s);
    put_one(o, "quire_waiting_tokens", "gauge", "Prompt tokens in the queue.", (double)t->sched.waiting_tokens);
    put_one(o, "quire_kv_blocks", "gauge", "Cache blocks there are.", t->kv.n_blocks);
    put_one(o, "quire_kv_blocks_free", "gauge", "Cache blocks with no content.", t->kv.n_free);
    put_one(o, "quire_kv_blocks_cached", "gauge", "Cache blocks kept for their content, owned by nobody.", t->kv.n_cached);
    put_one(o, "quire_kv_blocks_owned", "gauge", "Cache blocks that requests or pins own.", t->kv.n_owned);
    put_one(o, "quire_kv_blocks_shared", "gauge", "Of those, owned by several sequences.", t->kv.n_shared);
    put_one(o, "quire_kv_blocks_pinned", "gauge", "Of those that are owned, held by pins.", t->kv.n_pinned);
    put_one(o, "quire_requests_inside", "gauge", "Accepted requests that have not ended.", (double)t->n_inside);
}

static void put_counters(struct out *o, const struct qr_stats *t)
{
    static const char success[] = "vllm:request_success_total", by_source[] = "vllm:prompt_tokens_by_source_total";
    static const char *const why[] = {[QR_LATE_QUEUE] = "why=\"queue_timeout\"", [QR_LATE_REFUSED] = "why=\"refused\"", [QR_LATE_SHED] = "why=\"shed\"",
                                      [QR_LATE_ALONE] = "why=\"alone\""};
    const uint64_t outside = t->n_from_file + t->n_from_peer;
    put_one(o, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", (double)t->kv.query_tokens);
    put_one(o, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", (double)t->kv.hit_tokens);
    put_one(o, "vllm:num_preemptions_total", "counter", "Sequences that gave their blocks back.", (double)t->sched.n_preempted);
    put_one(o, "vllm:prompt_tokens_total", "counter", "Prompt tokens of accepted requests.", (double)t->prompt_tokens);
    put_one(o, "vllm:prompt_tokens_cached_total", "counter", "Of those, taken from the prefix cache.", (double)t->cached_tokens);
    put_meta(o, by_source, "counter", "Prompt tokens, by where their keys and values came from.");
    put_sample(o, by_source, "", "source=\"local_compute\"", (double)(t->prompt_tokens - t->cached_tokens));
    put_sample(o, by_source, "", "source=\"local_cache_hit\"", (double)(t->cached_tokens - outside));
    put_sample(o, by_source, "", "source=\"external_kv_transfer\"", (double)outside);
    put_one(o, "vllm:external_prefix_cache_queries_total", "counter", "Prompt tokens looked for in the file tier and at peers.", (double)t->n_sought);
    put_one(o, "vllm:external_prefix_cache_hits_total", "counter", "Prompt tokens that came from there.", (double)outside);
    put_one(o, "vllm:generation_tokens_total", "counter", "Generated tokens.", (double)t->output_tokens);
    put_meta(o, success, "counter", "Requests that ended, by reason.");
    put_sample(o, success, "", "finished_reason=\"stop\"", (double)t->n_done_stop);
    put_sample(o, success, "", "finished_reason=\"length\"", (double)t->n_done_length);
    put_sample(o, success, "", "finished_reason=\"abort\"", (double)t->n_cancelled);
    put_sample(o, success, "", "finished_reason=\"error\"", (double)t->n_failed);
    put_meta(o, "quire_requests_late_total", "counter", "Of those with an error: requests that were not begun, by why.");
    for (int i = QR_LATE_QUEUE; i < QR_COUNT(why); i++)
        put_sample(o, "quire_requests_late_total", "", why[i], (double)t->n_late[i]);
    put_one(o, "quire_requests_accepted_total", "counter", "Requests the engine took; equals ended plus inside.", (double)t->n_accepted);
    put_one(o, "quire_kv_evicted_blocks_total", "counter", "Cached blocks whose content was given up.", (double)t->kv.n_evicted);
    put_one(o, "quire_recomputed_tokens_total", "counter", "Tokens computed again after preemption.", (double)t->sched.n_recomputed);
    put_one(o, "quire_steps_total", "counter", "Engine steps.", (double)t->n_steps);
    put_one(o, "quire_step_seconds_total", "counter", "Time spent in engine steps.", (double)t->step_us_total * 1e-6);
    put_meta(o, "quire_engine_seconds_total", "counter", "Time of the engine thread, by what it did.");
    for (int i = 0; i < QR_PARTS; i++) {
        char extra[32];
        snprintf(extra, sizeof extra, "part=\"%s\"", qr_step_part_name((enum qr_step_part)i));
        put_sample(o, "quire_engine_seconds_total", "", extra, (double)t->part_ns[i] * 1e-9);
    }
}

/* What vLLM counts for parts that this server does not have: panels show 0, as a vLLM without them does, and not that something is missing. */
static void put_absent(struct out *o)
{
    static const char *const name[] = {
        "vllm:mm_cache_queries_total", "vllm:mm_cache_hits_total",
    };
    for (int i = 0; i < QR_COUNT(name); i++)
        put_one(o, name[i], "counter", "Always 0: this server has no such part.", 0);
}

static void put_speculation(struct out *o, const struct qr_stats *t, int32_t draft_tokens)
{
    static const char by_place[] = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    char place[32];
    put_one(o, "vllm:spec_decode_num_drafts_total", "counter", "Guesses of what a sequence says next that a step checked.", (double)t->n_drafts);
    put_one(o, "vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens of them.", (double)t->n_draft_tokens);
    put_one(o, "vllm:spec_decode_num_accepted_tokens_total", "counter", "Tokens of them that were right.", (double)t->n_accepted_tokens);
    put_meta(o, by_place, "counter", "The same by their place in the guess.");
    for (int32_t i = 0; i < (draft_tokens > 0 ? draft_tokens : 1); i++) {
        snprintf(place, sizeof place, "position=\"%d\"", i);
        put_sample(o, by_place, "", place, (double)t->accepted_at[i]);
    }
}

/* By the tier that had them: blocks that came back from the host's memory are counted for all prompts, and whole. */
static void put_cached(struct out *o, const struct qr_stats *t, const struct qr_engine_limits *l)
{
    static const char by_tier[] = "vllm:prompt_tokens_cached_by_source_total";
    const double disk = (double)t->n_from_file, peers = (double)t->n_from_peer, here = (double)t->cached_tokens - disk - peers;
    const double came = (double)t->kv.n_in * l->block_tokens, host = came < here ? came : here;
    put_meta(o, by_tier, "counter", "Prompt tokens that were not computed, by where they were.");
    put_sample(o, by_tier, "", "source=\"device\"", here - host);
    put_sample(o, by_tier, "", "source=\"host\"", host);
    put_sample(o, by_tier, "", "source=\"p2p\"", peers);
    put_sample(o, by_tier, "", "source=\"disk\"", disk);
    put_sample(o, by_tier, "", "source=\"external_unspecified\"", 0);
}

static void put_histograms(struct out *o, const struct qr_stats *t)
{
#define PUT(field, bounds, name, help) put_hist(o, name, help, &t->field);
    QR_HISTOGRAMS(PUT)
#undef PUT
}

/* Labels as vLLM has them, Python's words among them. */
static void put_config(struct out *o, const struct qr_engine_limits *l)
{
    char extra[512];
    const int64_t tokens = qr_engine_tokens_of(l, l->n_blocks);
    put_meta(o, "vllm:cache_config_info", "gauge", "The cache as it was set up.");
    snprintf(extra, sizeof extra,
             "block_size=\"%d\",num_gpu_blocks=\"%d\",num_cpu_blocks=\"%d\",cache_dtype=\"%s\",enable_prefix_caching=\"%s\","
             "prefix_caching_hash_algo=\"sha256\",kv_cache_memory_bytes=\"%lld\",kv_cache_size_tokens=\"%lld\",kv_cache_max_concurrency=\"%.4f\"",
             l->block_tokens, l->n_blocks, l->n_host_blocks, qr_dtype_name(l->kv_dtype), l->prefix_cache ? "True" : "False", (long long)l->kv_bytes,
             (long long)tokens, qr_engine_contexts(l));
    put_sample(o, "vllm:cache_config_info", "", extra, 1);
    put_one(o, "vllm:model_weights_memory_bytes", "gauge", "Memory of the weights.", (double)l->weight_bytes);
    put_one(o, "quire_kv_token_bytes", "gauge", "Memory of one token's keys and values, all layers.", (double)l->kv_token_bytes);
    put_one(o, "quire_context_max_tokens", "gauge", "Longest sequence.", l->ctx_max);
}

static void put_host_tier(struct out *o, const struct qr_stats *t, const struct qr_engine_limits *l)
{
    const double block_bytes = (double)qr_engine_block_bytes(l);
    if (t->kv.n_host == 0)
        return;
    put_one(o, "quire_kv_host_blocks_total", "gauge", "Blocks of the cache's second tier, in the host's memory.", t->kv.n_host);
    put_one(o, "quire_kv_host_blocks_cached", "gauge", "Those with content.", t->kv.n_host_cached);
    put_one(o, "quire_kv_host_hit_tokens_total", "counter", "Prompt tokens found there.", (double)t->kv.n_in * l->block_tokens);
    put_one(o, "quire_kv_host_out_bytes_total", "counter", "Bytes of blocks that went there.", (double)t->kv.n_out * block_bytes);
    put_one(o, "quire_kv_host_in_bytes_total", "counter", "Bytes of blocks that came back.", (double)t->kv.n_in * block_bytes);
}

/* ---- blocks from and for elsewhere ---- */

struct row {
    const char *name, *type, *help;
    double value;
};

static void put_rows(struct out *o, const struct row *row, int n)
{
    for (int i = 0; i < n; i++)
        put_one(o, row[i].name, row[i].type, row[i].help, row[i].value);
}

static void put_held(struct out *o, const struct qr_outside_stats *t)
{
    const struct row row[] = {
        {"quire_held_requests_total", "counter", "Requests that waited for blocks from files or peers.", (double)t->n_held},
        {"quire_held_seconds_total", "counter", "How long they waited, together.", (double)t->held_us * 1e-6},
        {"quire_held_given_up_total", "counter", "Those of them that went on before all blocks had come.", (double)t->n_given_up},
    };
    put_rows(o, row, QR_COUNT(row));
}

static void put_exchange(struct out *o, const struct qr_engine *e, const struct qr_outside_stats *of)
{
    struct qr_exchange_stats t;
    if (!qr_engine_exchange_stats(e, &t))
        return;
    const struct row row[] = {
        {"quire_exchange_peers_connected", "gauge", "Peers that can be asked for blocks.", t.n_connected},
        {"quire_exchange_bytes_per_second", "gauge", "How fast blocks of peers came lately; 0: none did.", t.bytes_per_second},
        {"quire_exchange_fetches_total", "counter", "Questions to peers.", (double)t.n_fetches},
        {"quire_exchange_lends_total", "counter", "Questions of peers.", (double)t.n_lends},
        {"quire_exchange_blocks_in_total", "counter", "Blocks that came from peers.", (double)t.blocks_in},
        {"quire_exchange_blocks_out_total", "counter", "Blocks that went to peers.", (double)t.blocks_out},
        {"quire_exchange_bytes_in_total", "counter", "Bytes of blocks that came from peers.", (double)t.bytes_in},
        {"quire_exchange_bytes_out_total", "counter", "Bytes of blocks that went to peers.", (double)t.bytes_out},
        {"quire_exchange_prompts_total", "counter", "Prompts that were computed for peers.", (double)of->n_for_peers},
        {"quire_exchange_refused_total", "counter", "Connections refused: another secret, model or program.", (double)t.n_refused},
        {"quire_exchange_bad_blocks_total", "counter", "Blocks that came with a wrong sum or name, and were thrown away.", (double)t.n_bad_sum},
        {"quire_exchange_bad_frames_total", "counter", "Messages of peers that were none.", (double)t.n_bad_frame},
        {"quire_exchange_lost_total", "counter", "Connections that ended while something was asked.", (double)t.n_lost},
    };
    put_rows(o, row, QR_COUNT(row));
}

static void put_files(struct out *o, const struct qr_engine *e, const struct qr_outside_stats *of)
{
    struct qr_file_tier_stats t;
    if (!qr_engine_file_stats(e, &t))
        return;
    const struct row row[] = {
        {"quire_kv_file_blocks", "gauge", "Blocks in files.", (double)t.n_blocks},
        {"quire_kv_file_bytes", "gauge", "What the files take.", (double)t.bytes},
        {"quire_kv_file_written_blocks_total", "counter", "Blocks written to files.", (double)t.blocks_written},
        {"quire_kv_file_read_blocks_total", "counter", "Blocks read from files.", (double)t.blocks_read},
        {"quire_kv_file_written_bytes_total", "counter", "Bytes written to files.", (double)t.bytes_written},
        {"quire_kv_file_read_bytes_total", "counter", "Bytes read from files.", (double)t.bytes_read},
        {"quire_kv_file_unwritten_blocks_total", "counter", "Blocks not written as the disk was behind.", (double)of->n_unwritten},
        {"quire_kv_file_bad_blocks_total", "counter", "Blocks in files that were not what their header says, and were not used.", (double)t.n_bad_sum},
        {"quire_kv_file_full_total", "counter", "Writes that the disk had no room for.", (double)t.n_full},
        {"quire_kv_file_failed_total", "counter", "Other failures of the disk.", (double)t.n_failed},
        {"quire_kv_file_extents_dropped_total", "counter", "Files that gave way to newer ones.", (double)t.n_extents_dropped},
    };
    put_rows(o, row, QR_COUNT(row));
}

static void put_events(struct out *o, const struct qr_engine *e, const struct qr_outside_stats *of)
{
    struct qr_events_stats t;
    if (!qr_engine_events_stats(e, &t))
        return;
    const struct row row[] = {
        {"quire_kv_events_total", "counter", "Events of the cache told to routers (--kv-events).", (double)t.n_events},
        {"quire_kv_events_batches_total", "counter", "Messages that they came in.", (double)t.n_batches},
        {"quire_kv_events_lost_total", "counter", "Changes of the cache not told for want of room; routers were told to forget all instead.",
         (double)t.n_lost + (double)of->n_notes_lost},
    };
    put_rows(o, row, QR_COUNT(row));
}

static void put_outside(struct out *o, const struct qr_engine *e, const struct qr_stats *t)
{
    put_held(o, &t->outside);
    put_exchange(o, e, &t->outside);
    put_files(o, e, &t->outside);
    put_events(o, e, &t->outside);
}

/* One family: a sample for each adapter that is there. A name may be there twice while the older one's last requests run, so ids tell them apart. */
static void put_adapters(struct out *o, const struct qr_adapter_info *info, int32_t n, const char *name,
                         const char *type, const char *help, size_t offset)
{
    struct qr_buf extra = {0};
    put_meta(o, name, type, help);
    for (int32_t i = 0; i < n; i++) {
        qr_buf_clear(&extra);
        qr_buf_put_str(&extra, "adapter=\"");
        put_label_value(&extra, info[i].name);
        qr_buf_printf(&extra, "\",id=\"%llu\"", (unsigned long long)info[i].id);
        put_sample(o, name, "", extra.data, (double)*(const uint64_t *)(const void *)((const char *)&info[i] + offset));
    }
    qr_buf_release(&extra);
}

/* What gateways place requests for adapters by: as many as fit, and those that have requests inside. The value is the time, as vLLM has it. */
static void put_lora_info(struct out *o, const struct qr_adapter_info *info, int32_t n, const struct qr_engine_limits *l)
{
    static const char name[] = "vllm:lora_requests_info";
    struct qr_buf extra = {0};
    qr_buf_printf(&extra, "max_lora=\"%d\",waiting_lora_adapters=\"\",running_lora_adapters=\"", l->lora_slots);
    const size_t empty = extra.len;
    for (int32_t i = 0; i < n; i++) {
        if (info[i].n_inside == 0)
            continue;
        if (extra.len > empty)
            qr_buf_put_byte(&extra, ',');
        put_label_value(&extra, info[i].name);
    }
    qr_buf_put_byte(&extra, '"');
    put_meta(o, name, "gauge", "Adapters that requests inside want; the value is the time.");
    put_sample(o, name, "", extra.data, (double)time(NULL));
    qr_buf_release(&extra);
}

static void put_lora(struct out *o, const struct qr_engine *e)
{
#define AT(field) offsetof(struct qr_adapter_info, field)
    struct qr_adapter_info *info = qr_alloc(QR_ADAPTERS_MAX, sizeof *info);
    const int32_t n = qr_engine_adapters(e, info, QR_ADAPTERS_MAX);
    put_one(o, "quire_lora_adapters", "gauge", "Adapters in slots.", n);
    put_one(o, "quire_lora_memory_bytes", "gauge", "Memory of the slots for adapters.", (double)qr_engine_limits(e)->lora_bytes);
    put_lora_info(o, info, n, qr_engine_limits(e));
    put_adapters(o, info, n, "quire_lora_requests_total", "counter", "Requests accepted, by adapter.", AT(n_requests));
    put_adapters(o, info, n, "quire_lora_requests_inside", "gauge", "Requests that have not ended, by adapter.",
                 AT(n_inside));
    put_adapters(o, info, n, "quire_lora_prompt_tokens_total", "counter",
                 "Prompt tokens of requests that ended, by adapter.", AT(prompt_tokens));
    put_adapters(o, info, n, "quire_lora_generation_tokens_total", "counter",
                 "Generated tokens of requests that ended, by adapter.", AT(output_tokens));
    qr_free(info);
}

/* ---- keys ---- */

/* Keys that have done something, by name; those without a label of their own together. */
static void put_keys(struct out *o, const struct qr_keys *keys)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } row[] = {
        {"quire_key_requests_total", "Calls, by key.", offsetof(struct qr_key_use, n_requests)},
        {"quire_key_errors_total", "Those of them that ended with an error.", offsetof(struct qr_key_use, n_errors)},
        {"quire_key_prompt_tokens_total", "Prompt tokens of accepted requests, by key.", offsetof(struct qr_key_use, prompt_tokens)},
        {"quire_key_prompt_tokens_cached_total", "Of those, taken from the prefix cache.", offsetof(struct qr_key_use, cached_tokens)},
        {"quire_key_generation_tokens_total", "Generated tokens, by key.", offsetof(struct qr_key_use, output_tokens)},
    };
    for (int i = 0; i < QR_COUNT(row); i++) {
        const struct qr_key *key;
        char extra[QR_KEY_NAME_MAX + 8];
        put_meta(o, row[i].name, "counter", row[i].help);
        for (int32_t k = 0; (key = qr_keys_at(keys, k)) != NULL; k++) {
            if (key->label != QR_LABEL_OWN || key->use.n_requests == 0)
                continue;
            snprintf(extra, sizeof extra, "key=\"%s\"", key->name);
            put_sample(o, row[i].name, "", extra, (double)*(const int64_t *)(const void *)((const char *)&key->use + row[i].offset));
        }
        const struct qr_key_use *others = qr_keys_others(keys);
        if (others->n_requests > 0)
            put_sample(o, row[i].name, "", "key=\"other\"", (double)*(const int64_t *)(const void *)((const char *)others + row[i].offset));
    }
}

/* ---- the server ---- */

/* As vLLM's API server counts: requests of clients, not of probes. The first route is there from the start, so that queries have an answer. */
static void put_http(struct out *o, const struct qr_conn_stats *t)
{
    static const char total[] = "http_requests_total", time[] = "http_request_duration_seconds";
    int32_t n;
    const struct qr_route *route = qr_routes(&n);
    char extra[160];
    put_meta(o, total, "counter", "Answers of the API's routes, by class of status.");
    for (int32_t i = 0; i < n; i++)
        for (int k = 2; k < 6 && route[i].access == QR_ACCESS_USER; k++) {
            snprintf(extra, sizeof extra, "handler=\"%s\",method=\"%s\",status=\"%dxx\"", route[i].path, route[i].method, k);
            if (i == 0 || t->route[i + 1].n_replies[k] > 0)
                put_sample(o, total, "", extra, (double)t->route[i + 1].n_replies[k]);
        }
    put_meta(o, time, "summary", "Time from the head of a request to the end of its answer, streams included.");
    for (int32_t i = 0; i < n; i++) {
        int64_t n_replies = 0;
        for (int k = 0; k < QR_COUNT(t->route[i + 1].n_replies); k++)
            n_replies += t->route[i + 1].n_replies[k];
        if (route[i].access != QR_ACCESS_USER || (i > 0 && n_replies == 0))
            continue;
        snprintf(extra, sizeof extra, "handler=\"%s\",method=\"%s\"", route[i].path, route[i].method);
        put_sample(o, time, "_sum", extra, (double)t->route[i + 1].us * 1e-6);
        put_sample(o, time, "_count", extra, (double)n_replies);
    }
}

static int32_t count_open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int32_t n = -1; /* but for the one that looks */
    for (const struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n < 0 ? 0 : n;
}

/* The names that Prometheus' own libraries use. */
static void put_process(struct out *o, const struct qr_server *s)
{
    struct rusage u;
    struct rlimit l;
    getrusage(RUSAGE_SELF, &u);
    const double cpu_s = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
    put_one(o, "process_start_time_seconds", "gauge", "When the server began, in seconds since 1970.", (double)s->started_s);
    put_one(o, "process_cpu_seconds_total", "counter", "Processor time of all threads.", cpu_s);
    put_one(o, "process_resident_memory_bytes", "gauge", "Resident memory.", (double)qr_memory_of_process("VmRSS"));
    put_one(o, "process_open_fds", "gauge", "Open files and sockets.", count_open_files());
    if (getrlimit(RLIMIT_NOFILE, &l) == 0)
        put_one(o, "process_max_fds", "gauge", "What the limit of open files allows.", (double)l.rlim_cur);
}

static void put_server(struct out *o, struct qr_server *s)
{
    static const char *const route[] = {"", "route=\"chat\"", "route=\"completions\"", "route=\"embeddings\"",
                                        "route=\"tokenize\"", "route=\"messages\"", "route=\"responses\"", "route=\"ollama\"",
                                        "route=\"rerank\"", "route=\"score\"", "route=\"cache_pin\""};
    const struct qr_conn_env *env = qr_http_env(s->http);
    const struct qr_conn_stats *t = &env->stats;
    put_one(o, "quire_http_connections", "gauge", "Open connections, this one included.", env->n_conns);
    put_one(o, "quire_http_connections_total", "counter", "Connections accepted.", (double)t->n_accepted);
    put_one(o, "quire_http_refused_connections_total", "counter", "Connections refused at a limit.", (double)t->n_refused);
    put_one(o, "quire_http_slow_readers_total", "counter", "Connections ended because the client did not read.", (double)t->n_slow);
    put_one(o, "quire_http_timeouts_total", "counter", "Requests given up because they arrived too slowly.", (double)t->n_timeouts);
    put_one(o, "quire_http_received_bytes_total", "counter", "Bytes read from clients.", (double)t->bytes_in);
    put_one(o, "quire_http_sent_bytes_total", "counter", "Bytes written to clients.", (double)t->bytes_out);
    put_meta(o, "quire_http_responses_total", "counter", "Responses by class of status.");
    for (int i = 2; i < 6; i++) {
        char extra[32];
        snprintf(extra, sizeof extra, "status=\"%dxx\"", i);
        put_sample(o, "quire_http_responses_total", "", extra, (double)t->n_replies[i]);
    }
    put_http(o, t);
    put_meta(o, "quire_calls_total", "counter", "API calls begun, by route.");
    for (int i = QR_COUNTED_CHAT; i < QR_COUNTED_N; i++)
        put_sample(o, "quire_calls_total", "", route[i], (double)s->n_begun[i]);
    static const char *const hint[] = {[QR_HINT_ASKED] = "result=\"asked\"", [QR_HINT_FOREIGN] = "result=\"foreign_engine\"",
                                       [QR_HINT_NO_PEER] = "result=\"no_peer\""};
    put_meta(o, "quire_peer_hints_total", "counter", "Requests in which a router named a peer, by what became of that.");
    for (int i = 0; i < QR_HINTS; i++)
        put_sample(o, "quire_peer_hints_total", "", hint[i], (double)atomic_load_explicit(&s->n_hints[i], memory_order_relaxed));
    put_one(o, "quire_requests_bytes", "gauge", "Memory that requests hold of --max-bodies-size.", (double)atomic_load(&s->budget.used_bytes));
    put_one(o, "quire_requests_bytes_max", "gauge", "What they may hold.", (double)s->budget.max_bytes);
    if (s->forms)
        put_one(o, "quire_grammars_bytes", "gauge", "Memory that compiled grammars hold of --grammar-cache.", (double)qr_forms_bytes(s->forms));
    int64_t n_bytes;
    const int64_t n_stored = qr_responses_count(s->responses, &n_bytes);
    put_one(o, "quire_stored_responses", "gauge", "Responses that /v1/responses has stored.", (double)n_stored);
    put_one(o, "quire_stored_responses_bytes", "gauge", "Memory that they hold of --responses-size.", (double)n_bytes);
    if (s->access)
        put_one(o, "quire_access_log_lost_lines_total", "counter", "Lines of --access-log that could not be written in time.",
                (double)qr_access_log_lost(s->access));
    put_one(o, "quire_calls", "gauge", "API calls that have not ended.", s->n_calls);
    put_one(o, "quire_submitted_requests_total", "counter", "Requests handed to the engine.", (double)s->n_submitted);
    put_one(o, "quire_ended_requests_total", "counter", "Requests whose last event came back.", (double)s->n_ended);
    put_one(o, "quire_ready", "gauge", "1 when new requests are served.", qr_server_trouble(s) == NULL);
}

void qr_metrics_put(struct qr_buf *out, struct qr_server *s)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL);
    struct out o = {.b = out};
    qr_buf_put_str(&o.labels, "model_name=\"");
    put_label_value(&o.labels, s->n_names > 0 ? s->names[0] : "");
    qr_buf_put_str(&o.labels, "\",engine=\"0\"");
    put_process(&o, s);
    put_server(&o, s);
    put_keys(&o, s->keys);
    if (s->phase == QR_PHASE_READY) {
        struct qr_stats stats;
        qr_engine_stats(s->model.engine, &stats);
        put_gauges(&o, &stats);
        put_counters(&o, &stats);
        put_cached(&o, &stats, qr_engine_limits(s->model.engine));
        put_absent(&o);
        put_speculation(&o, &stats, qr_engine_limits(s->model.engine)->draft_tokens);
        put_histograms(&o, &stats);
        put_config(&o, qr_engine_limits(s->model.engine));
        put_host_tier(&o, &stats, qr_engine_limits(s->model.engine));
        put_outside(&o, s->model.engine, &stats);
        put_lora(&o, s->model.engine);
    }
    qr_buf_release(&o.labels);
}
