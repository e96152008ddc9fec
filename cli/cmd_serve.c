/* cmd_serve.c - the server and its engine put together: listen first, open the model on a second thread, say what was
 * decided, serve. Ranks are made before any thread exists. The main thread becomes the server's loop thread; the second
 * one opens the engine and tells the loop. At the end connections go first, then the engine, then ranks; the exit
 * status is the worst of all. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/pair.h"
#include "engine/adapters.h"
#include "engine/exchange.h"
#include "server/sandbox.h"
#include "server/server.h"
#include "tokenizer/chat.h"

#define LORA_MORE 4            /* slots for adapters that come while the server runs */
#define EVENT_NOTES 8192       /* changes of the cache that may wait to be told: those of some steps */
#define CACHE_TOKENS_LEAST 256 /* a cache of fewer holds no prompt worth serving, and is warned of */

struct serve_options {
    struct qr_cli_model m;
    struct qr_cli_engine e;
    struct qr_cli_lora l;
    struct qr_cli_outside out;
    struct qr_server_config s;
    struct {
        const char *endpoint, *replay, *topic;
        int32_t arrays; /* index of its choices */
    } events;
    int32_t role; /* enum qr_side */
    bool verbose, sandbox, pair;
};

/* Owned by the main thread; the loader fills tokenizer, chat and engine before it says ready, and is joined before they are used again. */
struct serve {
    const struct serve_options *o;
    struct qr_comm_team team;
    struct qr_server *server;
    struct qr_tokenizer *tokenizer;
    struct qr_chat *chat;
    struct qr_pooling_config pooling;
    struct qr_scorer scorer;
    struct qr_engine *engine;
    struct qr_events *events; /* what the engine's cache does; NULL: no router is told */
    char *name; /* the directory's or GGUF file's own name, or ORG/NAME of the hub */
    int64_t available_bytes; /* before anything was opened */
    int64_t requests_bytes, grammars_bytes; /* what requests, and compiled grammars, may hold */
    struct qr_warmed warmed;
    int64_t started_us;
    int status; /* of the loader: 0, or the exit status of what went wrong */
    atomic_bool loaded; /* or failed: the loader is about to say so */
};

static char *own_name(const char *dir)
{
    char hub[QR_HUB_NAME_MAX];
    if (qr_hub_name_of_path(hub, dir))
        return qr_strdup(hub);
    char *path = realpath(dir, NULL);
    const char *from = path ? path : dir, *slash = strrchr(from, '/');
    char *name = qr_strdup(slash && slash[1] ? slash + 1 : from);
    if (qr_ends_with(name, ".gguf"))
        *strrchr(name, '.') = 0;
    free(path);
    return name;
}

static void print_adapters(const struct serve *s, const struct qr_engine_limits *l)
{
    if (l->lora_slots == 0)
        return;
    const char *dir = s->o->s.lora_dir;
    char size[QR_SIZE_TEXT];
    fprintf(stderr, "lora    %d of %d slots in use, ranks up to %d, %s%s%s\n", s->o->l.adapters.n, l->lora_slots, l->lora_rank_max,
            qr_size_text(size, l->lora_bytes), dir ? "; more from " : "", dir ? dir : "");
}

static void print_outside(const struct serve *s)
{
    const struct qr_cli_outside *o = &s->o->out;
    const char *address = qr_engine_peer_address(s->engine);
    char size[QR_SIZE_TEXT];
    if (address || o->peers.n > 0)
        fprintf(stderr, "peers   %d to ask for blocks%s%s\n", o->peers.n, address ? "; asked at " : "", address ? address : "");
    if (o->file_dir)
        fprintf(stderr, "files   blocks are kept in %s, up to %s\n", o->file_dir, qr_size_text(size, (int64_t)(o->file_gib * 0x1p30)));
    if (s->events)
        fprintf(stderr, "events  %s%s%s\n", qr_events_endpoint(s->events, false), s->o->events.replay ? "   again from " : "",
                s->o->events.replay ? qr_events_endpoint(s->events, true) : "");
}

/* What the model leaves. */
static int64_t left_bytes(const struct serve *s)
{
    const struct qr_engine_limits *l = qr_engine_limits(s->engine);
    const int64_t taken = l->weight_bytes + l->act_bytes + l->scratch_bytes + l->table_bytes + l->lora_bytes + l->kv_bytes + l->kv_host_bytes;
    return l->on_host ? s->available_bytes - taken : qr_memory_available();
}

