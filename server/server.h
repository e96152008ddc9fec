/* server.h - the HTTP face of an engine: OpenAI-compatible routes, health, metrics. All that cli/ and the tests see of this folder.
 *
 * One loop thread (the caller of qr_server_run) owns every connection and call. It listens before the model is there and answers
 * 503 "loading" until another thread says ready. libuv, llhttp and libcrypto stay inside this folder.
 *
 *     qr_server_open -> start a thread that opens the engine with (qr_server_wake, server) and calls qr_server_set_ready
 *     qr_server_run  -> returns after SIGTERM or SIGINT, when what was running has finished
 *     qr_engine_close, then qr_server_close, in this order
 */
#ifndef QR_SERVER_SERVER_H
#define QR_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/option.h"
#include "engine/engine.h"
#include "loader/config/scorer.h"
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

/* Filled by QR_SERVER_ROWS. Strings are borrowed and must outlive the server. */
struct qr_server_config {
    const char *host;
    int64_t port;                           /* 0: any free one */
    const char *unix_socket;                /* instead of both; NULL: none */
    const char *tls_cert, *tls_key;         /* NULL: plain; the key may be in the certificate's file */
    struct qr_str_list served_names;        /* empty: the model's names given at set_ready */
    struct qr_str_list api_keys, admin_keys, metrics_keys;
    const char *api_key_file, *admin_key_file, *metrics_key_file;
    const char *warm_up;                    /* prompts to compute before the server is ready; NULL: none */
    const char *lora_dir;                   /* adapters below it may be loaded at run time; NULL: none */
    struct qr_str_list cors_origins, allowed_hosts, trusted_proxies;
    const char *access_log;                 /* "-": stdout; NULL: none */
    int64_t connections_max, per_address_max;
    int64_t header_bytes, header_fields, body_bytes, bodies_bytes;
    int64_t grammars_bytes;
    int64_t responses_max, responses_bytes, responses_ttl_us; /* of those that /v1/responses stores */
    const char *tool_format;                /* name of a dialect; NULL: as the chat template tells */
    int64_t header_us, idle_us, body_rate;
    int64_t stream_soft_bytes, stream_hard_bytes, stall_us, ping_us;
    int64_t request_us, queue_us, drain_us, watchdog_us, stuck_us; /* queue_us 0: no limit, as of the next */
    int64_t waiting_tokens_max;
    int32_t reranker;                       /* of QR_RERANKER_CHOICES */
    int32_t pooling;                        /* enum qr_pooling: how rows become an embedding; NONE: as the model's files say */
    bool trust_special;                     /* special tokens written in user text are taken as such */
    const char *commit, *level;             /* no options, as the next: what /version says of the build and the processor; NULL: unknown */
    bool ignore_signals;                    /* for tests that stop the server themselves */
};

