#include "base/sampling.h"

#include <float.h>

#include "base/assert.h"

#define TABLE_ROW(field_name, kind_name, key_name, flag_name, usual_value, offline, low, high, chat_word, in_config, letter, arg, read, text) \
    [QR_P_##field_name] = {.key = key_name, .flag = flag_name, .help = text, .kind = QR_SAMPLING_##kind_name,                     \
                           .offset = offsetof(struct qr_sampling, field_name), .usual = usual_value, .min = low, .max = high,     \
                           .chat = IN_##chat_word, .config = in_config},
#define IN_CHAT true
#define IN_PLAIN false

const struct qr_sampling_row qr_sampling_row[QR_P_N] = {QR_SAMPLING_ROWS(TABLE_ROW)};

void qr_sampling_put(struct qr_sampling *s, enum qr_sampling_param p, double value)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT((int)p >= 0 && p < QR_P_N);
    void *at = (char *)s + qr_sampling_row[p].offset;
    switch (qr_sampling_row[p].kind) {
    case QR_SAMPLING_FLOAT: *(float *)at = (float)value; break;
    case QR_SAMPLING_INT:
    case QR_SAMPLING_COUNT:
    case QR_SAMPLING_LENGTH: *(int32_t *)at = (int32_t)value; break;
    case QR_SAMPLING_FLAG: *(bool *)at = value != 0; break;
    case QR_SAMPLING_SEED: *(uint64_t *)at = (uint64_t)(int64_t)value; break;
    case QR_SAMPLING_LIST:
    case QR_SAMPLING_IDS: break;
    }
    if (p == QR_P_top_k && s->top_k < 0)
        s->top_k = 0;
    if (p == QR_P_top_p && s->top_p <= 0)
        s->top_p = FLT_MIN;
}

void qr_sampling_init(struct qr_sampling *s)
{
    QR_ASSERT(s != NULL);
    *s = (struct qr_sampling){.n_logprobs = -1, .n_prompt_logprobs = -1, .skip_special = true};
    for (enum qr_sampling_param p = 0; p < QR_P_N; p++)
        qr_sampling_put(s, p, qr_sampling_row[p].usual);
}

void qr_sampling_take(struct qr_sampling *s, const union qr_sampling_given given[QR_P_N])
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(given != NULL);
    for (enum qr_sampling_param p = 0; p < QR_P_N; p++) {
        const enum qr_sampling_kind kind = qr_sampling_row[p].kind;
        if (kind == QR_SAMPLING_LIST || kind == QR_SAMPLING_IDS)
            continue;
        const double whole = kind == QR_SAMPLING_FLAG ? given[p].on : (double)given[p].whole;
        qr_sampling_put(s, p, kind == QR_SAMPLING_FLOAT ? given[p].number : whole);
    }
}

int32_t qr_sampling_kept(const struct qr_sampling *s, int32_t n_prompt, int32_t ctx_max)
{
    QR_ASSERT(s != NULL && n_prompt >= 0);
    QR_ASSERT(ctx_max > 0);
    const int32_t room = s->max_tokens < ctx_max ? ctx_max - s->max_tokens : 1;
    const int32_t most = s->truncate_prompt > 0 ? s->truncate_prompt : room;
    return s->truncate_prompt != 0 && most < n_prompt ? most : n_prompt;
}