/* What is likely not meant, as the last thing that is read. */
static void print_warnings(const struct serve *s, const struct qr_engine_limits *l, const struct qr_model_config *c)
{
    const struct qr_cli_engine *e = &s->o->e;
    const int32_t n_tokens = (int32_t)qr_engine_tokens_of(l, l->n_blocks), least = c->ctx_max < CACHE_TOKENS_LEAST ? c->ctx_max : CACHE_TOKENS_LEAST;
    const bool bold = isatty(STDERR_FILENO);
    char t[2][QR_SIZE_TEXT];
    const char *begin = bold ? "\033[1mWARNING\033[0m" : "WARNING", *flag = e->kv_bytes > 0 ? "--kv-bytes" : "--kv-tokens";
    if (n_tokens < least && e->max_len == 0)
        fprintf(stderr, "%s the cache holds %d tokens, and no prompt with its answer can be longer: raise %s\n", begin, n_tokens, flag);
    if (s->requests_bytes < s->o->s.bodies_bytes)
        fprintf(stderr, "%s memory is short: requests may hold %s together, not the %s of --max-bodies-size\n", begin,
                qr_size_text(t[0], s->requests_bytes), qr_size_text(t[1], s->o->s.bodies_bytes));
    if (qr_server_is_open(s->server))
        fprintf(stderr, "%s anyone who can reach %s can use this server: set --api-key KEY, or --host 127.0.0.1\n", begin,
                qr_server_reachable(s->server));
}

/* Where clients find it. */
static void print_addresses(const struct serve *s, const char *name, bool headless)
{
    static const struct {
        const char *route, *body;
    } trials[] = {{"completions", "\"prompt\": \"Once upon a time\", \"max_tokens\": 64"},
                  {"embeddings", "\"input\": \"Once upon a time\""},
                  {"rerank", "\"query\": \"What do cats do?\", \"documents\": [\"Cats sleep.\", \"Once upon a time\"]"}};
    const int trial = s->scorer.kind != QR_SCORER_NONE ? 2 : headless;
    const char *to = qr_server_reachable(s->server), *scheme = qr_server_scheme(s->server);
    const bool keyed = s->o->s.api_keys.n > 0 || s->o->s.admin_keys.n > 0 || s->o->s.api_key_file || s->o->s.admin_key_file;
    const bool in_files = strcmp(scheme, "unix") == 0, chat = trial == 0 && strcmp(scheme, "http") == 0;
    fprintf(stderr, "ready   %s:%s%s   api /v1   metrics /metrics   (%.2f s)\n", scheme, in_files ? "" : "//", qr_server_address(s->server),
            (double)(qr_clock_us() - s->started_us) * 1e-6);
    if (!in_files)
        fprintf(stderr, "try     %s://%s/ in a browser\n", scheme, to);
    if (chat)
        fprintf(stderr, "        %s chat --url http://%s%s\n", program_invocation_name, to, keyed ? " --api-key KEY" : "");
    fprintf(stderr, "%s     curl %s%s%s/v1/%s%s -H 'Content-Type: application/json' -d '{\"model\": \"%s\", %s}'\n", in_files ? "try" : "   ",
            in_files ? "--unix-socket " : scheme, in_files ? to : "://", in_files ? " http://localhost" : to, trials[trial].route,
            keyed ? " -H 'Authorization: Bearer KEY'" : "", name, trials[trial].body);
}

