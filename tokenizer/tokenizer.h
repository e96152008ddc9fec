/* tokenizer.h - text to token ids and back, from a Hugging Face tokenizer.json. PCRE2 and utf8proc stay inside this folder.
 * An open tokenizer is immutable: any thread may encode and decode with it. Incremental decoding state is the caller's.
 *
 * Supported: byte-level BPE (the file's own split patterns, ignore_merges, NFC) and SentencePiece-style BPE with byte
 * fallback; added tokens (special, normalized, lstrip, rstrip, single_word); normalizers, pre-tokenizers, post-processors and
 * decoders as real files use them. What the file asks for and this code does not know is refused at open, by name.
 */
#ifndef QR_TOKENIZER_TOKENIZER_H
#define QR_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/files/source.h"

struct qr_tokenizer; /* opaque */

struct qr_ids { /* empty when zeroed */
    int32_t *id; /* owned; qr_ids_release */
    int32_t n, cap;
};
void qr_ids_release(struct qr_ids *v);
void qr_ids_push(struct qr_ids *v, int32_t id);

/* Of a directory: reads tokenizer.json (and tokenizer_config.json when there, for bos/eos names and add_bos_token). Of a GGUF file, or a directory with nothing
 * but one: what it carries (gguf_tokens.h). */
int qr_tokenizer_open(struct qr_tokenizer **out, const char *model, struct qr_err *err);
int qr_tokenizer_open_from(struct qr_tokenizer **out, const struct qr_source *source, struct qr_err *err);

/* The same from memory, for tests and fuzzing; config may be NULL. */
int qr_tokenizer_parse(struct qr_tokenizer **out, const char *json, size_t len, const char *config, size_t config_len,
                       struct qr_err *err);
void qr_tokenizer_close(struct qr_tokenizer *t); /* NULL is fine */

int32_t qr_tokenizer_vocab_size(const struct qr_tokenizer *t); /* largest id + 1 */
int32_t qr_tokenizer_bos(const struct qr_tokenizer *t);        /* -1 when there is none */
int32_t qr_tokenizer_eos(const struct qr_tokenizer *t);        /* -1 when there is none */
bool qr_tokenizer_is_special(const struct qr_tokenizer *t, int32_t id);

/* The id whose content is exactly this token (added or in the vocabulary), or -1. */
int32_t qr_tokenizer_token_id(const struct qr_tokenizer *t, const char *token, size_t len);

/* The bytes one token stands for on its own (byte-level characters mapped back, "\xE2\x96\x81" as a space, <0xNN> as its byte;
 * an added token's content, normalized where it is looked for so). They may be no complete UTF-8. The pointer lives as long as the tokenizer. *len 0 for an
 * id outside the vocabulary. */
const char *qr_tokenizer_token_bytes(const struct qr_tokenizer *t, int32_t id, size_t *len);

enum {
    QR_ENCODE_ADD_SPECIAL = 1,   /* run the post-processor: BOS and the like */
    QR_ENCODE_PARSE_SPECIAL = 2, /* special added tokens written in the text become their ids; without it they are plain text.
                                    Added tokens that are not special are always recognised. */
};

/* Appends the ids of text[0..len) to out. Invalid UTF-8 is read as U+FFFD. O(n log n) whatever the text.
 * Errors: QR_E_TOO_LARGE when more than INT32_MAX ids would result. */
int qr_tokenizer_encode(const struct qr_tokenizer *t, struct qr_ids *out, const char *text, size_t len, unsigned flags,
                        struct qr_err *err);

/* The same of two texts as one input: encoded apart, with what the post-processor's template for pairs puts around and between them (ADD_SPECIAL); where it has
 * none, side by side. Errors: QR_E_UNSUPPORTED too, for a template of another order. */
int qr_tokenizer_encode_pair(const struct qr_tokenizer *t, struct qr_ids *out, const char *first, size_t n_first, const char *second, size_t n_second,
                             unsigned flags, struct qr_err *err);

/* A piece of a rendered prompt: trusted text (the template's own) may contain special tokens, other text may not. */
struct qr_segment {
    size_t start, len; /* within the rendered text */
    bool trusted;
};

/* Encodes text as a whole so that ids equal those of qr_tokenizer_encode(PARSE_SPECIAL | flags) whenever no special token's
 * content occurs inside or across an untrusted segment; there it stays plain text. Segments cover the text in order. */
int qr_tokenizer_encode_segments(const struct qr_tokenizer *t, struct qr_ids *out, const char *text, size_t len,
                                 const struct qr_segment *segment, int32_t n_segments, unsigned flags, struct qr_err *err);

/* Appends the text of ids[0..n) as the reference decoder gives it (broken UTF-8 shown as U+FFFD). Ids outside the vocabulary
 * decode to nothing. */
void qr_tokenizer_decode(const struct qr_tokenizer *t, struct qr_buf *out, const int32_t *ids, int32_t n, bool skip_special);

/* Incremental decoding: the pieces of `context` and of the ids behind it, plus the flush, are together exactly what
 * qr_tokenizer_decode gives for context + ids; those of the context are not written. So a continuation keeps its leading
 * space, and a character that the context began is completed. A piece is never taken back and always whole characters.
 * To keep that promise a run of byte-fallback tokens (<0xNN>) is held until it ends, because one invalid byte turns the whole
 * run into U+FFFD in the reference; only a valid run longer than QR_DETOK_TAIL bytes is released early (16 and more rare
 * characters in a row), and is then the one case in which later bytes cannot change what came before.
 * Fixed size, no allocation.
 */
#define QR_DETOK_TAIL 64
struct qr_detok {
    const struct qr_tokenizer *t; /* borrowed */
    bool skip_special;
    bool started;      /* a token was seen */
    bool broken;       /* inside a byte run that is invalid already: each byte is U+FFFD at once */
    int32_t n_strip;   /* characters that may still be stripped from the beginning of the text */
    int32_t n_tail;
    uint8_t tail[QR_DETOK_TAIL]; /* bytes held back: the beginning of a character, or a byte run */
};

/* context: the ids before the text starts (the prompt), all of them; n_context may be 0: then the text starts a document.
 * Costs a few nanoseconds for each special or partial token at the ends of the context, not for the rest. */
void qr_detok_init(struct qr_detok *d, const struct qr_tokenizer *t, const int32_t *context, int32_t n_context, bool skip_special);

/* Upper bound of the bytes one push or the flush can write, for this vocabulary. */
size_t qr_detok_piece_max(const struct qr_tokenizer *t);

/* Writes the text that `id` completes to out (room for qr_detok_piece_max); returns its length, 0 while a character is held.
 * An id outside the vocabulary adds nothing. */
size_t qr_detok_push(struct qr_detok *d, char *out, int32_t id);

/* Writes what is still held back (the beginning of a character as U+FFFD); returns its length. Afterwards nothing is held. */
size_t qr_detok_flush(struct qr_detok *d, char *out);

#endif
