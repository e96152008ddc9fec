/* stress_missing_memory - the n-th allocation of each kind of request fails, for each n: the request hears 503, or is answered as ever where the server could
 * wait. Everything else goes on, and nothing is left of it. A real server over the bundled model, in this process; all n, under asan every 7th, under tsan,
 * which looks for what threads do at the same time, every 37th.
 *
 * The hook lies under base/mem: our own memory, cJSON's, PCRE2's and libuv's. Memory that other libraries take for themselves does not fail here: the C
 * library's (files, threads, numbers as text) and libcrypto's, which is asked for digests that need none.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "loader/config/hf_config.h"
#include "server/server.h"
#include "tests/full.h"
#include "tests/lora_make.h"
#include "tests/temp.h"

#define MODEL "models/quire-tiny"
#define CHAT                                                                                                              \
    "\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"What is 12 + 30?\"}]," \
    "\"temperature\":0,\"max_tokens\":6"
#define WORD "antidisestablishmentarianism"
#define LONG WORD WORD WORD WORD WORD WORD WORD WORD WORD WORD
#define NOTHING_US 20000000 /* longer than any answer takes */

/* `after` puts back what the request has changed, if it has. "@@@@" in a body is what no request had before: nothing of it is cached. */
struct kind {
    const char *name, *method, *path, *body, *after;
};