static void banner(const struct serve *s, int64_t opened_us)
{
    const struct qr_engine_limits *l = qr_engine_limits(s->engine);
    if (s->o->pair && s->o->role == QR_ROLE_PREFILL) { /* the other says what there is to say of both */
        qr_log(QR_LOG_INFO, "engine", "ready cache_tokens=%lld opened_ms=%lld", (long long)qr_engine_tokens_of(l, l->n_blocks), (long long)opened_us / 1000);
        return;
    }
    const struct qr_model_config *c = qr_engine_model(s->engine);
    const char *name = s->o->s.served_names.n > 0 ? s->o->s.served_names.item[0] : s->name;
    char t[4][QR_SIZE_TEXT];
    fprintf(stderr, "quire %s (%s)\n", QUIRE_VERSION, qr_cpu_describe());
    fprintf(stderr, "model   %s  %s, %d layers of %d, vocabulary %d   opened in %.2f s\n", name, c->arch_name, c->n_layers, c->n_embd, c->n_vocab,
            (double)opened_us * 1e-6);
    fprintf(stderr, "memory  weights %s (%s) + cache %s + step %s + tables %s\n", qr_size_text(t[0], l->weight_bytes), qr_dtype_name(l->weight_dtype),
            qr_size_text(t[1], l->kv_bytes), qr_size_text(t[2], l->act_bytes + l->scratch_bytes), qr_size_text(t[3], l->table_bytes));
    fprintf(stderr, "cache   %lld tokens in %d blocks of %d, %s  (%.1fx the context of %d)\n", (long long)qr_engine_tokens_of(l, l->n_blocks), l->n_blocks,
            l->block_tokens, qr_dtype_name(l->kv_dtype), qr_engine_contexts(l), l->ctx_max);
    if (l->n_twins > 0)
        fprintf(stderr, "        %d of the %d blocks of %d tokens are given back behind the window of %d\n", l->n_twins, 1 + l->n_twins, l->block_tokens,
                c->window);
    if (l->n_host_blocks > 0)
        fprintf(stderr, "        and %d blocks, %s, in the host's memory%s\n", l->n_host_blocks, qr_size_text(t[0], l->kv_host_bytes),
                l->on_host ? ", where the cache is as well: of use on a GPU only" : "");
    fprintf(stderr, "limits  %d running, %d waiting, bodies of %s, requests of %s, grammars of %s, context %d tokens%s\n", l->running_max,
            l->waiting_max, qr_size_text(t[0], s->o->s.body_bytes), qr_size_text(t[1], s->requests_bytes), qr_size_text(t[2], s->grammars_bytes),
            l->ctx_max, l->ctx_max < c->ctx_max ? " (what fits)" : "");
    if (l->draft.token_bytes > 0)
        fprintf(stderr, "draft   %s guesses tokens: weights %s, %s a token of the cache, step %s, all of the above\n", s->o->e.draft_model,
                qr_size_text(t[0], l->draft.weight_bytes), qr_size_text(t[1], l->draft.token_bytes), qr_size_text(t[2], l->draft.act_bytes));
    if (l->n_ranks > 1)
        fprintf(stderr, "ranks   %d processes (%s) share the model; memory is that of each, or less\n", l->n_ranks, qr_comm_name(&s->team.comm));
    print_adapters(s, l);
    print_outside(s);
    if (s->warmed.n_prompts > 0)
        fprintf(stderr, "warm    %d prompts, %lld tokens computed in %.2f s, %d pinned\n", s->warmed.n_prompts, (long long)s->warmed.n_tokens,
                (double)s->warmed.us * 1e-6, s->warmed.n_pinned);
    if (s->scorer.kind != QR_SCORER_NONE)
        fprintf(stderr, "scores  %s (/v1/rerank, /v1/score)\n", qr_scorer_name(&s->scorer));
    if (l->tuned_shapes > 0)
        fprintf(stderr, "tuned   by measurements of %d shapes on this kind of processor\n", l->tuned_shapes);
    print_addresses(s, name, c->headless);
    print_warnings(s, l, c);
}

/* The names of --lora, which must not be what the model is called. */
static int check_adapters(const struct serve_options *o, const char *own, struct qr_err *err)
{
    const struct qr_str_list *list = &o->l.adapters, *served = &o->s.served_names;
    int rc = 0;
    for (int32_t i = 0; i < list->n && rc == 0; i++) {
        const char *dir;
        char *name = qr_cli_lora_name(list->item[i], &dir, err);
        if (!name)
            return err->code;
        bool taken = served->n == 0 && strcmp(name, own) == 0;
        for (int32_t k = 0; k < served->n; k++)
            taken |= strcmp(name, served->item[k]) == 0;
        rc = taken ? qr_err_set(err, QR_E_USAGE, "--lora %s: that is what the model itself is called", list->item[i]) : 0;
        qr_free(name);
    }
    return rc;
}

