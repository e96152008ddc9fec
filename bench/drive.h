/* drive.h - requests of random ids through an engine in this process, which takes them as it takes a server's. The caller is the one receiver of events. */
#ifndef QR_BENCH_DRIVE_H
#define QR_BENCH_DRIVE_H

#include "engine/engine.h"
#include "kernels/backend.h"

struct qr_drive {
    struct qr_engine *engine;       /* owned */
    struct qr_tokenizer *tokenizer; /* owned */
    int32_t n_made, n_open;         /* requests; those that have not ended */
    int64_t n_output;               /* tokens of all */
    int64_t first_us;               /* when the last request so far got its first token */
    struct qr_err err;              /* of the first request that ended with an error; code 0: none has */
};

/* Zeroed before. Errors: the tokenizer's, the model's, the engine's. */
int qr_drive_open(struct qr_drive *d, const char *model, const struct qr_engine_config *config, const struct qr_backend_options *backend,
                  const struct qr_model_options *options, struct qr_err *err);
void qr_drive_close(struct qr_drive *d); /* also of a zeroed one */

/* One more request, with n_prompt ids that are a function of its number. Errors: those of qr_engine_submit; QR_E_NO_ROOM. */
int qr_drive_submit(struct qr_drive *d, const struct qr_sampling *sampling, int32_t n_prompt, struct qr_err *err);

/* Waits for events, takes what has come and gives it back. */
void qr_drive_pump(struct qr_drive *d);

#endif
