/* warm.h - --warm-up: prompts of a file, a JSON line each, that are in the prefix cache when the server becomes ready. The file is read, and its lines are
 * held to be JSON, before the server listens; keys that lines name are remembered from then. Afterwards it is the thread's that opens the model.
 */
#ifndef QR_SERVER_WARM_H
#define QR_SERVER_WARM_H

#include "server/keys.h"
#include "server/server.h"

struct qr_warm; /* opaque */

/* Errors: those of reading; QR_E_TOO_LARGE; QR_E_INVALID with the line's number. */
int qr_warm_open(struct qr_warm **out, const char *path, const struct qr_keys *keys, struct qr_err *err);
void qr_warm_free(struct qr_warm *w); /* NULL is fine */

/* Computes all lines, or none where one of them cannot be: each such line is logged, and the first is the error. */
int qr_warm_run(const struct qr_warm *w, const struct qr_server_config *config, const struct qr_server_model *model, struct qr_warmed *out, struct qr_err *err);

#endif