/* Adapters of --lora, once the engine is there. */
static int load_adapters(struct serve *s, struct qr_err *err)
{
    const struct qr_str_list *list = &s->o->l.adapters;
    int rc = 0;
    for (int32_t i = 0; i < list->n && rc == 0; i++) {
        const char *dir;
        char *name = qr_cli_lora_name(list->item[i], &dir, err);
        QR_ASSERT(name != NULL); /* check_adapters */
        rc = qr_engine_load_adapter(s->engine, &(struct qr_adapter_source){.name = name, .dir = dir}, err);
        if (rc)
            qr_err_prefix(err, "--lora %s: ", list->item[i]);
        qr_free(name);
    }
    return rc;
}

/* It may come later, so this is no error; nor should a misspelt one be found only when the first adapter is loaded. */
static void check_lora_dir(const char *dir)
{
    struct stat st;
    if (dir && (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)))
        qr_log(QR_LOG_WARN, "lora", "--lora-dir is no directory now, nothing can be loaded from it: %s", dir);
}

/* What the rows of its texts become, beside text: an embedding, a score. */
static int find_uses(struct serve *s, const struct qr_source *source, struct qr_err *err)
{
    const bool asked = s->o->s.reranker != 0;
    qr_scorer_find(&s->scorer, source, asked);
    if (asked && s->scorer.kind != QR_SCORER_YES_NO)
        return qr_err_set(err, QR_E_USAGE, "--reranker yes-no: %s",
                          s->scorer.note[0] ? s->scorer.note : "the model is a classifier, which scores pairs by itself");
    qr_pooling_read(&s->pooling, source, (enum qr_pooling)s->o->s.pooling);
    if (s->pooling.note[0] && s->scorer.kind == QR_SCORER_NONE)
        qr_log(QR_LOG_WARN, "loader", "%s: %s", s->pooling.pooling == QR_POOLING_NONE ? "no embeddings" : "embeddings", s->pooling.note);
    return 0;
}

static void load_scorer(struct serve *s, struct qr_source *source)
{
    int32_t id[QR_SCORER_WORDS];
    for (int i = 0; i < QR_SCORER_WORDS; i++)
        id[i] = qr_tokenizer_token_id(s->tokenizer, qr_scorer_word[i], strlen(qr_scorer_word[i]));
    if (s->scorer.kind != QR_SCORER_NONE)
        qr_scorer_load(&s->scorer, source, id);
}

static int open_events(struct serve *s, struct qr_engine_config *ec, struct qr_err *err)
{
    const struct serve_options *o = s->o;
    const struct qr_events_config c = {.endpoint = o->events.endpoint, .replay = o->events.replay, .topic = o->events.topic ? o->events.topic : "",
                                       .maps = !o->events.arrays, .block_tokens = ec->block_tokens, .n_notes = EVENT_NOTES};
    const int rc = c.endpoint ? qr_events_open(&s->events, &c, err) : 0;
    ec->outside.events = s->events;
    return rc;
}

static int check_events(const struct serve_options *o, struct qr_err *err)
{
    if (o->events.endpoint && !o->e.prefix_cache)
        return qr_err_set(err, QR_E_USAGE, "--kv-events tells of blocks of the prefix cache, which is off (--no-prefix-cache): leave one of them out");
    return qr_events_check(o->events.endpoint, o->events.replay, err);
}

static int load(struct serve *s, struct qr_err *err)
{
    struct qr_model_options mo;
    struct qr_backend_options bo;
    struct qr_engine_config ec;
    const char *dir = s->o->m.model;
    struct qr_source *source;
    qr_cli_model_options(&mo, &bo, &s->o->m);
    qr_cli_engine_config(&ec, &s->o->e);
    qr_cli_outside_config(&ec, &s->o->out);
    mo.comm = qr_comm_team_comm(&s->team);
    mo.embeds = true;
    int rc = qr_source_open(&source, dir, err);
    if (rc != 0)
        return rc;
    check_lora_dir(s->o->s.lora_dir);
    rc = check_adapters(s->o, s->name, err);
    rc = rc ? rc : qr_cli_lora_config(&ec, &s->o->l, s->o->s.lora_dir ? LORA_MORE : 0, source, err);
    rc = rc ? rc : find_uses(s, source, err);
    rc = rc ? rc : open_events(s, &ec, err);
    if (rc != 0) {
        qr_source_unref(source);
        return rc;
    }
    mo.source = source;
    struct qr_progress progress;
    qr_cli_progress_begin(&progress, &mo);
    struct qr_engine *e = qr_engine_begin(dir, &ec, &bo, &mo, qr_server_wake, s->server);
    struct qr_err not_needed;
    rc = qr_tokenizer_open_from(&s->tokenizer, source, err);
    if (rc == 0)
        rc = qr_chat_open_from(&s->chat, source, err);
    if (rc == 0)
        load_scorer(s, source);
    const int finished = qr_engine_finish(e, rc == 0 ? s->tokenizer : NULL, rc == 0 ? err : &not_needed);
    qr_progress_end(&progress);
    if (finished == 0) {
        s->engine = e;
        qr_engine_set_role(e, (enum qr_side)s->o->role);
    }
    if (finished == 0 && s->scorer.note[0])
        qr_log(QR_LOG_WARN, "loader", "no scores of pairs: %s", s->scorer.note);
    qr_source_unref(source);
    rc = rc != 0 ? rc : finished;
    return rc != 0 ? rc : load_adapters(s, err);
}

