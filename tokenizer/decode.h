/* decode.h - what tokens decode to: a tokenizer file's decoder, reduced to three kinds, and each token's text worked out once.
 *
 *   bytes   ByteLevel: a token is bytes, the text is all of them together
 *   chain   replacements inside each token, then byte fallback, then fusing, then stripping the beginning of the text
 *   join    no decoder: tokens joined by spaces
 */
#ifndef QR_TOKENIZER_DECODE_H
#define QR_TOKENIZER_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "tokenizer/added.h"
#include "tokenizer/bytechar.h"
#include "tokenizer/vocab.h"

enum qr_decoder_kind { QR_DECODER_JOIN, QR_DECODER_BYTES, QR_DECODER_CHAIN };

/* Where in the section the reader is (tok_decoder.c); ALONE: nothing may follow. */
enum qr_decoder_place {
    QR_DECODER_IN_TOKENS, QR_DECODER_IN_BYTES, QR_DECODER_FUSED, QR_DECODER_STRIPPED, QR_DECODER_ALONE,
};

enum qr_decoder_op_kind { QR_DECODER_REPLACE, QR_DECODER_STRIP };

/* Works on each token's text alone. */
struct qr_decoder_op {
    enum qr_decoder_op_kind kind;
    char *from, *to; /* owned; STRIP: `from` is the character */
    size_t n_from, n_to;
    int64_t left, right; /* STRIP: how many characters at most */
};

struct qr_token_text {
    uint32_t off, len; /* in `blob` */
    bool is_byte;      /* a byte of a byte-fallback run: blob has that one byte */
    bool is_whole;     /* valid UTF-8 on its own */
};

#define QR_DECODER_OPS_MAX 8
struct qr_decoder {
    enum qr_decoder_kind kind;
    enum qr_decoder_place place;
    struct qr_decoder_op op[QR_DECODER_OPS_MAX];
    int32_t n_ops;
    bool byte_fallback;
    char mark[5];      /* Metaspace: the first token loses its marks when drop_first; "" otherwise */
    bool drop_first;
    char strip[5];     /* behind fusing: at most strip_max of this character go from the beginning of the text */
    int32_t strip_max;
    struct qr_buf blob;
    struct qr_token_text *text; /* owned [vocab n_ids] */
    uint32_t len_max;           /* of any token's text */
};

#define QR_DECODER_BLOB_MAX ((size_t)1 << 30)

#define QR_DECODER_TEXT_MAX ((size_t)16 * QR_TOKEN_BYTES_MAX) /* of a token, behind each step: writers of texts have room for the longest */

/* Works out every token's text. `normalized`: added tokens that are found behind the normalizers decode to what is found there ("\xE2\x96\x81<s>", where the
 * normalizers put a mark in front), so that no blank is lost. Errors: QR_E_TOO_LARGE when the texts pass QR_DECODER_BLOB_MAX, or one of them
 * QR_DECODER_TEXT_MAX. */
int qr_decoder_build(struct qr_decoder *d, const struct qr_vocab *v, const struct qr_added_set *normalized, struct qr_err *err);
struct qr_tokenizer;
/* Writes the text of the first token (Metaspace: without its marks); NULL: nothing. Returns its bytes. */
size_t qr_decoder_first(const struct qr_tokenizer *t, int32_t id, char *out);
void qr_decoder_release(struct qr_decoder *d);

/* True when the reference's decoders see this id: it exists, and it is not special while those are skipped. */
static inline bool qr_decoder_sees(const struct qr_vocab *v, int32_t id, bool skip_special)
{
    return qr_vocab_has(v, id) && !(skip_special && (v->token[id].flags & QR_TOKEN_SPECIAL));
}

#endif
