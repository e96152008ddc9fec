/* tokenizer_train.h - a tokenizer learnt from text files: the documents of bpe_train.h, and the directory that comes of it.
 * OUT gets tokenizer.json and tokenizer_config.json, complete or not there; a model's other files may join them later.
 */
#ifndef QR_TRAIN_DATA_TOKENIZER_TRAIN_H
#define QR_TRAIN_DATA_TOKENIZER_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "tokenizer/train/bpe_train.h"
#include "train/data/doc_reader.h"

struct qr_tokenizer_train_progress {
    int64_t n_bytes, n_bytes_total; /* read of the files; the total is 0 when one of them does not say its size */
    int32_t n_tokens;  /* learnt; 0 while reading */
    const char *file;  /* being read; NULL while learning */
};

struct qr_tokenizer_train {
    struct qr_bpe_train_options bpe;
    const char *out;
    const char *const *files;  /* borrowed [n_files] */
    int32_t n_files;
    const char *separator;     /* of text files: a line; NULL: none */
    enum qr_data_kind kind;    /* of JSON Lines, "text" and the contents of "messages" are learnt from */
    const char *chat_template; /* a Jinja template; NULL: none */
    bool (*progress)(void *user, const struct qr_tokenizer_train_progress *p); /* after each document and some merges; false stops. NULL: none */
    void *user;
};

struct qr_tokenizer_train_summary {
    int64_t n_docs, n_bytes, n_pieces;
    int32_t n_tokens, n_merges;
};

/* Errors name file and line; QR_E_USAGE for settings, and when OUT is there already; QR_E_CLOSED when progress said stop. After an error nothing is left. */
int qr_tokenizer_train(const struct qr_tokenizer_train *p, struct qr_tokenizer_train_summary *out, struct qr_err *err);

#endif
