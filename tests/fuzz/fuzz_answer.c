/* Answers of models: the first byte chooses the family, the second the options and the cuts, the rest is the text.
 * Whole, byte by byte and in random pieces, the parts are the same; calls begin and end in order. */
#include <stdint.h>
#include <stdlib.h>

#include "tests/answers/said.h"

#define TEXT_MAX 4096

static const char tools_text[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"
                                 "\"type\":\"string\"},\"b\":{\"type\":"
                                 "[\"integer\",\"null\"]},\"c\":{\"type\":\"object\"},\"d\":{\"anyOf\":[{\"type\":\"array\"},{\"$ref\":\"#/$defs/"
                                 "x\"}]}},\"$defs\":{\"x\":{\"enum\":[1,\"u\"]}}}}}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > TEXT_MAX)
        return 0;
    int32_t n = 0;
    while (qr_dialect_name_at(n))
        n++;
    struct qr_dialect *d = qr_dialect_named(qr_dialect_name_at(data[0] % n));
    struct qr_json *tools;
    struct qr_err err;
    QR_ASSERT(d && qr_json_parse(&tools, tools_text, sizeof tools_text - 1, &qr_json_limits_request, &err) == 0);
    const struct qr_answer_options o = {.tools = data[1] & 1 ? tools : NULL,
                                        .starts_inside = (data[1] & 2) != 0,
                                        .parse_reasoning = (data[1] & 4) == 0,
                                        .single = (data[1] & 8) != 0,
                                        .calls_are_text = (data[1] & 0x30) == 0x30};
    const char *text = (const char *)data + 2;
    const size_t len = size - 2;
    uint8_t cut[TEXT_MAX / 8 + 1];
    struct said whole, pieces;
    said_feed(&whole, d, &o, text, len, NULL, (data[1] & 64) != 0);
    for (int way = 0; way < 2; way++) {
        for (size_t i = 0; i < sizeof cut; i++)
            cut[i] = way == 0 ? 0xFF : (uint8_t)(data[(i + 1) % size] * 37u + i * 101u);
        said_feed(&pieces, d, &o, text, len, cut, (data[1] & 64) == 0);
        QR_ASSERT(pieces.text.len == whole.text.len && (whole.text.len == 0 || memcmp(pieces.text.data, whole.text.data, whole.text.len) == 0));
        qr_buf_release(&pieces.text);
    }
    qr_buf_release(&whole.text);
    qr_json_free(tools);
    qr_dialect_free(d);
    return 0;
}
