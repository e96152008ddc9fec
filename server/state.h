/* state.h - the server as its own files see it. Loop thread only, except `pending`, which the lock guards, and `model`, which is
 * written once before the first call begins and then read by pool threads too.
 */
#ifndef QR_SERVER_STATE_H
#define QR_SERVER_STATE_H

#include <pthread.h>

#include "base/account.h"
#include "base/buf.h"
#include "base/list.h"
#include "server/access_log.h"
#include "server/api_error.h"
#include "server/http_server.h"
#include "server/keys.h"
#include "server/notify.h"
#include "server/page/page.h"
#include "server/reload.h"
#include "server/responses_store.h"
#include "server/server.h"
#include "server/tls.h"

/* Calls that /metrics counts, by route. */
enum qr_counted { QR_COUNTED_NOT, QR_COUNTED_CHAT, QR_COUNTED_COMPLETIONS, QR_COUNTED_EMBEDDINGS,
                  QR_COUNTED_TOKENIZE, QR_COUNTED_MESSAGES, QR_COUNTED_RESPONSES, QR_COUNTED_OLLAMA, QR_COUNTED_RERANK, QR_COUNTED_SCORE, QR_COUNTED_PINS,
                  QR_COUNTED_N };

/* What became of a peer that a request named: it is asked first; its blocks are another engine's; it is none of --peer. */
enum qr_peer_hint { QR_HINT_ASKED, QR_HINT_FOREIGN, QR_HINT_NO_PEER, QR_HINTS };

enum qr_phase { QR_PHASE_LOADING, QR_PHASE_READY, QR_PHASE_FAILED };

#define QR_TRIM_BYTES (32 << 10) /* of bodies: what less than this leaves in the heaps, under a MiB, is not worth a trim */

struct qr_server {
    struct qr_server_config config;
    struct qr_http *http;                 /* owned */
    struct qr_keys *keys;                 /* owned */
    struct qr_reload reload;
    struct qr_networks trusted;           /* owned: proxies whose word about a client is taken */
    struct qr_access_log *access;         /* owned; NULL: there is none */
    struct qr_buf access_line;            /* owned: room for the longest line */
    struct qr_tls *tls;                   /* owned; NULL: connections are plain */
    struct qr_notify notify;
    struct qr_page page;
    struct qr_responses *responses;       /* owned */
    struct qr_console *console;           /* owned */
    struct qr_warm *warm;                 /* owned: of --warm-up; NULL: there is none. Once the loop runs it is the thread's that opens the model */
    pthread_mutex_t lock;                 /* guards pending */
    struct {
        enum qr_phase phase;
        bool stop;
        struct qr_server_model model;
        struct qr_forms *forms;           /* owned until fetched, like the next */
        const char **names;
        int32_t n_names;
    } pending;                            /* written by other threads, fetched after a wake */
    enum qr_phase phase;
    struct qr_server_model model;
    struct qr_forms *forms;               /* owned: of answers */
    const char **names;                   /* owned [n_names], the strings too: what clients may call the model */
    int32_t n_names;
    int64_t started_s;
    int64_t created_s;                    /* when the model became ready */
    char fingerprint[32];                 /* "fp_..." of program version and model name */
    bool draining, drain_over; /* drain_over: its time is, and all calls were ended */
    bool lost;                            /* the engine computes no more (qr_engine_lost) */
    int64_t drain_until_us, signal_us;    /* signal_us: when the first signal came */
    int64_t stuck_until_us;               /* the engine is stuck, and the process ends then; 0: it is not */
    int exit_status, signal;              /* signal: the first one's number */
    struct qr_node calls;                 /* every call that has not ended */
    int32_t n_calls;
    struct qr_budget budget;              /* of what requests hold: bodies, what becomes of them, and answers */
    int64_t freed_bytes;                  /* of bodies and calls since the heap was trimmed */
    struct qr_http_job *trim;             /* owned */
    bool trimming;                        /* it is on the pool */
    bool starved;                         /* a call that has begun found no room for its next piece, and has none inside */
    uint64_t id_seed, n_ids;
    uint64_t n_submitted, n_ended;        /* engine requests: the ledger's server half */
    int64_t submitted_tokens;             /* of their prompts */
    uint64_t n_begun[QR_COUNTED_N];       /* calls */
    _Atomic uint64_t n_hints[QR_HINTS];   /* any thread */
    struct qr_buf scratch;                /* owned: one stream chunk at a time */
    struct qr_account scratch_account;    /* while one is put there */
};

/* Those that a model's answers have. */
struct qr_forms *qr_server_forms(const struct qr_server_config *config, const struct qr_server_model *model);

/* A number for ids: unique in this process, not guessable from another. */
uint64_t qr_server_next_id(struct qr_server *s);

/* Sets *e when calls are not possible now: loading, failed, lost, draining. */
bool qr_server_unavailable(const struct qr_server *s, struct qr_api_error *e);

/* NULL when healthy: else "loading", "failed", "lost", "draining", "stuck". */
const char *qr_server_trouble(const struct qr_server *s);

#endif