static struct qr_server_model model_of(const struct serve *s)
{
    return (struct qr_server_model){.engine = s->engine, .tokenizer = s->tokenizer, .chat = s->chat, .pooling = s->pooling, .scorer = &s->scorer,
                                    .requests_bytes = s->requests_bytes, .grammars_bytes = s->grammars_bytes,
                                    .names = (const char *const *)&s->name, .n_names = 1};
}

static int load_and_warm(struct serve *s, struct qr_err *err)
{
    const int rc = load(s, err);
    const struct qr_server_model model = model_of(s);
    return rc ? rc : qr_server_warm_up(s->server, &model, &s->warmed, err);
}

static void *loader(void *arg)
{
    struct serve *s = arg;
    struct qr_err err;
    qr_thread_set_name("quire-loader");
    int64_t t0 = qr_clock_us();
    if (load_and_warm(s, &err) != 0) {
        s->status = qr_command_fail("serve", &err);
        atomic_store(&s->loaded, true);
        qr_server_set_failed(s->server);
        return NULL;
    }
    atomic_store(&s->loaded, true);
    s->requests_bytes = qr_cli_requests_bytes(s->o->s.bodies_bytes, left_bytes(s));
    s->grammars_bytes = qr_cli_grammars_bytes(s->o->s.grammars_bytes, left_bytes(s));
    banner(s, qr_clock_us() - t0 - s->warmed.us);
    if (s->o->sandbox && qr_sandbox_enter(&err) != 0) {
        s->status = qr_command_fail("serve", &err);
        qr_server_set_failed(s->server);
        return NULL;
    }
    const struct qr_server_model model = model_of(s);
    qr_server_set_ready(s->server, &model);
    return NULL;
}

/* Ends all ranks; none may outlive the service. The status is that of the worst. */
static int end_team(struct serve *s, int status, int rc, struct qr_err *err)
{
    if (qr_comm_team_end(&s->team, rc, err) == 0)
        return status;
    const int failed = qr_command_fail("serve", err);
    return status != 0 ? status : failed;
}

static void hear_nothing(int signum)
{
}

/* Signals that scripts and service managers send for reasons of their own. The loop logs SIGHUP once there is one; nohup's wish is kept. */
static void outlive_signals(void)
{
    static const int harmless[] = {SIGUSR1, SIGUSR2, SIGALRM};
    for (int i = 0; i < QR_COUNT(harmless); i++)
        signal(harmless[i], SIG_IGN);
    if (signal(SIGHUP, hear_nothing) == SIG_IGN)
        signal(SIGHUP, SIG_IGN);
}

