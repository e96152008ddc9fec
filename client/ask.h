/* ask.h - one question to a server and its answer: send, wait out a server that is loading or full, stream, stop when told to.
 *
 * Runs the loop until there is an answer, an error or a signal; what came before an error or a stop stays in the answer.
 * One owning thread.
 */
#ifndef QR_CLIENT_ASK_H
#define QR_CLIENT_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "client/chunk.h"
#include "client/http_client.h"
#include "client/term.h"

enum qr_ask_end {
    QR_ASK_DONE,         /* exit 0 */
    QR_ASK_SERVER_ERROR, /* exit 1 */
    QR_ASK_NO_CONNECT,   /* exit 3 */
    QR_ASK_NO_MODEL,     /* exit 4: the server knows no model of that name */
    QR_ASK_INTERRUPTED,  /* exit 130: SIGINT */
    QR_ASK_KILLED,       /* exit 128 + ask.signal: SIGTERM, SIGHUP, SIGQUIT */
};

struct qr_ask {
    struct qr_loop *loop;        /* borrowed */
    struct qr_http_client *http; /* borrowed */
    struct qr_term *term;        /* borrowed; its signals end the wait. NULL: none */
    const char *api_key;         /* borrowed; may be NULL */
    int32_t retries_max;         /* after 429, 502, 503 and 504 */
    int64_t load_wait_us;        /* how long a server that says it is still loading is waited for */
    bool (*on_text)(void *arg, const char *text, size_t n, bool reasoning); /* pieces as they come; false: the reader is gone,
                                                                              * which ends in KILLED by SIGPIPE; may be NULL */
    void (*on_wait)(void *arg, const char *why, int64_t wait_us);           /* before each pause; may be NULL */
    void *arg;                   /* borrowed from the caller */

    /* results */
    struct qr_chunk answer;
    struct qr_buf raw;           /* of an answer that was no stream, or an error: its body */
    int32_t status;              /* HTTP, 0 when none came */
    int64_t sent_ns, first_ns, last_ns, end_ns; /* request written, first and last piece of the answer (0: none), end; qr_clock_ns */
    int32_t n_pieces;            /* of the answer: events that carry something generated */
    int32_t signal;
};

void qr_ask_init(struct qr_ask *a);
void qr_ask_release(struct qr_ask *a);

/* method and path as in qr_http_call. Answers of /chat/completions, streamed or not, land in a->answer; others only in a->raw. On
 * SERVER_ERROR, NO_CONNECT and NO_MODEL *err says what happened and what to do; else it is untouched. */
enum qr_ask_end qr_ask_run(struct qr_ask *a, const char *method, const char *path, const char *body, size_t n_body,
                           struct qr_err *err);

/* The name of the first model after `*m` that has one, of a list that GET /models answered; NULL at its end. */
const char *qr_ask_next_model(const struct qr_json *list, const struct qr_json **m);

/* The tokens that a model of that list holds, prompt and answer together; 0 where the server does not say. */
int64_t qr_ask_model_context(const struct qr_json *model);

/* Asks GET /models for the model `name`; for the first one, and its name, where that is empty. *context: as above; may be NULL. */
enum qr_ask_end qr_ask_model(struct qr_ask *a, struct qr_buf *name, int64_t *context, struct qr_err *err);

/* Appends "37 prompt + 128 output tokens, first token 84 ms, 41.3 tok/s, cached 32", leaving out what is not known.
 * tok/s is (output tokens - 1) / (end - first token), left out when those are less than 1 ms apart. The server counts tokens at an
 * answer's end only: of one that was stopped each piece counts as "about" one token, and the last piece as the end. */
void qr_ask_stats(struct qr_buf *out, const struct qr_ask *a);

#endif
