/* shaping.h - what writes a dialect's grammar shares. Internal to answers/dialect/: shape.c writes the answer and its
 * calls, shape_args.c the arguments. */
#ifndef QR_ANSWERS_DIALECT_SHAPING_H
#define QR_ANSWERS_DIALECT_SHAPING_H

#include "answers/dialect/reader.h"

struct qr_shaping {
    struct qr_exprs *x;
    const struct qr_vocab *v;
    const struct qr_dialect *d;
    const struct qr_answer_shape *s;
    struct qr_reading r;     /* of the form that is written; empty for messages with heads */
    struct qr_err *err;
    int rc;                  /* the first error's code */
    int32_t tool_number;     /* of the tool whose arguments are written, for paths */
};

/* A text as it is written: special tokens of the vocabulary are these tokens. */
int32_t qr_shape_written(struct qr_shaping *b, const char *text);
int32_t qr_shape_written_bytes(struct qr_shaping *b, const char *text, size_t len);

/* The text by which readers would know it, too: as tokens, and as bytes. */
int32_t qr_shape_stop(struct qr_shaping *b, const char *text, size_t len);

/* Arguments of a call of function f, a tool's; without what is around them in a form of JSON. */
int32_t qr_shape_json_arguments(struct qr_shaping *b, const struct qr_json *f);
int32_t qr_shape_tagged_arguments(struct qr_shaping *b, const struct qr_json *f);
int32_t qr_shape_loose_arguments(struct qr_shaping *b, const struct qr_json *f);

#endif
