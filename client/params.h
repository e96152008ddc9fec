/* params.h - the sampling parameters a chat may send (base/sampling.h): flags, /set, /show and the request body. What the user did
 * not set is not sent: the server's own default holds.
 */
#ifndef QR_CLIENT_PARAMS_H
#define QR_CLIENT_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sampling.h"

/* All zero: nothing is set. */
struct qr_chat_params {
    bool set[QR_P_N];
    double value[QR_P_N];
    int64_t whole[QR_P_N]; /* of those that are whole numbers */
    char *stop[QR_STOPS_MAX];  /* owned */
    int32_t n_stop;
};

void qr_chat_params_release(struct qr_chat_params *p);

/* name as in the API ("max_tokens"; "-" for "_" is fine), or "stop", which adds one. The text "default" unsets. `shown` is how errors
 * name the parameter ("--max-tokens", "max_tokens"). QR_E_USAGE says the bounds and what was given, or the nearest known name. */
int qr_chat_params_set(struct qr_chat_params *p, const char *name, const char *text, const char *shown, struct qr_err *err);

/* Appends `,"temperature":0.5,...` */
void qr_chat_params_put(struct qr_buf *out, const struct qr_chat_params *p);

/* Appends a row per parameter, for /show and /set; columns as in qr_wrap_row. */
void qr_chat_params_show(struct qr_buf *out, const struct qr_chat_params *p, int32_t columns);

/* The i-th name, NULL past the end. */
const char *qr_param_name(int32_t i);

#endif
