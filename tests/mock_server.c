/* mock_server - the real HTTP server in front of the mock engine, for tests/http/. Prints `listening PORT`, then at its end one JSON
 * line with the ledger and the loop thread's processor time. --fields and --routes print tables instead, one JSON object per line.
 *
 *     mock_server --model DIR [--mock-rate N] [--mock-...] [any option of the server]
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "server/openai.h"
#include "server/route.h"
#include "server/server.h"
#include "tests/mock_engine.h"

struct settings {
    struct qr_server_config server;
    const char *model;
    struct qr_str_list scripts;
    double rate;
    int64_t event_tokens, running, waiting, ctx, events, blocks, prefill_us, load_us;
    int32_t scorer;
    bool fail_load, fields, routes, no_chat, verbose, deaf;
};

#define AT(field) offsetof(struct settings, field)
#define ROW(row_name, row_type, field, value, low, high, text)                                                                      \
    {.name = row_name, .type = row_type, .offset = AT(field), .builtin = value, .min = low, .max = high, .arg = "N", .help = text,  \
     .group = "Mock"}
static const struct qr_option table[] = {
    QR_SERVER_ROWS(struct settings, server),
    {.name = "model", .type = QR_OPT_STR, .offset = AT(model), .arg = "DIR", .help = "Tokenizer and chat template.", .group = "Mock"},
    {.name = "mock-script", .type = QR_OPT_LIST, .offset = AT(scripts), .arg = "TEXT", .help = "What it says; may be repeated.", .group = "Mock"},
    ROW("mock-rate", QR_OPT_FLOAT, rate, "40", 0, 1e9, "Events per second and choice; 0: no pause."),
    ROW("mock-event-tokens", QR_OPT_INT, event_tokens, "1", 1, QR_EVENT_TOKENS, "Tokens per event."),
    ROW("mock-running", QR_OPT_INT, running, "64", 1, 1e6, "Sequences at once."),
    ROW("mock-waiting", QR_OPT_INT, waiting, "256", 0, 1e6, "Sequences in the queue."),
    ROW("mock-ctx", QR_OPT_INT, ctx, "4096", 1, 1e7, "Context length."),
    ROW("mock-events", QR_OPT_INT, events, "4096", 1, 1e6, "Event pool."),
    ROW("mock-blocks", QR_OPT_INT, blocks, "100", 100, 4096, "Cache blocks."),
    ROW("mock-prefill", QR_OPT_TIME, prefill_us, "0", 0, 1e9, "Time before the first token."),
    ROW("mock-deaf", QR_OPT_FLAG, deaf, "false", 0, 0, "No peer may ask it."),
    ROW("mock-load", QR_OPT_TIME, load_us, "0", 0, 1e9, "Time to load."),
    ROW("mock-fail-load", QR_OPT_FLAG, fail_load, "false", 0, 0, "Loading fails."),
    {.name = "mock-scorer", .type = QR_OPT_ENUM, .offset = AT(scorer), .builtin = "none", .choices = "none|texts|joined|question", .group = "Mock",
     .help = "What pairs of texts are to it, in number i of its embeddings times (i + 1) / 1024."},
    ROW("no-chat-template", QR_OPT_FLAG, no_chat, "false", 0, 0, "The model has none."),
    ROW("fields", QR_OPT_FLAG, fields, "false", 0, 0, "Print the request fields."),
    ROW("routes", QR_OPT_FLAG, routes, "false", 0, 0, "Print the routes."),
    ROW("verbose", QR_OPT_FLAG, verbose, "false", 0, 0, "Debug log."),
};

static int print_fields(void)
{
    int32_t n;
    const struct qr_field *f = qr_fields(&n);
    static const char *const type[] = {"bool", "int", "float", "other", "refused", "ignored"};
    for (int32_t i = 0; i < n; i++)
        printf("{\"name\":\"%s\",\"chat\":%s,\"completions\":%s,\"type\":\"%s\",\"min\":%.10g,\"max\":%.0f,\"max_is_ctx\":%s}\n",
               f[i].name, f[i].apis & QR_API_CHAT ? "true" : "false", f[i].apis & QR_API_COMPLETIONS ? "true" : "false", type[f[i].type],
               f[i].min, f[i].max, f[i].max_is_ctx ? "true" : "false");
    return 0;
}

static int print_routes(void)
{
    int32_t n;
    const struct qr_route *r = qr_routes(&n);
    static const char *const access[] = {"user", "public", "admin", "metrics", "look"};
    for (int32_t i = 0; i < n; i++)
        printf("{\"method\":\"%s\",\"path\":\"%s\",\"access\":\"%s\"}\n", r[i].method, r[i].path, access[r[i].access]);
    return 0;
}

struct loading {
    const struct settings *settings;
    struct qr_server *server;
    struct qr_engine *engine;
    struct qr_tokenizer *tokenizer;
    struct qr_chat *chat;
    struct qr_scorer scorer;
    float weight[MOCK_EMBD];
};

static void make_scorer(struct loading *l)
{
    const int32_t kind = l->settings->scorer;
    for (int i = 0; i < MOCK_EMBD; i++)
        l->weight[i] = (float)(i + 1) / 1024;
    l->scorer = (struct qr_scorer){.kind = kind == 0 ? QR_SCORER_NONE : kind == 3 ? QR_SCORER_YES_NO : QR_SCORER_CLASSIFIER, .joined = kind == 2,
                                   .sigmoid = true, .pad_id = -1, .weight = l->weight, .n_embd = MOCK_EMBD};
}

static void *load_main(void *arg)
{
    static const char *const names[] = {"mock", "mock/alias"};
    struct loading *l = arg;
    const struct settings *o = l->settings;
    struct qr_err err = {0};
    struct mock_options mock;
    usleep((useconds_t)o->load_us);
    mock_options_init(&mock);
    mock.rate = o->rate;
    mock.event_tokens = (int32_t)o->event_tokens;
    mock.running_max = (int32_t)o->running;
    mock.waiting_max = (int32_t)o->waiting;
    mock.ctx_max = (int32_t)o->ctx;
    mock.n_events = (int32_t)o->events;
    mock.n_blocks = (int32_t)o->blocks;
    mock.deaf = o->deaf;
    mock.prefill_us = o->prefill_us;
    mock.scripts = o->scripts;
    int rc = o->fail_load ? qr_err_set(&err, QR_E_DAMAGED, "the mock was asked to fail") : qr_tokenizer_open(&l->tokenizer, o->model, &err);
    if (rc == 0 && !o->no_chat)
        rc = qr_chat_open(&l->chat, o->model, &err);
    if (rc == 0)
        rc = mock_engine_open(&l->engine, &mock, l->tokenizer, qr_server_wake, l->server, &err);
    if (rc != 0) {
        fprintf(stderr, "mock_server: the model could not be loaded: %s\n", err.msg);
        qr_server_set_failed(l->server);
        return NULL;
    }
    make_scorer(l);
    struct qr_server_model model = {.engine = l->engine, .tokenizer = l->tokenizer, .chat = l->chat, .pooling = {.pooling = QR_POOLING_LAST, .normalize = true},
                                    .scorer = &l->scorer,
                                    .names = names, .n_names = 2};
    struct qr_warmed warmed;
    if (qr_server_warm_up(l->server, &model, &warmed, &err) != 0) {
        fprintf(stderr, "mock_server: %s\n", err.msg);
        qr_server_set_failed(l->server);
        return NULL;
    }
    qr_server_set_ready(l->server, &model);
    return NULL;
}

static int serve(const struct settings *o)
{
    struct qr_err err = {0};
    struct loading l = {.settings = o};
    pthread_t thread;
    struct rusage use;
    qr_mem_keep_little(); /* as quire serve does */
    if (qr_server_open(&l.server, &o->server, &err) != 0) {
        fprintf(stderr, "mock_server: %s\n", err.msg);
        return qr_err_exit_status(err.code);
    }
    printf("listening %d\n", qr_server_port(l.server));
    fflush(stdout);
    pthread_create(&thread, NULL, load_main, &l);
    int status = qr_server_run(l.server);
    getrusage(RUSAGE_THREAD, &use);
    pthread_join(thread, NULL);
    struct qr_stats stats = {0};
    if (l.engine)
        qr_engine_stats(l.engine, &stats);
    qr_engine_close(l.engine);
    qr_server_close(l.server);
    qr_chat_close(l.chat);
    qr_tokenizer_close(l.tokenizer);
    printf("{\"status\":%d,\"accepted\":%llu,\"stop\":%llu,\"length\":%llu,\"cancelled\":%llu,\"failed\":%llu,\"inside\":%llu,\"loop_cpu_s\":%.3f}\n",
           status, (unsigned long long)stats.n_accepted, (unsigned long long)stats.n_done_stop, (unsigned long long)stats.n_done_length,
           (unsigned long long)stats.n_cancelled, (unsigned long long)stats.n_failed, (unsigned long long)stats.n_inside,
           (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6);
    fflush(stdout);
    return status;
}

int main(int argc, char **argv)
{
    struct settings o = {0};
    struct qr_err err = {0};
    signal(SIGPIPE, SIG_IGN);
    struct qr_option_set *set = qr_options_new(table, (int32_t)(sizeof table / sizeof table[0]), NULL, &o);
    int status = 2;
    if (qr_options_read(set, argc, argv, &err) != 0)
        fprintf(stderr, "mock_server: %s\n", err.msg);
    else if (o.fields || o.routes)
        status = o.fields ? print_fields() : print_routes();
    else {
        qr_log_set_level(o.verbose ? QR_LOG_DEBUG : QR_LOG_WARN);
        status = serve(&o);
    }
    qr_options_free(set);
    return status;
}
