/* fuzz_messages - bodies of Anthropic's Messages API. */
#include "tests/fuzz/door_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_door(&qr_door_messages, data, n);
    return 0;
}