static int serve(const struct serve_options *o)
{
    struct serve s = {.o = o, .started_us = qr_clock_us()};
    struct qr_err err;
    pthread_t thread;
    int rc = qr_cli_need_model(&o->m, &err);
    if (rc == 0)
        rc = qr_cli_team_begin(&s.team, &o->m, &err);
    if (rc != 0)
        return qr_command_fail("serve", &err);
    if (s.team.comm.rank > 0)
        return qr_cli_follow(&s.team, &o->m, &o->e);
    qr_mem_keep_little();
    s.available_bytes = qr_memory_available();
    struct qr_server_config config = o->s;
    config.commit = qr_cli_commit();
    config.level = qr_cpu_level();
    rc = qr_server_open(&s.server, &config, &err);
    if (rc != 0)
        return end_team(&s, 0, rc, &err);
    qr_mem_populate_program(); /* clients wait in the socket's queue meanwhile */
    s.name = own_name(o->m.model);
    qr_thread_start(&thread, loader, &s, "opening the model");
    int status = qr_server_run(s.server);
    if (!atomic_load(&s.loaded)) { /* opening a model may take minutes, and its result has no use any more; ranks and half-written files go as with any end */
        qr_log(QR_LOG_INFO, "server", "stopped while the model was being opened");
        _exit(status);
    }
    pthread_join(thread, NULL);
    if (s.status != 0)
        rc = qr_err_set(&err, QR_E_CLOSED, "the model could not be loaded");
    else if (s.engine && qr_engine_lost(s.engine, &err))
        rc = err.code;
    qr_engine_close(s.engine);
    qr_events_close(s.events);
    qr_server_close(s.server);
    qr_pooling_release(&s.pooling);
    qr_scorer_release(&s.scorer);
    qr_chat_close(s.chat);
    qr_tokenizer_close(s.tokenizer);
    qr_free(s.name);
    if (s.status != 0) /* has been told */
        qr_comm_team_end(&s.team, rc, &err);
    else
        status = end_team(&s, status, rc, &err);
    return s.status != 0 ? s.status : status;
}

/* What --pair decides itself. */
static int check_pair(const struct serve_options *o, struct qr_err *err)
{
    const struct {
        const char *flag;
        bool given;
    } with[] = {{"--role", o->role != QR_ROLE_BOTH}, {"--peer", o->out.peers.n > 0}, {"--peer-listen", o->out.listen != NULL},
                {"--peer-secret-file", o->out.secret_file != NULL}, {"--tensor-parallel", o->m.tensor_parallel > 1}};
    for (int i = 0; o->pair && i < QR_COUNT(with); i++)
        if (with[i].given)
            return qr_err_set(err, QR_E_USAGE, "--pair starts two processes that know each other: leave %s out", with[i].flag);
    return 0;
}

/* The settings of one of both: half of the memory; what a service has once is the decoding process's, as clients reach that alone. */
static void settings_of_side(struct serve_options *o, struct qr_pair *p)
{
    o->m.cpus = NULL;
    o->e.sharing = 2;
    o->role = p->prefill ? QR_ROLE_PREFILL : QR_ROLE_DECODE;
    if (!p->prefill) {
        o->out.peers = (struct qr_str_list){.item = &p->peer, .n = 1};
        return;
    }
    o->out.listen = p->peer;
    o->out.file_dir = o->events.endpoint = o->events.replay = NULL;
    o->s.unix_socket = p->http;
    o->s.tls_cert = o->s.tls_key = o->s.api_key_file = o->s.admin_key_file = o->s.metrics_key_file = o->s.access_log = o->s.warm_up = NULL;
    o->s.api_keys = o->s.admin_keys = o->s.metrics_keys = (struct qr_str_list){0};
    o->s.drain_us = 0;
    qr_log_set_process("prefill");
    unsetenv("NOTIFY_SOCKET");
}

static int serve_pair(const struct serve_options *given)
{
    struct serve_options o = *given;
    struct qr_pair pair;
    struct qr_err err;
    int rc = qr_cli_need_model(&o.m, &err);
    rc = rc ? rc : o.m.cpus ? qr_cpus_keep_to(o.m.cpus, &err) : 0; /* of which each has a part */
    rc = rc ? rc : qr_pair_begin(&pair, &err);
    if (rc)
        return qr_command_fail("serve", &err);
    settings_of_side(&o, &pair);
    const int status = serve(&o);
    qr_pair_end(&pair);
    return status;
}

