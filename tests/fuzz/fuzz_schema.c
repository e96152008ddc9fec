/* JSON Schema: whatever compiles has a first mask, and can be completed from there; whatever does not says why. Bit 0 of the first byte means OpenAI's
 * strict rules, bit 1 no blanks, bit 2 an object. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "answers/grammar/matcher.h"
#include "answers/schema/schema.h"
#include "base/assert.h"

static struct qr_vocab *every_byte(void)
{
    static char byte[256];
    static const char *text[257];
    static size_t len[257];
    static bool special[257];
    static const int32_t end = 256;
    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        text[i] = &byte[i];
        len[i] = 1;
    }
    text[256] = "";
    return qr_vocab_of(text, len, special, 257, &end, 1);
}

static void complete(struct qr_grammar *g)
{
    uint32_t mask[QR_MASK_WORDS(257)];
    char text[512];
    struct qr_err err = {0};
    struct qr_matcher m = {0};
    qr_matcher_init(&m, g);
    QR_ASSERT(qr_matcher_mask(&m, mask, &err) == 0);
    const int32_t n = qr_matcher_shortest(&m, text, sizeof text);
    QR_ASSERT(n < 0 || (qr_matcher_bytes(&m, text, (size_t)n, NULL) && qr_matcher_accepts(&m)));
    qr_matcher_release(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_json *schema;
    struct qr_err err = {0};
    struct qr_grammar *g = NULL;
    int32_t root = 0;
    if (size == 0 || qr_json_parse(&schema, (const char *)data + 1, size - 1, &qr_json_limits_request, &err) != 0)
        return 0;
    const struct qr_schema_options options = {.strict = data[0] & 1, .compact = data[0] & 2, .object_only = data[0] & 4};
    struct qr_exprs *x = qr_exprs_new((size_t)8 << 20);
    struct qr_vocab *v = every_byte();
    err = (struct qr_err){0};
    if (qr_schema_build(&root, x, schema, &options, &err) != 0) {
        QR_ASSERT(err.code < 0 && err.msg[0] != 0 && err.param[0] == '$');
        qr_exprs_free(x);
    } else if (qr_grammar_new(&g, x, root, v, (size_t)2 << 20, &err) == 0) {
        complete(g);
        qr_grammar_unref(g);
    }
    qr_vocab_free(v);
    qr_json_free(schema);
    return 0;
}
