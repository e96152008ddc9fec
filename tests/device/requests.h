/* requests.h - a model that an emulated device computes soon, and requests of every kind of draw. */
#ifndef QR_TESTS_DEVICE_REQUESTS_H
#define QR_TESTS_DEVICE_REQUESTS_H

#include "tests/engine/harness.h"
#include "tests/model/rig.h"

enum { N_REQUESTS = 4, N_PROMPT = 4 };

/* Requests of every kind of draw; the longest is the last to end. */
static inline struct qr_sampling sampling_of(int i)
{
    static const int32_t never[] = {2, 4, 9, 2, 5, 9, 1, 300}, only[] = {7, 70, 170, 270, 470};
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.temperature = i == 0 ? 0 : 0.9f;
    s.top_k = i == 1 ? 12 : 0;
    s.top_p = i == 2 ? 0.8f : 1;
    s.repetition = i == 2 ? 1.3f : 1;
    s.frequency = i == 3 ? 0.4f : 0;
    s.n_logprobs = i == 3 ? 2 : -1;
    s.seed = 40 + (uint64_t)i;
    s.max_tokens = 2 + i;
    s.ignore_eos = true;
    if (i == 2)
        s.bad = never, s.n_bad = 8;
    if (i == 3)
        s.allowed = only, s.n_allowed = 5;
    return s;
}

/* One of them says digits only. */
static inline struct guided guided_of(int i)
{
    return (struct guided){.grammar = i == 1 ? GRAMMAR_DIGITS : GRAMMAR_NONE};
}

static inline void prompt_of(int i, int32_t prompt[N_PROMPT])
{
    for (int k = 0; k < N_PROMPT; k++)
        prompt[k] = 3 + (37 * i + 11 * k) % 500;
}

/* A model that is soon computed, with the tokenizer of another one. QUIRE_DATA is where it lies from now on. */
static inline struct temp_model small_model(int32_t n_kv_heads)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    char from[1024], to[128];
    c.n_embd = c.n_ffn = c.head_dim = 64;
    c.n_layers = 1;
    c.n_heads = c.n_kv_heads = n_kv_heads;
    c.n_vocab = 512;
    struct temp_model t = temp_model_make(&c, QR_BF16);
    snprintf(from, sizeof from, "%s", data_path("models/stories260K/tokenizer.json"));
    snprintf(to, sizeof to, "%s/tokenizer.json", t.dir);
    cr_assert_eq(symlink(from, to), 0);
    setenv("QUIRE_DATA", "", 1);
    return t;
}

static inline void small_model_remove(const struct temp_model *t)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tokenizer.json", t->dir);
    unlink(path);
    temp_model_remove(t);
}

#endif