/* Rows of an option table for a struct T with a member `s` (struct qr_server_config). */
#define QR_SERVER_ROWS(T, s)                                                                                          \
    QR_OPTION(T, s.host, STR, "host", .brief = true, .builtin = "127.0.0.1", .arg = "HOST", .group = "Server",        \
              .help = "Address to listen on. Anything but a loopback address should come with --api-key."),           \
    QR_OPTION(T, s.port, INT, "port", .brief = true, .letter = 'p', .builtin = "8000", .min = 0, .max = 65535,        \
              .arg = "N", .group = "Server", .help = "TCP port; 0 takes any free one and prints it."),                \
    QR_OPTION(T, s.unix_socket, STR, "unix-socket", .arg = "PATH", .group = "Server",                                 \
              .help = "Listen on a socket in the file system (mode 0660) instead of an address."),                    \
    QR_OPTION(T, s.tls_cert, STR, "tls-cert", .arg = "FILE", .group = "Server",                                       \
              .help = "Speak TLS with this chain of certificates (PEM, the server's own first). SIGHUP reads it "     \
                      "again."),                                                                                      \
    QR_OPTION(T, s.tls_key, STR, "tls-key", .arg = "FILE", .group = "Server",                                         \
              .help = "The certificate's private key (PEM, without a password); else it is in --tls-cert's file."),   \
    QR_OPTION(T, s.served_names, LIST, "served-model-name", .brief = true, .arg = "NAME", .group = "Server",          \
              .help = "Name that clients call the model by; may be repeated. The first one appears in answers."),     \
    QR_OPTION(T, s.api_keys, LIST, "api-key", .brief = true, .arg = "KEY", .group = "Server",                         \
              .help = "Key that clients must send as 'Authorization: Bearer KEY'; may be repeated."),                 \
    QR_OPTION(T, s.api_key_file, STR, "api-key-file", .arg = "FILE", .group = "Server",                               \
              .help = "File with one key per line: KEY [name=] [rpm=] [tpm=] [concurrent=] [weight=]. SIGHUP "        \
                      "reads it again."),                                                                             \
    QR_OPTION(T, s.admin_keys, LIST, "admin-key", .arg = "KEY", .group = "Server",                                    \
              .help = "Key that may also call the administrative routes (/metrics)."),                                \
    QR_OPTION(T, s.admin_key_file, STR, "admin-key-file", .arg = "FILE", .group = "Server",                           \
              .help = "The same of admin keys."),                                                                     \
    QR_OPTION(T, s.metrics_keys, LIST, "metrics-key", .arg = "KEY", .group = "Server",                                \
              .help = "Key that may only look: /metrics, and what routers ask (/v1/loads, /server_info, ...)."),      \
    QR_OPTION(T, s.metrics_key_file, STR, "metrics-key-file", .arg = "FILE", .group = "Server",                       \
              .help = "The same of keys that may only look."),                                                        \
    QR_OPTION(T, s.lora_dir, STR, "lora-dir", .arg = "DIR", .group = "Adapters",                                      \
              .help = "Adapters below this directory may be loaded while the server runs (POST "                      \
                      "/v1/load_lora_adapter, admin key); links that lead out of it are refused."),                   \
    QR_OPTION(T, s.warm_up, STR, "warm-up", .arg = "FILE", .group = "Cache",                                          \
              .help = "Compute the prompts of this file before the server is ready: a JSON line each, as a body of "  \
                      "chat or completions; with \"pin\": true they stay in the cache."),                             \
    QR_OPTION(T, s.pooling, ENUM, "pooling", .builtin = "auto", .choices = QR_POOLING_CHOICES,                        \
              .group = "Embeddings",                                                                                  \
              .help = "Which of the model's last rows make an embedding (POST /v1/embeddings): the last one, the "    \
                      "mean of all or the first; auto: as modules.json and its Pooling module say, else the last, "   \
                      "normalised."),                                                                                 \
    QR_OPTION(T, s.reranker, ENUM, "reranker", .builtin = "auto", .choices = QR_RERANKER_CHOICES,                      \
              .group = "Embeddings",                                                                                  \
              .help = "What scores pairs of texts (POST /v1/rerank, /v1/score). yes-no: the model is a "              \
                      "Qwen3-Reranker and answers yes or no; auto: where its files say so, or are a "                 \
                      "classifier's of one label."),                                                                  \
    QR_OPTION(T, s.cors_origins, LIST, "cors-origin", .arg = "ORIGIN", .group = "Server",                             \
              .help = "Origin whose web pages may call this server, such as https://example.org, or * for all; "      \
                      "may be repeated."),                                                                            \
    QR_OPTION(T, s.allowed_hosts, LIST, "allowed-host", .arg = "NAME", .group = "Server",                             \
              .help = "Further Host name accepted on a loopback address; others are refused, which stops DNS "        \
                      "rebinding."),                                                                                  \
    QR_OPTION(T, s.trusted_proxies, LIST, "trusted-proxy", .arg = "ADDRESS", .group = "Server",                       \
              .help = "Address or network (10.0.0.0/8) of a proxy that is believed when X-Forwarded-For or Forwarded " \
                      "says where a request comes from; unix: whoever comes by --unix-socket. May be repeated."),     \
    QR_OPTION(T, s.access_log, STR, "access-log", .arg = "FILE", .group = "Server",                                   \
              .help = "File that gets one JSON line for each request, without any text of it; - is stdout. SIGHUP "   \
                      "opens it again."),                                                                             \
    QR_OPTION(T, s.tool_format, STR, "tool-format", .arg = "NAME", .group = "Server",                                 \
              .help = "How the model writes calls of tools and reasoning, where its chat template does not tell: "    \
                      "a name of `quire parse --family help`."),                                                      \
    QR_OPTION(T, s.trust_special, FLAG, "trust-special-tokens", .builtin = "false", .group = "Server",                \
              .help = "Take special tokens written in user text as such. Off, they are plain text and cannot "        \
                      "forge a role."),                                                                               \
    QR_OPTION(T, s.request_us, TIME, "request-timeout", .builtin = "600s", .min = 1e5, .max = 86.4e9, .arg = "T",     \
              .group = "Server limits", .help = "Longest time of one request from arrival to its last token."),       \
    QR_OPTION(T, s.queue_us, TIME, "queue-timeout", .builtin = "0s", .min = 0, .max = 86.4e9, .arg = "T",             \
              .group = "Server limits",                                                                               \
              .help = "Longest time that a request may wait for its first step; then it is answered 503 with "        \
                      "Retry-After. 0: as long as --request-timeout allows."),                                        \
    QR_OPTION(T, s.waiting_tokens_max, INT, "max-waiting-tokens", .builtin = "0", .min = 0, .max = 1e12, .arg = "N",  \
              .group = "Server limits",                                                                               \
              .help = "Prompt tokens that may wait to be computed; a request that would make them more is "           \
                      "answered 429 with Retry-After. 0: as many as --max-waiting sequences have."),                  \
    QR_OPTION(T, s.drain_us, TIME, "drain-timeout", .builtin = "30s", .min = 0, .max = 3.6e9, .arg = "T",             \
              .group = "Server limits", .help = "After SIGTERM, how long running requests may take to finish."),      \
    QR_OPTION(T, s.watchdog_us, TIME, "watchdog", .builtin = "30s", .min = 1e5, .max = 3.6e9, .arg = "T",             \
              .group = "Server limits",                                                                               \
              .help = "With work at hand and no engine step for so long, /readyz and /health answer 503."),           \
    QR_OPTION(T, s.stuck_us, TIME, "watchdog-exit", .builtin = "5m", .min = 0, .max = 86.4e9, .arg = "T",             \
              .group = "Server limits",                                                                               \
              .help = "The same for so long ends the process with status 70, for a supervisor to start again; 0: "    \
                      "never."),                                                                                      \
    QR_OPTION(T, s.connections_max, INT, "max-connections", .builtin = "4096", .min = 1, .max = 1000000, .arg = "N",  \
              .group = "Server limits",                                                                               \
              .help = "Open connections; at the limit the longest idle one is closed first."),                        \
    QR_OPTION(T, s.per_address_max, INT, "max-connections-per-address", .builtin = "256", .min = 1, .max = 1000000,   \
              .arg = "N", .group = "Server limits",                                                                   \
              .help = "Open connections from one address; loopback clients are not counted."),                        \
    QR_OPTION(T, s.header_bytes, BYTES, "max-header-size", .builtin = "16KiB", .min = 1024, .max = 1048576,           \
              .arg = "BYTES", .group = "Server limits", .help = "Largest head of a request."),                        \
    QR_OPTION(T, s.header_fields, INT, "max-header-fields", .builtin = "100", .min = 10, .max = 10000, .arg = "N",    \
              .group = "Server limits", .help = "Most header fields of a request."),                                  \
    QR_OPTION(T, s.body_bytes, BYTES, "max-body-size", .builtin = "4MiB", .min = 1024, .max = 4194304,                \
              .arg = "BYTES", .group = "Server limits", .help = "Largest body of a request."),                        \
    QR_OPTION(T, s.bodies_bytes, BYTES, "max-bodies-size", .builtin = "256MiB", .min = 1048576, .max = 0x1p36,        \
              .arg = "BYTES", .group = "Server limits",                                                               \
              .help = "Memory that all requests may hold together: bodies (half of it at most), what they are "       \
                      "read to, and answers. Past it requests get 503, embeddings 429. Less where the model "         \
                      "leaves less: half of what is free then."),                                                     \
    QR_OPTION(T, s.grammars_bytes, BYTES, "grammar-cache", .builtin = "512MiB", .min = 1048576, .max = 0x1p36,        \
              .arg = "BYTES", .group = "Server limits",                                                               \
              .help = "Memory for compiled grammars (schemas, tools) and the vocabulary's tree that they need. "      \
                      "Those in use stay; a request that finds no room gets 429."),                                   \
    QR_OPTION(T, s.responses_max, INT, "responses-max", .builtin = "1000", .min = 0, .max = 1000000, .arg = "N",      \
              .group = "Server limits",                                                                               \
              .help = "Responses that /v1/responses stores; the oldest leave first. 0: none."),                       \
    QR_OPTION(T, s.responses_bytes, BYTES, "responses-size", .builtin = "64MiB", .min = 65536, .max = 0x1p36,         \
              .arg = "BYTES", .group = "Server limits", .help = "Memory for stored responses and their conversations."), \
    QR_OPTION(T, s.responses_ttl_us, TIME, "responses-ttl", .builtin = "1h", .min = 1e5, .max = 2.6e12, .arg = "T",   \
              .group = "Server limits", .help = "A stored response is gone after so long."),                          \
    QR_OPTION(T, s.header_us, TIME, "header-timeout", .builtin = "10s", .min = 1e5, .max = 3.6e9, .arg = "T",         \
              .group = "Server limits",                                                                               \
              .help = "Longest time from the first byte of a head to its last; a body gets the same grace before "    \
                      "its rate counts."),                                                                            \
    QR_OPTION(T, s.idle_us, TIME, "idle-timeout", .builtin = "75s", .min = 1e5, .max = 86.4e9, .arg = "T",            \
              .group = "Server limits", .help = "A connection without a request is closed after so long."),           \
    QR_OPTION(T, s.body_rate, BYTES, "min-body-rate", .builtin = "1KiB", .min = 0, .max = 0x1p30, .arg = "BYTES",     \
              .group = "Server limits", .help = "Bytes per second below which an arriving body is given up."),        \
    QR_OPTION(T, s.stream_soft_bytes, BYTES, "stream-buffer", .builtin = "256KiB", .min = 4096, .max = 0x1p30,        \
              .arg = "BYTES", .group = "Server limits",                                                               \
              .help = "Unread bytes of a stream that a slow reader may leave for --stall-timeout."),                  \
    QR_OPTION(T, s.stream_hard_bytes, BYTES, "max-stream-buffer", .builtin = "1MiB", .min = 4096, .max = 0x1p30,      \
              .arg = "BYTES", .group = "Server limits", .help = "Unread bytes of a stream that end it."),             \
    QR_OPTION(T, s.stall_us, TIME, "stall-timeout", .builtin = "30s", .min = 1e5, .max = 3.6e9, .arg = "T",           \
              .group = "Server limits", .help = "A reader that takes nothing for so long is given up."),              \
    QR_OPTION(T, s.ping_us, TIME, "sse-ping", .builtin = "15s", .min = 1e5, .max = 3.6e9, .arg = "T",                 \
              .group = "Server limits", .help = "A silent stream gets a comment line after so long.")

