/* tok.h - the inside of struct qr_tokenizer: what encoding, decoding and opening share. For this folder only. */
#ifndef QR_TOKENIZER_TOK_H
#define QR_TOKENIZER_TOK_H

#include "base/json.h"
#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

#define QR_POST_IDS_MAX 64

/* Ids that the post-processor puts in front of and behind a text. */
struct qr_post {
    int32_t prefix[QR_POST_IDS_MAX], suffix[QR_POST_IDS_MAX];
    int32_t n_prefix, n_suffix;
};

/* And those around two texts: in front of the first, between them, behind the second. */
#define QR_POST_PAIR 3
struct qr_post_pair {
    int32_t id[QR_POST_PAIR][2 * QR_POST_IDS_MAX], n[QR_POST_PAIR];
    bool other; /* the template is none of this kind */
};

struct qr_tokenizer {
    struct qr_vocab vocab;
    struct qr_added_set raw;        /* added tokens found in the text as it is */
    struct qr_added_set normalized; /* and those found behind the normalizers */
    struct qr_normalizer normalizer;
    struct qr_pretok pretok;
    struct qr_bpe bpe;
    struct qr_post post;
    struct qr_post_pair pair;
    struct qr_decoder decoder;
    int32_t bos, eos; /* -1: none */
};

/* A value inside the file's text. n == 0: absent or null. */
struct qr_tok_span {
    const char *text; /* borrowed from the file's text */
    size_t n, offset;
};

/* The file taken apart: the model is read already, the rest is small and read as documents. */
struct qr_tok_file {
    struct qr_tok_span added, normalizer, pre_tokenizer, post_processor, decoder;
    struct qr_merge *merge; /* owned [n_merges] */
    int32_t n_merges, cap_merges;
    struct qr_buf unk;      /* the unk_token's content; empty when there is none */
};
void qr_tok_file_release(struct qr_tok_file *f);

/* Reads the file's text: fills t->vocab and the flags of t->bpe, and *f. */
int qr_tok_read_file(struct qr_tokenizer *t, struct qr_tok_file *f, const char *json, size_t len, struct qr_err *err);

/* Each reads one section into *t. `text` may be absent. */
int qr_tok_read_normalizer(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err);
int qr_tok_read_pretok(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err);
int qr_tok_read_decoder(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err);
int qr_tok_read_added(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err);
int qr_tok_read_post(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err);

/* tokenizer_config.json: the names of bos and eos, and add_bos_token/add_eos_token for the classes that obey them. */
int qr_tok_read_config(struct qr_tokenizer *t, const char *json, size_t len, struct qr_err *err);

/* ---- sections as documents ---- */

/* Parses a section. Errors: QR_E_DAMAGED. *out NULL when the section is absent. */
int qr_tok_document(struct qr_json **out, const struct qr_tok_span *text, const char *section, struct qr_err *err);

/* A section is an object of one of these types, or a Sequence of them under `list`, as deep as it goes. */
struct qr_tok_part {
    const char *type;
    int (*read)(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err);
};
struct qr_tok_section {
    const char *name, *list;
    const struct qr_tok_part *part;
    int32_t n_parts;
};
int qr_tok_read_section(struct qr_tokenizer *t, const struct qr_tok_span *text, const struct qr_tok_section *s,
                        struct qr_err *err);

/* What the members of an object are read into. A boolean or a string that is absent or null leaves *out as it is; a
 * number or a character must be there. */
enum qr_tok_kind {
    QR_TOK_IGNORED, /* known, and read by the caller or not at all */
    QR_TOK_BOOL,    /* bool */
    QR_TOK_STRING,  /* struct qr_tok_string */
    QR_TOK_ID,      /* int64_t: 0 to QR_TOKEN_ID_MAX */
    QR_TOK_COUNT,   /* int64_t: 0 to QR_TOKEN_BYTES_MAX */
    QR_TOK_CHAR,    /* char[5]: exactly one character, terminated */
};
struct qr_tok_string {
    const char *s; /* borrowed from the document; NULL: none */
    size_t n;
};
struct qr_tok_member {
    const char *name;
    enum qr_tok_kind kind;
    void *out;
};

/* Refuses v when it is no object, and members that are not listed ("type" is always known). */
int qr_tok_members(const struct qr_json *v, const char *section, const struct qr_tok_member *m, int32_t n,
                   struct qr_err *err);

/* A ByteLevel whose settings do not count. */
int qr_tok_byte_level(const struct qr_json *v, const char *section, struct qr_err *err);

/* v's "type", or an error. */
int qr_tok_type(const struct qr_json *v, const char *section, const char **type, struct qr_err *err);

/* {"String": s} or {"Regex": s} under "pattern". *literal tells which. */
int qr_tok_pattern_text(const struct qr_json *v, const char *section, struct qr_tok_string *s, bool *literal,
                        struct qr_err *err);
int qr_tok_pattern(struct qr_pattern **out, const struct qr_json *v, const char *section, struct qr_err *err);

/* QR_E_UNSUPPORTED: "<section>: <what> is not supported". */
int qr_tok_unsupported(struct qr_err *err, const char *section, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
