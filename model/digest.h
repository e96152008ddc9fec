/* digest.h - what the bits of keys and values are a function of, beside the ids: the program, its kernels, the model as it lies in memory, rotary frequencies.
 *
 * Two processes whose digests are equal would compute the same bits, so each may take the other's. Every byte of the packed weights counts: files that differ
 * in one row of a matrix have equal names, sizes and nearly all samples. Reading them takes what memory's bandwidth says, once the model is open.
 */
#ifndef QR_MODEL_DIGEST_H
#define QR_MODEL_DIGEST_H

#include "base/sha256.h"
#include "model/model.h"

/* On the thread that owns `be`, whose memory is the host's. QR_E_UNSUPPORTED where the program has no build id. */
int qr_model_digest(uint8_t out[QR_SHA256_BYTES], const struct qr_model *m, struct qr_backend *be, struct qr_err *err);

#endif
