/* quantize_text.h - the text of `quire quantize`: cut into windows, most of them to calibrate with, the last ones held out for perplexity. */
#ifndef QR_CLI_QUANTIZE_TEXT_H
#define QR_CLI_QUANTIZE_TEXT_H

#include <stdatomic.h>

#include "base/err.h"
#include "model/calibrate.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

struct qr_quantize_text {
    struct qr_ids ids;                    /* owned: of the whole text, without the tokenizer's special tokens */
    int32_t bos;                          /* in front of every window, or -1 */
    int32_t step;                         /* tokens of the text in a window */
    int32_t n_windows, n_held, n_calibrate; /* the last n_held are held out; n_calibrate of the others, evenly spread, are calibrated with */
};

/* Reads and cuts. Errors: those of reading; QR_E_INVALID: too short. */
int qr_quantize_text_open(struct qr_quantize_text *t, const char *file, const char *model, struct qr_err *err);
void qr_quantize_text_close(struct qr_quantize_text *t); /* also of a zeroed one */

/* Perplexity of a model on what is held out; and, unless calibration is NULL, what its matrices' inputs are like on the rest. n_threads as everywhere; stop not
 * 0: QR_E_CLOSED. */
int qr_quantize_text_measure(double *perplexity, struct qr_calibration **calibration, const struct qr_quantize_text *t, const char *model, int32_t n_threads,
                             const _Atomic int *stop, struct qr_err *err);

#endif