static const struct qr_option table[] = {
    QR_CLI_MODEL_ROWS(struct serve_options, m), QR_CLI_MEETING_ROWS(struct serve_options, m), QR_CLI_ENGINE_ROWS(struct serve_options, e),
    QR_CLI_LORA_ROWS(struct serve_options, l), QR_CLI_OUTSIDE_ROWS(struct serve_options, out),
    QR_OPTION(struct serve_options, e.ttft_goal_us, TIME, "ttft-goal", .builtin = "0", .min = 0, .max = 3600e6, .arg = "TIME", .group = "Limits",
              .help = "Time from arrival to the first token to aim at: a request that is predicted to miss it is answered 429 with the "
                      "estimate, and --itl-goal is held by running fewer sequences. 0: none."),
    QR_OPTION(struct serve_options, events.endpoint, STR, "kv-events", .arg = "ENDPOINT", .group = "Routers",
              .help = "Tell routers over ZeroMQ which blocks the prefix cache has, in vLLM's format: tcp://HOST:PORT (HOST *: all addresses) or ipc:///PATH. "
                      "Events carry token ids, which are prompts."),
    QR_OPTION(struct serve_options, events.replay, STR, "kv-events-replay", .arg = "ENDPOINT", .group = "Routers",
              .help = "Where a router that missed some asks for the last 4,096 batches again."),
    QR_OPTION(struct serve_options, events.arrays, ENUM, "kv-events-format", .builtin = "maps", .choices = "maps|arrays", .group = "Routers",
              .help = "How an event is written: maps, as vLLM has done since 0.29 and vllm-router wants it; or arrays, as before."),
    QR_OPTION(struct serve_options, events.topic, STR, "kv-events-topic", .arg = "TEXT", .group = "Routers",
              .help = "What events are labelled with; empty where it is not given, as vllm-router expects it. llm-d wants kv@ADDRESS@MODEL."),
    QR_OPTION(struct serve_options, role, ENUM, "role", .builtin = "both", .choices = "both|prefill|decode", .group = "Peers",
              .help = "What this process does first, which POST /v1/role may change. decode: prompts are computed by a peer; prefill: for peers, one after "
                      "another; both: here, and peers are asked only for what they have already."),
    QR_OPTION(struct serve_options, pair, FLAG, "pair", .builtin = "false", .group = "Peers",
              .help = "Start two processes of this machine: one computes prompts, and is started again when it dies; the other answers. Each has half of the "
                      "processors and of the memory, and a copy of the weights."),
    QR_OPTION(struct serve_options, verbose, FLAG, "verbose", .brief = true, .letter = 'v', .builtin = "false",
              .group = "Output", .help = "Log what happens, request by request."),
    QR_OPTION(struct serve_options, sandbox, FLAG, "sandbox", .builtin = "false", .group = "Server",
              .help = "Once the model is open, have the kernel refuse system calls that serving does not need: starting "
                      "programs, other processes, mounts, identities (seccomp)."),
    QR_SERVER_ROWS(struct serve_options, s)};

/* --check-config: what a start would refuse. A file of settings may leave the model to a flag. */
static int check(const struct serve_options *o, struct qr_err *err)
{
    int rc = qr_server_check(&o->s, err);
    rc = rc ? rc : check_pair(o, err);
    rc = rc ? rc : check_events(o, err);
    if (rc || !o->m.model)
        return rc;
    char *own = own_name(o->m.model);
    rc = qr_cli_foresee(&o->m, &o->e, &o->l, &o->out, err);
    rc = rc ? rc : check_adapters(o, own, err);
    qr_free(own);
    return rc;
}

static int run(struct qr_command_run *r, struct qr_err *err)
{
    const struct serve_options *o = r->options;
    outlive_signals();
    qr_log_set_level(o->verbose ? QR_LOG_DEBUG : QR_LOG_INFO);
    if (qr_options_wants_check(r->set))
        return check(o, err);
    int rc = check_pair(o, err);
    rc = rc ? rc : check_events(o, err);
    if (rc == 0)
        r->status = o->pair ? serve_pair(o) : serve(o);
    return rc;
}

const struct qr_command qr_cmd_serve = {
    .name = "serve", .purpose = "serve a model over HTTP (OpenAI-style)",
    .usage = "quire serve MODEL [flags]",
    .examples = "quire serve models/quire-tiny\n"
                "quire serve Qwen/Qwen3-0.6B\n"
                "quire serve qwen --port 8080 --max-len 8ki --quantize int8\n"
                "quire serve model.gguf --host 0.0.0.0 --api-key secret",
    .text = "Serves a model over HTTP: /v1/completions, /v1/chat/completions, /v1/embeddings, /v1/models, /tokenize, /health,\n"
            "/metrics and more.\n"
            "SIGTERM finishes what is running, refuses what is new and exits 0; a second one stops at once. SIGHUP reads key files and certificates,\n"
            "and opens the access log, again.",
    .args = "model", .checks = true, .settle = qr_hub_settle,
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct serve_options), .run = run,
};
