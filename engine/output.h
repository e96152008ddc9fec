/* output.h - tokens to text, and the one place where it is decided that a choice has finished. Fixed memory per choice.
 *
 * Text is certain, and goes out, when no stop string can begin in it any more: each stop string keeps the length of its longest prefix
 * that ends the text so far (Knuth-Morris-Pratt), and that many bytes are held back. One pass over the bytes, whatever the
 * stop strings are.
 */
#ifndef QR_ENGINE_OUTPUT_H
#define QR_ENGINE_OUTPUT_H

#include "engine/engine.h"

struct qr_output {
    int32_t n_output;               /* generated tokens */
    enum qr_finish finish;
    char *text;                     /* borrowed, text_cap bytes: not yet sent */
    int32_t text_len, n_certain;    /* text[0..n_certain) may go out */
    int32_t stop_index, stop_id;
    struct qr_detok detok;          /* what it holds back comes last and is seldom there */
    uint16_t matched[QR_STOPS_MAX]; /* bytes of stop i that end the text */
};

/* Bytes of text one choice may hold: the longest held-back prefix, one piece, and the detokenizer's flush. */
int32_t qr_output_text_cap(const struct qr_tokenizer *t);

void qr_output_init(struct qr_output *o, char *text, const struct qr_request *r, int32_t choice, const struct qr_tokenizer *t);

/* One more token. end_ids: the model's end tokens (they count as output but leave no text, unless ignore_eos). ctx_max ends the
 * choice with LENGTH. After a finish everything left in text is certain. */
void qr_output_push(struct qr_output *o, const struct qr_request *r, int32_t id, const int32_t *end_ids, int32_t n_end, int32_t ctx_max);

/* Ends the choice for another reason (length 0, cancel, error): what is held back becomes certain. */
void qr_output_end(struct qr_output *o, enum qr_finish finish);

/* Takes up to `room` certain bytes, never splitting a character; returns their number. */
int32_t qr_output_take(struct qr_output *o, char *out, int32_t room);

#endif
