/* sampling.h - the sampling parameters: one row each, and one plain struct of their values.
 *
 * QR_SAMPLING_ROWS is the only list. HTTP fields (server/openai_parse.c), flags of `quire generate` (cli/cmd_generate.c) and
 * `quire chat` (client/chat_options.c), the chat's /set (client/params.c), and generation_config.json
 * (loader/config/hf_config.c) are made from it; names, ranges and defaults stand nowhere else. What a value does to the
 * logits is the engine's (engine/sampler.c, and engine/ahead.c for a device that draws). Pure data, any thread.
 */
#ifndef QR_BASE_SAMPLING_H
#define QR_BASE_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"

#define QR_STOPS_MAX 16
#define QR_STOP_BYTES_MAX 256
#define QR_STOP_IDS_MAX 64
#define QR_LOGIT_BIAS_MAX 1024
#define QR_BAD_WORDS_MAX 1024
#define QR_EXACT 9007199254740991.0 /* largest integer that a double and JSON's readers keep exact */

struct qr_logit_bias {
    int32_t id;
    float bias;
};

/* How the next token is chosen. Order of operations: repetition, frequency and presence penalties, logit_bias, forbidden ids
 * (the end's before min_tokens, bad_words, all but allowed_token_ids), temperature, top_k, top_p, min_p, draw. temperature
 * below 1e-5 is greedy (ties: the smallest id). The draw for output position p of choice c is f(seed, c, p) and nothing else. */
struct qr_sampling {
    float temperature, top_p, min_p;
    int32_t top_k;                /* 0: off */
    float presence, frequency;
    float repetition;             /* 1: off; counts prompt and output */
    uint64_t seed;
    int32_t max_tokens, min_tokens;
    bool ignore_eos;
    int32_t n_logprobs;           /* top alternatives per generated token; -1: no log-probabilities at all */
    int32_t n_prompt_logprobs;    /* the same for prompt tokens; -1: none */
    bool skip_special;            /* special tokens leave no text */
    bool include_stop;            /* the matched stop string stays in the text */
    int32_t truncate_prompt;      /* see qr_sampling_kept; 0: off */
    int32_t n_stops, n_stop_ids, n_logit_bias, n_allowed, n_bad;
    const struct qr_logit_bias *logit_bias; /* these three: owned by the request */
    const int32_t *allowed;       /* [n_allowed] the only ids that may be chosen; n_allowed 0: any */
    const int32_t *bad;           /* [n_bad] runs of a length and as many ids: the last is forbidden where the output ends with the others */
    const char *stop[QR_STOPS_MAX]; /* owned by the request */
    int32_t stop_ids[QR_STOP_IDS_MAX];
};

/* What a parameter's value is. COUNT: at most the context; LENGTH: max_tokens, which each HTTP variant names and bounds in its
 * own way; SEED: any 64 bits over HTTP; the last three are read by `read` (server/openai_fields.c). */
enum qr_sampling_kind { QR_SAMPLING_FLOAT, QR_SAMPLING_INT, QR_SAMPLING_COUNT, QR_SAMPLING_LENGTH, QR_SAMPLING_FLAG, QR_SAMPLING_SEED,
                        QR_SAMPLING_LIST, QR_SAMPLING_IDS };

/* ROW(field, kind, key, flag, usual, offline, min, max, chat, config, letter, arg, read, help)
 *   key, flag      its name in JSON and /set, and as a flag
 *   usual, offline its default over HTTP, and `quire generate`'s as one would type it (NULL: unset)
 *   chat           CHAT: `quire chat` has it; PLAIN: it has not
 *   config         whether generation_config.json gives a model's default
 *   letter         `quire chat`'s short flag, or 0; the flags with a letter are those that -h shows
 *   read           the server's reader of the kinds SEED, LIST and IDS */
