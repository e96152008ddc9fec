/* llama_says.c - what llama.cpp makes of a GGUF file, for tools/check_gguf.py.
 *
 *     llama_says FILE [CONTEXT [ADAPTER]] < lines
 *
 * A line "logits ID ID ..." is answered with the logits behind the last id, "tokens HEX" and "special HEX" (the bytes of a text, the second time with the
 * tokens that the model begins and ends texts with) with ids, "known" with bos, eos, eot and the flags add_bos and add_eos. CONTEXT 0 is the model's own, and
 * "vocabulary" loads no weights. ADAPTER is a LoRA adapter's GGUF file, used as it says. Keys and values are kept in f32, and there is no flash attention, so
 * that weights in f32 are computed with in f32.
 *
 * Nothing builds this with the rest. By hand, beside a built llama.cpp (commit 0c1e570 was used) in $L:
 *     gcc -O2 -I$L/include -I$L/ggml/include -c tools/peers/llama_says.c -o llama_says.o
 *     g++ llama_says.o $L/build/src/libllama.a $L/build/ggml/src/{libggml,libggml-cpu,libggml-base}.a -lgomp -lpthread -ldl -o llama_says
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

#define LINE_MAX_BYTES (1 << 20)
#define IDS_MAX (1 << 16)

static void be_quiet(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

static void say_logits(struct llama_context *ctx, const struct llama_vocab *vocab, char *text)
{
    static llama_token ids[IDS_MAX];
    int32_t n = 0;
    for (char *word = strtok(text, " "); word && n < IDS_MAX; word = strtok(NULL, " "))
        ids[n++] = (llama_token)strtol(word, NULL, 10);
    llama_memory_clear(llama_get_memory(ctx), true);
    if (n == 0 || llama_decode(ctx, llama_batch_get_one(ids, n)) != 0) {
        printf("failed\n");
        return;
    }
    const float *logits = llama_get_logits_ith(ctx, -1);
    for (int32_t i = 0; i < llama_vocab_n_tokens(vocab); i++)
        printf("%s%.9g", i ? " " : "", (double)logits[i]);
    printf("\n");
}

static void say_tokens(const struct llama_vocab *vocab, const char *hex, bool special)
{
    static llama_token ids[IDS_MAX];
    static char text[LINE_MAX_BYTES];
    const size_t n_bytes = strlen(hex) / 2;
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        text[i] = (char)byte;
    }
    const int32_t n = llama_tokenize(vocab, text, (int32_t)n_bytes, ids, IDS_MAX, special, true);
    for (int32_t i = 0; i < n; i++)
        printf("%s%d", i ? " " : "", ids[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    if (argc < 2)
        return 2;
    llama_log_set(be_quiet, NULL);
    struct llama_model_params mp = llama_model_default_params();
    mp.vocab_only = argc > 2 && strcmp(argv[2], "vocabulary") == 0;
    mp.use_extra_bufts = false;
    struct llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model)
        return 1;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    cp.n_batch = cp.n_ubatch = 1024;
    cp.n_threads = cp.n_threads_batch = 1;
    cp.type_k = cp.type_v = GGML_TYPE_F32;
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    struct llama_context *ctx = mp.vocab_only ? NULL : llama_init_from_model(model, cp);
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    if (!ctx && !mp.vocab_only)
        return 1;
    struct llama_adapter_lora *adapter = argc > 3 && ctx ? llama_adapter_lora_init(model, argv[3]) : NULL;
    float whole = 1;
    if (argc > 3 && (!adapter || llama_set_adapters_lora(ctx, &adapter, 1, &whole) != 0))
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "logits ", 7) == 0 && ctx)
            say_logits(ctx, vocab, line + 7);
        else if (strncmp(line, "tokens", 6) == 0)
            say_tokens(vocab, line + 7, false);
        else if (strncmp(line, "special", 7) == 0)
            say_tokens(vocab, line + 8, true);
        else
            printf("%d %d %d %d %d\n", llama_vocab_bos(vocab), llama_vocab_eos(vocab), llama_vocab_eot(vocab), llama_vocab_get_add_bos(vocab),
                   llama_vocab_get_add_eos(vocab));
        fflush(stdout);
    }
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