static const struct kind kinds[] = {
    {"chat", "POST", "/v1/chat/completions",
     "{" CHAT ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"metadata\":{\"a\":[1,2]}}", NULL},
    {"chat with calls", "POST", "/tokenize",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
     "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":[1,2]}\"}}]},{\"role\":\"user\",\"content\":\"c\"}]}", NULL},
    {"chat, streamed", "POST", "/v1/chat/completions", "{" CHAT ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", NULL},
    {"completions", "POST", "/v1/completions", "{\"prompt\":[\"Once\",\"upon a\"],\"temperature\":0,\"max_tokens\":4,\"echo\":true,\"logprobs\":3}", NULL},
    {"completions of ids", "POST", "/v1/completions",
     "{\"prompt\":[5,6,7,8],\"n\":2,\"seed\":1,\"max_tokens\":5,\"prompt_logprobs\":2,\"return_token_ids\":true,"
     "\"stop\":[\"xyz\"],\"logit_bias\":{\"9\":1},\"bad_words\":[\"abc\"],\"allowed_token_ids\":[40,41,42],\"truncate_prompt_tokens\":3}", NULL},
    {"completions, streamed", "POST", "/v1/completions",
     "{\"prompt\":\"Once\",\"n\":2,\"seed\":1,\"max_tokens\":4,\"stream\":true,\"logprobs\":2,\"echo\":true,\"ignore_eos\":true}", NULL},
    {"a schema", "POST", "/v1/completions",
     "{\"prompt\":\"a\",\"temperature\":0,\"max_tokens\":8,\"guided_json\":"
     "{\"title\":\"@@@@\",\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
     "\"b\":{\"enum\":[\"x\",\"y\"]}},\"required\":[\"a\",\"b\"]}}", NULL},
    {"a grammar", "POST", "/v1/chat/completions", "{" CHAT ",\"grammar\":\"root ::= [a-z]+ # @@@@\\n\"}", NULL},
    {"a tool that must be called", "POST", "/v1/chat/completions",
     "{" CHAT "0,\"response_format\":{\"type\":\"json_object\",\"schema\":{\"title\":\"@@@@\",\"type\":\"object\"}},\"tool_choice\":\"required\","
     "\"tools\":[{\"type\":\"custom\"},{\"type\":\"function\",\"function\":{\"name\":\"f\","
     "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":3}}}}}]}", NULL},
    {"a tool that must be called, streamed", "POST", "/v1/chat/completions",
     "{" CHAT "0,\"stream\":true,\"reasoning_effort\":\"low\",\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
     "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}}}}}]}", NULL},
    {"responses", "POST", "/v1/responses",
     "{\"instructions\":\"Be brief.\",\"temperature\":0,\"max_output_tokens\":40,\"tool_choice\":\"required\","
     "\"include\":[\"message.output_text.logprobs\"],"
     "\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"},"
     "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":[{\"type\":\"input_text\",\"text\":\"b\"}]}],"
     "\"tools\":[{\"type\":\"custom\"},{\"type\":\"function\",\"name\":\"f\","
     "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}}}}]}", NULL},
    {"responses, streamed", "POST", "/v1/responses", "{\"input\":\"Once\",\"temperature\":0,\"max_output_tokens\":6,\"stream\":true}", NULL},
    {"responses, wrong", "POST", "/v1/responses", "{\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_1_0\"}]}", NULL},
    {"no response", "GET", "/v1/responses/resp_1", NULL, NULL},
    {"a response's tokens", "POST", "/v1/responses/input_tokens", "{\"instructions\":\"a\",\"input\":[{\"role\":\"user\",\"content\":\"b\"}]}", NULL},
    {"a page of no response", "GET", "/v1/responses/resp_1/input_items?limit=3&order=asc", NULL, NULL},
    {"messages", "POST", "/v1/messages",
     "{\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\"}],\"temperature\":0,\"max_tokens\":40,\"tool_choice\":{\"type\":\"any\"},\"messages\":["
     "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},{\"role\":\"assistant\",\"content\":["
     "{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"a\":1}}]},"
     "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\"},{\"type\":\"text\",\"text\":\"b\"}]}],"
     "\"tools\":[{\"type\":\"bash\"},{\"name\":\"f\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,2]}}}}]}", NULL},
    {"messages, streamed", "POST", "/v1/messages", "{" CHAT ",\"stream\":true}", NULL},
    {"messages, wrong", "POST", "/v1/messages", "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}", NULL},
    {"count tokens", "POST", "/v1/messages/count_tokens", "{" CHAT "}", NULL},
    {"ollama's chat", "POST", "/api/chat", "{" CHAT ",\"stream\":false,\"options\":{\"temperature\":0,\"num_predict\":6}}", NULL},
    {"ollama's chat, streamed", "POST", "/api/chat",
     "{" CHAT ",\"options\":{\"temperature\":0,\"num_predict\":40},\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", NULL},
    {"ollama's model", "POST", "/api/show", "{\"model\":\"tiny\"}", NULL},
    {"ollama's models", "GET", "/api/tags", NULL, NULL},
    {"rendered chat", "POST", "/v1/chat/completions/render", "{" CHAT ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}", NULL},
    {"rendered completions", "POST", "/v1/completions/render", "{\"prompt\":[\"Once\",\"upon a\"],\"echo\":true}", NULL},
    {"embeddings", "POST", "/v1/embeddings", "{\"input\":[\"one\",\"two\",[3,4]],\"dimensions\":4}", NULL},
    {"embeddings as base64", "POST", "/v1/embeddings", "{\"input\":\"one\",\"encoding_format\":\"base64\"}", NULL},
    {"tokenize", "POST", "/tokenize", "{\"prompt\":\"Na\\u00efve caf\\u00e9 12 + 30\",\"return_token_strs\":true}", NULL},
    {"tokenize long words", "POST", "/tokenize", "{\"prompt\":\"" LONG " " LONG "\\u0301" LONG "\"}", NULL},
    {"tokenize messages", "POST", "/tokenize", "{" CHAT "}", NULL},
    {"detokenize", "POST", "/detokenize", "{\"tokens\":[40,41,42,43]}", NULL},
    {"models", "GET", "/v1/models", NULL, NULL},
    {"a model", "GET", "/v1/models/tiny", NULL, NULL},
    {"metrics", "GET", "/metrics", NULL, NULL},
    {"state", "GET", "/v1/ops/state", NULL, NULL},
    {"profile", "POST", "/v1/ops/profile", "{\"seconds\":0.1}", NULL},
    {"cancel", "POST", "/v1/ops/requests/cmpl-1/cancel", "{}", NULL},
    {"health", "GET", "/health", NULL, NULL},
    {"no route", "GET", "/nothing", NULL, NULL},
    {"bad JSON", "POST", "/v1/completions", "{\"prompt\":[1,2,", NULL},
    {"too long", "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":100000}", NULL},
    {"load an adapter", "POST", "/v1/load_lora_adapter", "{\"lora_name\":\"a\",\"lora_path\":\"a\"}", "/v1/unload_lora_adapter"},
    {"a foreign key", "POST", "/v1/unload_lora_adapter", "{\"lora_name\":\"none\"}", NULL},
};

/* ---- the hook ---- */

static _Atomic int32_t n_asked, fail_at; /* fail_at 0: none fails */

static bool refuse(size_t n_bytes)
{
    const int32_t n = atomic_fetch_add(&n_asked, 1) + 1;
    return n == atomic_load(&fail_at);
}

/* ---- the server ---- */

struct world {
    struct qr_server *server;
    struct qr_engine *engine;
    struct qr_tokenizer *tokenizer;
    struct qr_chat *chat;
    char top[64], adapter[100];
    int32_t port, n_passed, n_failed;
    pthread_t thread;
    struct qr_server_config config;
    struct qr_option_set *settings;
};

static const struct qr_option rows[] = {QR_SERVER_ROWS(struct world, config)};

static void *run_server(void *arg)
{
    struct world *w = arg;
    qr_server_run(w->server);
    return NULL;
}