#define QR_SAMPLING_ROWS(ROW)                                                                                                    \
    ROW(temperature, FLOAT, "temperature", "temperature", 1, "0", 0, 2, CHAT, true, 'T', "X", NULL,                              \
        "0 always takes the likeliest token")                                                                                    \
    ROW(top_p, FLOAT, "top_p", "top-p", 1, "1", 0, 1, CHAT, true, 0, "P", NULL,                                                  \
        "sample among the likeliest tokens that make up this probability")                                                       \
    ROW(top_k, INT, "top_k", "top-k", 0, "0", -1, 2147483647, CHAT, true, 0, "K", NULL,                                          \
        "sample among this many tokens; -1 or 0: all")                                                                           \
    ROW(min_p, FLOAT, "min_p", "min-p", 0, "0", 0, 1, CHAT, true, 0, "P", NULL,                                                  \
        "drop tokens less likely than this part of the likeliest")                                                               \
    ROW(max_tokens, LENGTH, "max_tokens", "max-tokens", 16, "128", 0, 2147483647, CHAT, false, 'n', "N", NULL,                   \
        "length limit of an answer")                                                                                             \
    ROW(min_tokens, COUNT, "min_tokens", "min-tokens", 0, "0", 0, 2147483647, PLAIN, false, 0, "N", NULL,                        \
        "no end before so many new tokens")                                                                                      \
    ROW(seed, SEED, "seed", "seed", 0, "0", -QR_EXACT, QR_EXACT, CHAT, false, 0, "N", qr_read_seed, "same seed, same answer")    \
    ROW(frequency, FLOAT, "frequency_penalty", "frequency-penalty", 0, "0", -2, 2, CHAT, false, 0, "X", NULL,                    \
        "against repetition, by count")                                                                                          \
    ROW(presence, FLOAT, "presence_penalty", "presence-penalty", 0, "0", -2, 2, CHAT, false, 0, "X", NULL,                       \
        "against repetition, by presence")                                                                                       \
    ROW(repetition, FLOAT, "repetition_penalty", "repetition-penalty", 1, "1", 1e-3, 100, PLAIN, true, 0, "X", NULL,             \
        "against repetition of prompt and answer, as a divisor; 1 is off") /* logits must stay numbers */                        \
    ROW(stop, LIST, "stop", "stop", 0, NULL, 0, 0, PLAIN, false, 0, "TEXT", qr_read_stop,                                        \
        "end before this text; may be repeated")                                                                                 \
    ROW(bad, LIST, "bad_words", "bad-words", 0, NULL, 0, 0, PLAIN, false, 0, "TEXT", qr_read_bad_words,                          \
        "never complete this text; may be repeated")                                                                             \
    ROW(allowed, IDS, "allowed_token_ids", "allowed-token-ids", 0, NULL, 0, 0, PLAIN, false, 0, "IDS", qr_read_allowed_token_ids, \
        "take these tokens only: 1,2,3")                                                                                         \
    ROW(truncate_prompt, COUNT, "truncate_prompt_tokens", "truncate-prompt-tokens", 0, "0", -1, 2147483647, PLAIN, false, 0, "K", NULL, \
        "keep the last K tokens of a prompt; -1: as many as fit, 0: all")                                                        \
    ROW(ignore_eos, FLAG, "ignore_eos", "ignore-eos", 0, "false", 0, 0, PLAIN, false, 0, NULL, NULL,                             \
        "go on behind the model's end token")

#define QR_SAMPLING_NAME(field, ...) QR_P_##field,
enum qr_sampling_param { QR_SAMPLING_ROWS(QR_SAMPLING_NAME) QR_P_N }; /* QR_P_temperature, ... */

struct qr_sampling_row {
    const char *key, *flag, *help;
    enum qr_sampling_kind kind;
    size_t offset;                /* in struct qr_sampling */
    double usual, min, max;
    bool chat, config;
};
extern const struct qr_sampling_row qr_sampling_row[QR_P_N];

/* What generation_config.json says of a parameter. */
struct qr_sampling_default {
    bool given;
    double value;
};

/* What an option (base/option.h) of a parameter is read into. */
union qr_sampling_given {
    double number;                /* FLOAT */
    int64_t whole;                /* INT, COUNT, LENGTH, SEED */
    bool on;                      /* FLAG */
    struct qr_str_list list;      /* LIST */
    const char *text;             /* IDS, and everything in a chat, where what is not given must stay unset */
};

void qr_sampling_init(struct qr_sampling *s); /* every parameter as usual: temperature 1, max_tokens 16, everything else off */

/* Writes a value within the parameter's range; top_k -1 is 0, and top_p 0 so little that the likeliest token alone is left. Not LIST and IDS. */
void qr_sampling_put(struct qr_sampling *s, enum qr_sampling_param p, double value);

/* The values of options; LIST and IDS are the caller's to read. */
void qr_sampling_take(struct qr_sampling *s, const union qr_sampling_given given[QR_P_N]);

/* How many of a prompt's last tokens stay: truncate_prompt, or where that is -1 what ctx_max leaves beside max_tokens. */
int32_t qr_sampling_kept(const struct qr_sampling *s, int32_t n_prompt, int32_t ctx_max);

#endif