struct qr_server; /* opaque */

/* Of a configuration what qr_server_open would refuse, without listening: names, key files, certificates. */
int qr_server_check(const struct qr_server_config *config, struct qr_err *err);

/* Binds and listens; reads key files. Errors: QR_E_BIND with what holds the port and what to do; key errors as in keys.h. */
int qr_server_open(struct qr_server **out, const struct qr_server_config *config, struct qr_err *err);
void qr_server_close(struct qr_server *s); /* NULL is fine */

int32_t qr_server_port(const struct qr_server *s);
const char *qr_server_address(const struct qr_server *s); /* "127.0.0.1:8000", or the path of a Unix socket */
const char *qr_server_scheme(const struct qr_server *s);  /* "http", "https", "unix" */
const char *qr_server_reachable(const struct qr_server *s); /* for clients: one address where it listens on all */
bool qr_server_is_open(const struct qr_server *s); /* beyond this machine, without a key */

struct qr_server_model {
    struct qr_engine *engine;               /* borrowed, like the next two, until qr_server_close */
    const struct qr_tokenizer *tokenizer;
    const struct qr_chat *chat;             /* NULL: /v1/chat/completions answers 400 */
    struct qr_pooling_config pooling;       /* of embeddings; all 0: there are none, /v1/embeddings answers 400 */
    const struct qr_scorer *scorer;         /* borrowed: of pairs of texts; NULL: none, as one of no kind */
    int64_t requests_bytes;                 /* what all requests may hold, where that is less than the configuration says; 0: it is not */
    int64_t grammars_bytes;                 /* the same of compiled grammars */
    const char *const *names;               /* copied: what clients call the model, when the configuration names none */
    int32_t n_names;
};

