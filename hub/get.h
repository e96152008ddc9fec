/* get.h - GETs from a hub, several at once: redirects, retries, resumed files, the user's token, Ctrl-C.
 *
 * The token travels to the hub's own scheme, host and port and to no other, whatever an answer redirects to or links. A cut connection, a 429 and a 5xx are
 * tried again with growing pauses, from the byte that is missing; an answer that is longer than it may be is an error. Signals that ask for an end are
 * noticed within a tenth of a second and end all GETs in good order. One thread.
 */
#ifndef QR_HUB_GET_H
#define QR_HUB_GET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Where the bytes of an answer go. An error ends all GETs. */
struct qr_hub_sink {
    /* *from: how many of the first bytes are there already. QR_E_BUSY: not yet, and it is called again: at once, or in a while where *from is -1. */
    int (*open)(void *user, int64_t *from, struct qr_err *err);
    int (*put)(void *user, const void *bytes, size_t n, struct qr_err *err);
    int (*restart)(void *user, struct qr_err *err);         /* what comes begins at byte 0 */
    int (*close)(void *user, bool whole, struct qr_err *err); /* whole: the last byte was put. QR_E_BUSY: of another file; all is to be fetched again */
};

#define QR_HUB_URL_MAX 8192

struct qr_hub_get {
    const char *url;    /* borrowed */
    const char *what;   /* borrowed: "config.json", for messages */
    int64_t n_bytes;    /* of the whole answer; -1: unknown, at most bytes_max */
    int64_t bytes_max;
    const struct qr_hub_sink *sink; /* borrowed, with user */
    void *user;
    /* Of the last answer: */
    int32_t status;              /* of HTTP; 0: there was none */
    bool own;                    /* it came from the hub itself, not from a host that it redirects to */
    char *link;                  /* [QR_HUB_URL_MAX], borrowed: becomes Link, or ""; NULL: not needed */
    char code[64], message[200]; /* X-Error-Code, X-Error-Message, or "" */
};

struct qr_hub_getter; /* opaque */

struct qr_hub_getter_options { /* all borrowed */
    const char *endpoint;    /* "https://huggingface.co" */
    const char *token;       /* or NULL */
    void (*tick)(void *user); /* about ten times a second; or NULL */
    void *user;
};

/* Errors: QR_E_NOT_FOUND: no libcurl; QR_E_USAGE: an endpoint that is no http(s) URL. The options' strings are copied. */
int qr_hub_getter_open(struct qr_hub_getter **out, const struct qr_hub_getter_options *o, struct qr_err *err);
void qr_hub_getter_close(struct qr_hub_getter *r); /* NULL is fine */
void qr_hub_getter_tick(struct qr_hub_getter *r, void (*tick)(void *user), void *user);

/* All of them, eight at a time. The first that cannot be had ends the others, whose sinks are closed. Errors: those of the sinks; QR_E_IO: the hub cannot be
 * reached (then qr_hub_getter_unreachable), or answers what is none; a code by the status of an answer (status tells); QR_E_CLOSED: a signal. */
int qr_hub_get_all(struct qr_hub_getter *r, struct qr_hub_get *const *get, int32_t n, struct qr_err *err);

bool qr_hub_getter_unreachable(const struct qr_hub_getter *r); /* no answer ever came */
int qr_hub_getter_signal(const struct qr_hub_getter *r);       /* that ended it, or 0 */

/* Whether a URL is on the endpoint's scheme, host and port. */
bool qr_hub_getter_is_own(const struct qr_hub_getter *r, const char *url);

#endif
