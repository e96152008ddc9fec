#include "exchange/wire.h"

#include <string.h>

#include "base/assert.h"

static const struct qr_wire *const rows[] = {&qr_wire_unix, &qr_wire_ucx, &qr_wire_tcp}; /* the one without a prefix last */

int qr_wire_parse(struct qr_wire_place *place, const char *text, struct qr_err *err)
{
    QR_ASSERT(place != NULL && text != NULL);
    QR_ASSERT(err != NULL);
    *place = (struct qr_wire_place){0};
    if (strlen(text) >= QR_PEER_ADDRESS_MAX)
        return qr_err_set(err, QR_E_USAGE, "a peer's address of %zu bytes; at most %d", strlen(text), QR_PEER_ADDRESS_MAX - 1);
    memcpy(place->text, text, strlen(text));
    for (int i = 0; i < QR_COUNT(rows); i++) {
        const size_t n = strlen(rows[i]->prefix);
        if (strncmp(text, rows[i]->prefix, n) == 0) {
            place->wire = rows[i];
            return rows[i]->parse(place, text + n, err);
        }
    }
    QR_ASSERT(false);
}

bool qr_wire_is(const struct qr_wire_place *place, const char *text)
{
    struct qr_wire_place other;
    struct qr_err err;
    QR_ASSERT(place != NULL && text != NULL);
    QR_ASSERT(place->wire != NULL);
    return strcmp(place->text, text) == 0 || (qr_wire_parse(&other, text, &err) == 0 && other.wire == place->wire && strcmp(other.host, place->host) == 0 &&
                                              strcmp(other.port, place->port) == 0);
}
