/* prepare.h - text files to a directory of prepared data: tokenized documents in shards (shards.h), a part held out, the tokenizer's files beside them.
 *
 * A document is a text (a whole file, a part between separators, {"text": ...} of a line of JSON) or a conversation ({"messages": [...]}). A text gets the
 * ids that the tokenizer puts around one (BOS where it does that), and the end-of-text id behind it. A conversation is rendered by the model's own
 * template, and only what the assistant says counts (chat_ids.h); an end-of-text id is added only where the last answer has no end of its own.
 *
 * The output is the same for the same input, options and tokenizer. It is written under another name and renamed when complete; after an error, or when
 * the caller stops it, nothing is left. Memory does not grow with the input: one document at a time, and what a shard needs (about 24 MB).
 */
#ifndef QR_TRAIN_DATA_PREPARE_H
#define QR_TRAIN_DATA_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "train/data/doc_reader.h"

struct qr_data_progress {
    int64_t n_bytes, n_bytes_total; /* of the input; the total is 0 when a file does not say its size */
    int64_t n_docs, n_tokens;
    const char *file;               /* being read */
};

struct qr_data_prepare {
    const char *tokenizer_dir; /* a model directory, or one with a tokenizer */
    const char *out;
    const char *const *files;  /* borrowed [n_files] */
    int32_t n_files;
    enum qr_data_kind kind;
    const char *separator;     /* of text files: a line; NULL: none. "": an empty line */
    double eval_fraction;      /* 0 <= f < 1: documents whose hash falls below it go to OUT/eval */
    bool end_of_text;          /* put the tokenizer's end-of-text id behind documents */
    bool parse_special;        /* special tokens written in texts become their ids */
    bool all_turns;            /* everything in a conversation counts */
    bool skip_bad;             /* a document that cannot be read is counted and left out, instead of being an error */
    bool replace;              /* OUT, if it holds prepared data, is replaced */
    int64_t shard_tokens_max;  /* 0: QR_SHARD_TOKENS_MAX */
    bool (*progress)(void *user, const struct qr_data_progress *p); /* after each document; false stops. NULL: none */
    void *user;
};

struct qr_data_part {
    int64_t n_docs, n_tokens, n_targets;
};

struct qr_data_summary {
    struct qr_data_part train, eval;
    int64_t n_bytes, n_chats, n_turns;
    int64_t n_hidden, n_open;  /* turns not shown by the template; turns without a token that ends them */
    int64_t n_empty, n_bad;    /* documents of no ids; documents left out */
    bool no_end_of_text;       /* the options want one, but the tokenizer has none */
    char first_bad[500];       /* what was wrong with the first one left out, with file and line */
};

/* Errors: a document's name file and line (QR_E_INVALID, QR_E_TOO_LARGE); QR_E_NOT_FOUND, QR_E_IO, QR_E_DAMAGED; QR_E_CLOSED when progress said stop. */
int qr_data_prepare(const struct qr_data_prepare *p, struct qr_data_summary *out, struct qr_err *err);

#endif
