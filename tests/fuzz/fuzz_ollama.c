/* fuzz_ollama - bodies of ollama's /api/chat and /api/generate. The first byte chooses. */
#include "server/ollama.h"
#include "tests/fuzz/door_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > 0)
        fuzz_door(data[0] & 1 ? &qr_door_ollama_chat : &qr_door_ollama_generate, data + 1, n - 1);
    return 0;
}
