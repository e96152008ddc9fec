/* Lark grammars from arbitrary bytes: refused with a message, or compiled within the pool's bounds and able to match. Schemas are any
 * text. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "grammar_fuzz.h"

static int read_schema(int32_t *out, struct qr_exprs *x, const struct qr_json *schema, void *user, struct qr_err *err)
{
    QR_ASSERT(qr_json_type(schema) == QR_JSON_T_OBJECT);
    *out = qr_expr_utf8(x);
    return qr_json_count(schema) < 3 ? 0 : qr_err_at(err, QR_E_UNSUPPORTED, "$", "too many members");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_vocab *v = grammar_vocab();
    struct qr_exprs *x = qr_exprs_new(1 << 22);
    struct qr_err err = {0};
    int32_t root;
    const int rc = qr_lark_parse(&root, x, (const char *)data, size, v, read_schema, NULL, &err);
    qr_vocab_free(v);
    grammar_use(x, rc, root, &err);
    return 0;
}
