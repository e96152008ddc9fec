/* console.h - what operators see of a running server (docs/api.md): its state, once or every second, and traces of a stretch of time.
 *
 * Onlookers are connections that get it: QR_ONLOOKERS_MAX at a time. Looks at the engine (engine/view.h) are made only for them, one for all that are due; one
 * that the engine does not answer within LOOK_WAIT_US is done without, as a step may take long: then the last look is told again, with its age. What is told
 * has no text of a request, no salt and no key in it. Loop thread.
 */
#ifndef QR_SERVER_CONSOLE_H
#define QR_SERVER_CONSOLE_H

#include "engine/view.h"
#include "server/call.h"

#define QR_ONLOOKERS_MAX 16
#define QR_CONSOLE_SAMPLES 61   /* one a second */
#define QR_CONSOLE_REQUESTS 256 /* told of in one state */
#define QR_CONSOLE_STEPS 240

/* Counters of the engine at one time. */
struct qr_console_sample {
    int64_t taken_us, query_tokens, hit_tokens, n_preempted;
    uint64_t prompt_tokens, output_tokens, n_ended;
    uint64_t ttft[QR_HIST_BUCKETS], itl[QR_HIST_BUCKETS];
};

enum qr_onlooker_kind { QR_ONLOOKER_NONE, QR_ONLOOKER_STATE, QR_ONLOOKER_EVENTS, QR_ONLOOKER_PROFILE };
struct qr_onlooker {
    enum qr_onlooker_kind kind;
    struct qr_conn *conn;         /* borrowed */
    int64_t due_us;               /* when it is told next; a profile: when it ends */
    uint64_t steps;               /* number of the step behind the last one that it was told of (qr_view_steps) */
    int64_t from_us;              /* of a profile: its begin, and what it has told of */
    uint64_t n_steps, n_missed, n_requests;
};

struct qr_console {
    struct qr_onlooker onlooker[QR_ONLOOKERS_MAX];
    int32_t n_onlookers, n_profiles;
    int64_t started_us, asked_us; /* asked_us: since when a look is waited for; 0: none is */
    struct qr_look look;          /* the last one; what it had of requests is in their pieces */
    struct qr_console_sample sample[QR_CONSOLE_SAMPLES]; /* number i of all at i % QR_CONSOLE_SAMPLES */
    uint64_t n_samples;
    struct qr_buf state, text;    /* owned: what all are told, and one */
    uint32_t owner[QR_LOOK_CELLS_MAX];           /* of the state's blocks, in order of first sight, */
    int16_t place[2 * QR_LOOK_CELLS_MAX];        /* and where each is, by its hash; -1: nothing there */
};

struct qr_console *qr_console_new(void);
void qr_console_free(struct qr_console *o); /* NULL is fine */

void qr_console_tick(struct qr_server *s, int64_t now_us);
void qr_console_wake(struct qr_server *s);                   /* the engine may have answered a look */
void qr_console_recheck(struct qr_server *s);                /* keys were reloaded: streams that they do not allow end */
void qr_console_gone(struct qr_server *s, struct qr_conn *c); /* an unanswered connection, perhaps an onlooker's, has gone */

/* A piece has ended, its last event has come and its request is still there. */
void qr_console_ended(struct qr_server *s, const struct qr_piece *piece, enum qr_finish finish);

/* ---- what is told: console_state.c, console_trace.c ---- */

/* The state as a JSON object without its steps and its closing brace. */
void qr_console_put_state(struct qr_buf *out, struct qr_server *s, int64_t now_us);

/* ,"steps":[..]}: of those since *at the last QR_CONSOLE_STEPS; view NULL: none. */
void qr_console_put_steps(struct qr_buf *out, const struct qr_view *view, uint64_t *at);

/* A Chrome trace in pieces: its begin; steps since o->steps; one request; its end. Events are comma-separated behind those of the begin. */
void qr_trace_put_begin(struct qr_buf *out);
void qr_trace_put_steps(struct qr_buf *out, struct qr_onlooker *o, const struct qr_view *view);
void qr_trace_put_request(struct qr_buf *out, struct qr_onlooker *o, const struct qr_piece *piece, const struct qr_request_look *at, int64_t end_us,
                          const char *state);
void qr_trace_put_end(struct qr_buf *out, const struct qr_onlooker *o, const struct qr_server *s, int64_t now_us);

/* Per second, and the share of prompt tokens that the prefix cache had: of the last seconds. */
struct qr_console_rates {
    double prompt_tokens_s, output_tokens_s, requests_s, hit_ratio;
};
void qr_console_rates(const struct qr_console *o, const struct qr_stats *t, int64_t now_us, struct qr_console_rates *out);

/* The path of a call's route. */
const char *qr_console_route(const struct qr_call *call);

#endif
