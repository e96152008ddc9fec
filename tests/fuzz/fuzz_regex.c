/* Regular expressions from arbitrary bytes: the first byte chooses form and flags. Refused with a message, or compiled within the pool's
 * bounds; then a shortest text is in the language, and texts are matched without a fault. */
#include <stdint.h>
#include <stdlib.h>

#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct qr_exprs *x = qr_exprs_new(1 << 22);
    struct qr_err err = {0};
    int32_t root;
    const int rc = qr_regex_parse(&root, x, (const char *)data + 1, size - 1, (enum qr_regex_form)(data[0] % 3), data[0] / 3 % 4, &err);
    grammar_use(x, rc, root, &err);
    return 0;
}
