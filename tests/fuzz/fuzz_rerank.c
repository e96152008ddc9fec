/* fuzz_rerank - bodies of /v1/rerank and /v1/score. The first byte chooses. */
#include <stdint.h>

#include "base/assert.h"
#include "server/pairs.h"

static void check_pairs(const struct qr_pairs *p)
{
    QR_ASSERT(p->n >= 1 && p->n <= QR_PAIRS_MAX);
    QR_ASSERT(p->n_first == 1 || p->n_first == p->n);
    QR_ASSERT(p->top_n >= 1 && p->top_n <= p->n);
    for (int side = 0; side < 2; side++) {
        int32_t n = 0;
        for (const struct qr_json *v = qr_pairs_first(p->text[side]); v && n < (side == 0 ? p->n_first : p->n); v = qr_json_after(v), n++) {
            size_t len;
            QR_ASSERT(qr_pairs_text(v, &len) != NULL);
        }
        QR_ASSERT(n == (side == 0 ? p->n_first : p->n) && p->name[side] != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct qr_pairs p;
    struct qr_err err = {0};
    if (n == 0)
        return 0;
    if (qr_pairs_read(&p, data[0] & 1, (const char *)data + 1, n - 1, &err) == 0) {
        check_pairs(&p);
    } else {
        QR_ASSERT(err.code == QR_E_INVALID || err.code == QR_E_TOO_LARGE || err.code == QR_E_UNSUPPORTED);
        QR_ASSERT(err.msg[0] != 0);
    }
    qr_json_free(p.doc);
    return 0;
}
