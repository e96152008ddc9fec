/* fuzz_forwarded.c - any bytes as X-Forwarded-For and as Forwarded, cut into fields: the address that comes out is the peer's, or stands in the bytes
 * behind one that is trusted, and what is put in front of an address that is not trusted changes nothing. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "server/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct qr_address ask(const struct qr_http_forwarded *said, const struct qr_networks *trusted)
{
    static const uint8_t peer[4] = {10, 0, 0, 1};
    const struct qr_address from = qr_address_of(peer, 4);
    return qr_client_address(&from, said, trusted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_network net = {.n_bits = 8};
    const struct qr_networks trusted = {&net, 1}, none = {0};
    static const uint8_t ten[4] = {10}, real[4] = {9, 9, 9, 9};
    struct qr_http_forwarded old = {0}, new = {0};
    struct qr_buf tail = {0}, tail_new = {0};
    const char *text = size > 0 ? (const char *)data : "";
    const size_t half = size / 2;
    net.address = qr_address_of(ten, 4);
    old.x_forwarded_for[old.n_for++] = new.forwarded[new.n_forwarded++] = (struct qr_span){text, half};
    old.x_forwarded_for[old.n_for++] = new.forwarded[new.n_forwarded++] = (struct qr_span){text + half, size - half};
    ask(&old, &trusted);
    ask(&new, &trusted);
    QR_ASSERT(ask(&old, &none).bytes[0] == 10 && ask(&new, &none).bytes[0] == 10);
    qr_buf_put(&tail, text, size);
    qr_buf_put_str(&tail, ", 9.9.9.9");
    qr_buf_put(&tail_new, text, size);
    qr_buf_put_str(&tail_new, ", for=9.9.9.9");
    old.x_forwarded_for[1] = (struct qr_span){tail.data, tail.len};
    new.forwarded[1] = (struct qr_span){tail_new.data, tail_new.len};
    const struct qr_address a = ask(&old, &trusted), b = ask(&new, &trusted), is = qr_address_of(real, 4);
    QR_ASSERT(qr_address_equal(&a, &is) && qr_address_equal(&b, &is));
    qr_buf_release(&tail);
    qr_buf_release(&tail_new);
    return 0;
}