static void open_world(struct world *w)
{
    struct qr_err err = {0};
    struct qr_engine_config engine;
    struct qr_backend_options backend = {.n_threads = 1};
    struct qr_model_options options = {.embeds = true};
    struct qr_model_config c;
    static const char *const names[] = {"tiny"}, *const settings[] = {"port=0"};
    QR_ASSERT(qr_model_config_read(&c, MODEL, &err) == 0);
    temp_dir_make(w->top, "memory");
    snprintf(w->adapter, sizeof w->adapter, "%s/a", w->top);
    lora_make(w->adapter, &c, &(struct lora_make){.rank = 2, .alpha = 4, .seed = 1});
    w->settings = qr_options_new(rows, QR_COUNT(rows), NULL, w);
    QR_ASSERT(qr_options_read_settings(w->settings, NULL, settings, 1, &err) == 0);
    w->config.ignore_signals = true;
    w->config.lora_dir = w->top;
    qr_engine_config_init(&engine);
    engine.kv_tokens = 2048;
    engine.lora_slots = 2;
    engine.lora_rank_max = 4;
    int rc = qr_server_open(&w->server, &w->config, &err);
    rc = rc ? rc : qr_tokenizer_open(&w->tokenizer, MODEL, &err);
    rc = rc ? rc : qr_chat_open(&w->chat, MODEL, &err);
    rc = rc ? rc : qr_engine_open(&w->engine, MODEL, &engine, &backend, &options, w->tokenizer, qr_server_wake, w->server, &err);
    if (rc)
        qr_panic("%s", err.msg);
    w->port = qr_server_port(w->server);
    pthread_create(&w->thread, NULL, run_server, w);
    qr_server_set_ready(w->server, &(struct qr_server_model){.engine = w->engine, .tokenizer = w->tokenizer, .chat = w->chat, .names = names, .n_names = 1,
                                                             .pooling = {.pooling = QR_POOLING_LAST, .normalize = true}});
}

static void close_world(struct world *w)
{
    struct qr_err err;
    qr_server_stop(w->server);
    pthread_join(w->thread, NULL);
    qr_engine_close(w->engine);
    qr_server_close(w->server);
    qr_chat_close(w->chat);
    qr_tokenizer_close(w->tokenizer);
    qr_options_free(w->settings);
    qr_dir_remove(w->adapter, &err);
    rmdir(w->top);
}

/* ---- the client: memory of its own ---- */

struct answer {
    char text[1 << 16];
    size_t n;
    int status;       /* 0: none came */
    const char *body; /* in text */
};

static int connect_to(int32_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval most = {.tv_sec = NOTHING_US / 1000000};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    QR_ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

/* Ids and times differ from one answer to the next. */
static void blank_out(char *text, const char *key)
{
    for (char *at = strstr(text, key); at; at = strstr(at, key)) {
        at += strlen(key);
        while (*at && !strchr("\",\r\n", *at))
            *at++ = '_';
    }
}

/* Times have as many digits as they take, and so have the lengths of chunks with them. How many guesses pay is measured, too. */
static void cut_digits(char *text, const char *key, const char *digits)
{
    for (char *at = strstr(text, key); at; at = strstr(at, key)) {
        at += strlen(key);
        const size_t n = strspn(at, digits);
        memmove(at, at + n, strlen(at + n) + 1);
    }
}

static void ask(const struct world *w, struct answer *a, const char *method, const char *path, const char *body)
{
    static int32_t n_fresh;
    char request[2048], *at;
    const int fd = connect_to(w->port);
    const int n = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                           "Content-Length: %zu\r\n\r\n%s", method, path, body ? strlen(body) : 0, body ? body : "");
    QR_ASSERT(n > 0 && (size_t)n < sizeof request);
    for (int32_t rest = n_fresh++; (at = strchr(request, '@')) != NULL; rest /= 26)
        *at = (char)('A' + rest % 26);
    a->n = 0;
    if (send(fd, request, (size_t)n, MSG_NOSIGNAL) == n)
        for (ssize_t got; a->n < sizeof a->text - 1 && (got = recv(fd, a->text + a->n, sizeof a->text - 1 - a->n, 0)) > 0;)
            a->n += (size_t)got;
    close(fd);
    a->text[a->n] = 0;
    a->status = a->n > 12 ? atoi(a->text + 9) : 0;
    char *end = strstr(a->text, "\r\n\r\n");
    a->body = end ? end + 4 : a->text + a->n;
    blank_out(a->text, "\"id\":\"");
    blank_out(a->text, "\"created\":");
    blank_out(a->text, "\"created_at\":\"");
    blank_out(a->text, "\"created_at\":");
    blank_out(a->text, "_id\":\"");
    cut_digits(a->text, "_duration\":", "0123456789");
    cut_digits(a->text, "_prediction_tokens\":", "0123456789");
    if (strstr(a->text, "application/x-ndjson"))
        cut_digits(a->text, "\r\n", "0123456789abcdef"); /* no field of the head begins with these */
}

