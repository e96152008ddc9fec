/* bpe_train.h - learns a byte-level BPE vocabulary from text and writes it as tokenizer.json.
 *
 * The text is cut by the pre-tokenizer that the file will name, read by the same code that will encode with it; a cut's bytes are its symbols. Then the
 * pair of neighbours with the most occurrences becomes a new symbol, again and again: among equal pairs the one with the smaller left id, then the
 * smaller right id. Counts are exact (all neighbours, overlapping ones too), kept up by each merge from the places where the pair lies, and the next pair
 * comes from a heap: merging costs about the length of the distinct pieces, whatever the number of merges.
 * Ids: special tokens as given, the 256 bytes in the order of their characters (bytechar.h), then one for each merge. So with the same settings Hugging
 * Face's BpeTrainer learns the same ids. Memory grows with the distinct pieces, not with the text. Sources: Gage 1994; Sennrich et al. 2016
 * (arXiv:1508.07909); Radford et al. 2019. One owning thread.
 */
#ifndef QR_TOKENIZER_TRAIN_BPE_TRAIN_H
#define QR_TOKENIZER_TRAIN_BPE_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define QR_BPE_TRAIN_CHOICES "llama3|qwen2|gpt2" /* names of cuts, in the order of enum qr_bpe_cut */
enum qr_bpe_cut {
    QR_BPE_CUT_LLAMA3, /* words with the character before them, up to three digits, punctuation, line breaks */
    QR_BPE_CUT_QWEN2,  /* the same, every digit by itself */
    QR_BPE_CUT_GPT2,
};

#define QR_BPE_TRAIN_TOKEN_MAX 128 /* bytes of a token; a pair that would make a longer one is skipped */

struct qr_bpe_train_options {
    enum qr_bpe_cut cut;
    int32_t vocab_size;         /* special tokens and the 256 bytes included */
    int64_t min_count;          /* pairs that occur less often are not merged; >= 1 */
    const char *const *special; /* borrowed for the call [n_special] */
    int32_t n_special;
    const char *bos, *eos;      /* one of them or NULL; bos is put in front of texts by the post-processor */
};

struct qr_bpe_trainer; /* opaque */

/* Errors: QR_E_USAGE for a vocabulary that is too small or large, a special token that is empty, twice there, no UTF-8, or the name of a byte, and for a bos or
 * eos that is not special. */
int qr_bpe_trainer_new(struct qr_bpe_trainer **out, const struct qr_bpe_train_options *o, struct qr_err *err);
void qr_bpe_trainer_free(struct qr_bpe_trainer *b); /* NULL is fine */

/* Counts the pieces of a text, valid UTF-8. Errors: QR_E_TOO_LARGE. */
int qr_bpe_trainer_add(struct qr_bpe_trainer *b, const char *text, size_t len, struct qr_err *err);

/* Learns the merges; to be called once. go_on, where not NULL, is asked every 64 merges and may stop (QR_E_CLOSED). Errors: QR_E_INVALID without any text. */
int qr_bpe_trainer_run(struct qr_bpe_trainer *b, bool (*go_on)(void *user, int32_t n_tokens), void *user, struct qr_err *err);

int64_t qr_bpe_trainer_n_pieces(const struct qr_bpe_trainer *b);  /* distinct ones */
int32_t qr_bpe_trainer_n_tokens(const struct qr_bpe_trainer *b);
int32_t qr_bpe_trainer_n_merges(const struct qr_bpe_trainer *b);

/* Appends tokenizer.json and tokenizer_config.json. chat_template: NULL or a Jinja template. */
void qr_bpe_trainer_write(const struct qr_bpe_trainer *b, struct qr_buf *json);
void qr_bpe_trainer_write_config(const struct qr_bpe_trainer *b, struct qr_buf *json, const char *chat_template);

#endif
