/* format.h - the values of JSON Schema's `format` that are enforced. Pure. */
#ifndef QR_ANSWERS_SCHEMA_FORMAT_H
#define QR_ANSWERS_SCHEMA_FORMAT_H

#include <stddef.h>

struct qr_format {
    const char *name;
    const char *pattern; /* of the whole string */
};

const struct qr_format *qr_format_find(const char *name, size_t len); /* NULL: an annotation */

#endif