/* What came of --warm-up: prompts, those of them that are pinned, tokens that the cache did not have, and the time. */
struct qr_warmed {
    int32_t n_prompts, n_pinned;
    int64_t n_tokens, us;
};

/* Before qr_server_set_ready, from the same thread: computes the prompts of --warm-up; without it *out is all 0. Nothing else may take the engine's events.
 * Errors: QR_E_INVALID and others with file and line; then the model is not to be served. */
int qr_server_warm_up(struct qr_server *s, const struct qr_server_model *model, struct qr_warmed *out, struct qr_err *err);

/* From another thread: the model is in, or will never be; the caller has said why. */
void qr_server_set_ready(struct qr_server *s, const struct qr_server_model *model);
void qr_server_set_failed(struct qr_server *s);

/* The wake function for qr_engine_open; arg is the server. Any thread, until qr_server_close. */
void qr_server_wake(void *server);

/* Begins the drain as SIGTERM does. Any thread. */
void qr_server_stop(struct qr_server *s);

/* Reads key files and certificates, and opens the access log, again, as SIGHUP does: keys that are gone are refused from the next request on, those that stay
 * keep their counters, and a file that is wrong changes nothing. What comes of it is logged. Loop thread. */
void qr_server_reload(struct qr_server *s);

/* Serves until drained. Returns the process's exit status: 0 after a drain, 130 when a second signal cut it short, 1 when
 * qr_server_set_failed was called. */
int qr_server_run(struct qr_server *s);

#endif
