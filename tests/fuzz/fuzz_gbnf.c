/* GBNF grammars from arbitrary bytes: refused with a message, or compiled within the pool's bounds and able to match. */
#include <stdint.h>
#include <stdlib.h>

#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_vocab *v = grammar_vocab();
    struct qr_exprs *x = qr_exprs_new(1 << 22);
    struct qr_err err = {0};
    int32_t root;
    const int rc = qr_gbnf_parse(&root, x, (const char *)data, size, v, &err);
    qr_vocab_free(v);
    grammar_use(x, rc, root, &err);
    return 0;
}
