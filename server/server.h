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
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

/* Filled by the option table below. Strings are borrowed and must outlive the server. */
struct qr_server_config {
    const char *host;
    int64_t port;                           /* 0: any free one */
    struct qr_str_list served_names;        /* empty: the model's names given at set_ready */
    struct qr_str_list api_keys, admin_keys;
    const char *api_key_file, *admin_key_file;
    const char *lora_dir;                   /* adapters below it may be loaded at run time; NULL: none */
    struct qr_str_list cors_origins, allowed_hosts;
    int64_t connections_max, per_address_max;
    int64_t header_bytes, header_fields, body_bytes, bodies_bytes;
    int64_t header_us, idle_us, body_rate;
    int64_t stream_soft_bytes, stream_hard_bytes, stall_us, ping_us;
    int64_t request_us, drain_us, watchdog_us;
    int32_t pooling;                        /* enum qr_pooling: how rows become an embedding; NONE: as the model's files say */
    bool trust_special;                     /* special tokens written in user text are taken as such */
    bool ignore_signals;                    /* not an option: for tests that stop the server themselves */
};

/* The table's rows with offsets from the start of a struct qr_server_config that lies base_offset bytes into the caller's own
 * struct. out: room for qr_server_option_count() rows. */
int32_t qr_server_option_count(void);
void qr_server_option_rows(struct qr_option *out, size_t base_offset);

/* All built-in values, for callers without an option set. */
void qr_server_config_init(struct qr_server_config *c);

struct qr_server; /* opaque */

/* Of a configuration what qr_server_open would refuse, without listening: names and key files. */
int qr_server_check(const struct qr_server_config *config, struct qr_err *err);

/* Binds and listens; reads key files. Errors: QR_E_BIND with what holds the port and what to do; key errors as in keys.h. */
int qr_server_open(struct qr_server **out, const struct qr_server_config *config, struct qr_err *err);
void qr_server_close(struct qr_server *s); /* NULL is fine */

int32_t qr_server_port(const struct qr_server *s);
const char *qr_server_address(const struct qr_server *s); /* "127.0.0.1:8000" */
const char *qr_server_reachable(const struct qr_server *s); /* for clients: one address where it listens on all */
bool qr_server_is_open(const struct qr_server *s); /* beyond this machine, without a key */

struct qr_server_model {
    struct qr_engine *engine;               /* borrowed, like the next two, until qr_server_close */
    const struct qr_tokenizer *tokenizer;
    const struct qr_chat *chat;             /* NULL: /v1/chat/completions answers 400 */
    struct qr_pooling_config pooling;       /* of embeddings; all 0: there are none, /v1/embeddings answers 400 */
    int64_t requests_bytes;                 /* what all requests may hold, where that is less than the configuration says; 0: it is not */
    const char *const *names;               /* copied: what clients call the model, when the configuration names none */
    int32_t n_names;
};

/* From another thread: the model is in, or will never be; the caller has said why. */
void qr_server_set_ready(struct qr_server *s, const struct qr_server_model *model);
void qr_server_set_failed(struct qr_server *s);

/* The wake function for qr_engine_open; arg is the server. Any thread, until qr_server_close. */
void qr_server_wake(void *server);

/* Begins the drain as SIGTERM does. Any thread. */
void qr_server_stop(struct qr_server *s);

/* Serves until drained. Returns the process's exit status: 0 after a drain, 130 when a second signal cut it short, 1 when
 * qr_server_set_failed was called. */
int qr_server_run(struct qr_server *s);

#endif
