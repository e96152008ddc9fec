/* openapi.h - the API in the words of the tables that parse it: routes (route.h), fields of bodies (openai.h, door.h), errors (error_index.h). Pure.
 */
#ifndef QR_SERVER_OPENAPI_H
#define QR_SERVER_OPENAPI_H

#include "base/buf.h"

/* Appends the description as OpenAPI 3.1, in JSON. */
void qr_openapi_put(struct qr_buf *out);

/* Appends the same as a page: routes, fields, the index of errors. */
void qr_openapi_put_page(struct qr_buf *out);

#endif
