/* format.h - the values of JSON Schema's `format` that are enforced. Pure. */
#ifndef QR_ANSWERS_SCHEMA_FORMAT_H
#define QR_ANSWERS_SCHEMA_FORMAT_H

#include <stddef.h>
#include <stdint.h>

struct qr_format {
    const char *name;
    const char *pattern; /* of the whole string */
    int32_t length_max;  /* characters; 0: no limit */
};

const struct qr_format *qr_format_find(const char *name, size_t len); /* NULL: an annotation */

#endif