static double metric(const struct world *w, const char *name)
{
    static struct answer a;
    ask(w, &a, "GET", "/metrics", NULL);
    for (const char *at = strstr(a.body, name); at; at = strstr(at + 1, name))
        if (at[-1] == '\n' && at[strlen(name)] == '{')
            return atof(strstr(at, "} ") + 2);
    return -1;
}

/* ---- what must hold ---- */

/* In the form of OpenAI, Anthropic or ollama. */
static bool says_overloaded(const struct answer *a)
{
    return strstr(a->body, "\"code\":\"overloaded\"") || strstr(a->body, "\"type\":\"overloaded_error\"") ||
           strstr(a->body, "{\"error\":\"The system has no memory");
}

static bool fits(const struct kind *k, const struct answer *a, const struct answer *good)
{
    if (a->status == 503 || a->status == 529)
        return says_overloaded(a) && strstr(a->body, "memory");
    if (strcmp(k->name, "metrics") == 0)
        return a->status == 200 && strstr(a->body, "quire_ready");
    if (strcmp(k->name, "state") == 0)
        return a->status == 200 && strstr(a->body, "{\"now_us\":") && strstr(a->body, "\"steps\":[");
    if (strcmp(k->name, "profile") == 0) /* whole or cut off */
        return a->status == 200;
    const bool stream = strstr(good->text, "text/event-stream") || strstr(good->text, "application/x-ndjson");
    const bool ended = strstr(a->body, "data: [DONE]") || strstr(a->body, "event: message_stop") || strstr(a->body, "event: response.incomplete") ||
                       strstr(a->body, "\"done\":true");
    if (stream && a->status == 200 && (says_overloaded(a) || !ended))
        return true; /* told, or cut off, in its middle */
    return a->status == good->status && strcmp(a->body, good->body) == 0;
}

/* Nothing is left of what has failed: no call, no byte, no sequence. */
static bool settled(const struct world *w)
{
    const int64_t until_us = qr_clock_us() + NOTHING_US;
    while (metric(w, "quire_calls") != 0 || metric(w, "quire_requests_bytes") != 0 ||
           metric(w, "quire_submitted_requests_total") != metric(w, "quire_ended_requests_total"))
        if (qr_clock_us() > until_us)
            return false;
    return true;
}

static void put_back(const struct world *w, const struct kind *k)
{
    static struct answer a;
    if (k->after)
        ask(w, &a, "POST", k->after, k->body);
}

static void check(struct world *w, bool good, const char *name, int32_t n, const char *what, const struct answer *a)
{
    w->n_passed += good;
    w->n_failed += !good;
    if (!good)
        printf("FAIL %s, allocation %d: %s: %.600s\n", name, n, what, a->text);
}

static void torture(struct world *w, const struct kind *k, int32_t step)
{
    static struct answer good, a;
    int32_t n_most = 0, n_tried = 0, n_refused = 0;
    for (int i = 0; i < 2; i++) { /* the first may fill a cache */
        atomic_store(&n_asked, 0);
        ask(w, &good, k->method, k->path, k->body);
        n_most = atomic_load(&n_asked);
        put_back(w, k);
    }
    for (int32_t n = 1; n <= n_most; n += step, n_tried++) {
        atomic_store(&n_asked, 0);
        atomic_store(&fail_at, n);
        ask(w, &a, k->method, k->path, k->body);
        atomic_store(&fail_at, 0);
        n_refused += a.status == 503 || a.status == 529;
        check(w, fits(k, &a, &good), k->name, n, "an answer that is neither", &a);
        put_back(w, k);
    }
    check(w, settled(w), k->name, 0, "something is left", &a);
    ask(w, &a, k->method, k->path, k->body);
    check(w, fits(k, &a, &good) && a.status == good.status, k->name, 0, "not as before", &a);
    put_back(w, k);
    printf("   %s: %d allocations, %d of %d heard 503\n", k->name, n_most, n_refused, n_tried);
}

int main(void)
{
    struct world w = {.n_passed = 0};
#if defined(__SANITIZE_ADDRESS__)
    const int32_t step = full_size() ? 1 : 7;
#elif defined(__SANITIZE_THREAD__)
    const int32_t step = full_size() ? 1 : 37;
#else
    const int32_t step = 1;
#endif
    qr_log_set_level(QR_LOG_ERROR);
    open_world(&w);
    static struct answer a;
    while (ask(&w, &a, "GET", "/readyz", NULL), a.status != 200)
        usleep(1000);
    qr_mem_refuse = refuse;
    for (int i = 0; i < QR_COUNT(kinds); i++)
        torture(&w, &kinds[i], step);
    qr_mem_refuse = NULL;
    close_world(&w);
    printf("%d passed, %d failed\n", w.n_passed, w.n_failed);
    return w.n_failed > 0;
}
