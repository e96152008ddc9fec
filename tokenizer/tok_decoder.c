/* tok_decoder.c - the section "decoder" into one of the three kinds of decode.h. Steps are recognized by their types
 * and settings; a chain that fits no kind is refused by name. Its parts only go forward: on tokens, bytes, the fused
 * text, its stripped beginning. Runs once, when a tokenizer is opened. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/tok.h"

static const char section[] = "decoder";

static int out_of_order(struct qr_err *err, const char *type)
{
    return qr_tok_unsupported(err, section, "%s at this place of the sequence", type);
}

static char *copy(struct qr_tok_string s)
{
    char *p = qr_alloc(s.n, 1);
    if (s.n > 0)
        memcpy(p, s.s, s.n);
    return p;
}

/* A step on each token's text: `from` becomes `to`, or goes at the ends. */
static int add_op(struct qr_decoder *d, enum qr_decoder_op_kind kind, struct qr_tok_string from,
                  struct qr_tok_string to,
                  struct qr_err *err)
{
    if (d->n_ops == QR_DECODER_OPS_MAX || d->drop_first)
        return qr_tok_unsupported(err, section, "a chain of this many steps");
    d->op[d->n_ops++] =
        (struct qr_decoder_op){.kind = kind, .from = copy(from), .n_from = from.n, .to = copy(to), .n_to = to.n};
    return 0;
}

static int read_replace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    struct qr_tok_string from, to = {0};
    bool literal;
    const struct qr_tok_member members[] = {{"pattern", QR_TOK_IGNORED, NULL}, {"content", QR_TOK_STRING, &to}};
    if (t->decoder.place != QR_DECODER_IN_TOKENS)
        return out_of_order(err, "Replace");
    int rc = qr_tok_members(v, section, members, QR_COUNT(members), err);
    if (rc == 0)
        rc = qr_tok_pattern_text(v, section, &from, &literal, err);
    if (rc != 0)
        return rc;
    if (!literal)
        return qr_tok_unsupported(err, section, "Replace with a regular expression");
    if (from.n == 0 || from.n > QR_TOKEN_BYTES_MAX || !to.s || to.n > 64)
        return qr_err_set(err, QR_E_DAMAGED, "decoder: Replace needs a pattern and a content of at most 64 bytes");
    return add_op(&t->decoder, QR_DECODER_REPLACE, from, to, err);
}

static int read_strip(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    struct qr_decoder *d = &t->decoder;
    int64_t left, right;
    char mark[5];
    const struct qr_tok_member members[] = {{"content", QR_TOK_CHAR, mark},
                                            {"start", QR_TOK_COUNT, &left},
                                            {"stop", QR_TOK_COUNT, &right}};
    int rc = qr_tok_members(v, section, members, QR_COUNT(members), err);
    if (rc != 0)
        return rc;
    if (d->place == QR_DECODER_IN_BYTES || d->place >= QR_DECODER_STRIPPED)
        return out_of_order(err, "Strip");
    if (d->place == QR_DECODER_IN_TOKENS) {
        rc = add_op(d, QR_DECODER_STRIP, (struct qr_tok_string){mark, strlen(mark)}, (struct qr_tok_string){0}, err);
        if (rc != 0)
            return rc;
        d->op[d->n_ops - 1].left = left;
        d->op[d->n_ops - 1].right = right;
        return 0;
    }
    if (right > 0)
        return qr_tok_unsupported(err, section, "Strip at the end of the text");
    memcpy(d->strip, mark, sizeof mark);
    d->strip_max = (int32_t)left;
    d->place = QR_DECODER_STRIPPED;
    return 0;
}

static int read_byte_fallback(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    if (t->decoder.place != QR_DECODER_IN_TOKENS || t->decoder.drop_first)
        return out_of_order(err, "ByteFallback");
    t->decoder.place = QR_DECODER_IN_BYTES;
    t->decoder.byte_fallback = true;
    return qr_tok_members(v, section, NULL, 0, err);
}

static int read_fuse(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    if (t->decoder.place >= QR_DECODER_STRIPPED)
        return out_of_order(err, "Fuse");
    t->decoder.place = QR_DECODER_FUSED;
    return qr_tok_members(v, section, NULL, 0, err);
}

/* Marks become spaces; those of the first token vanish unless nothing was put in front of the text. */
static int read_metaspace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    struct qr_decoder *d = &t->decoder;
    struct qr_tok_string scheme = {0};
    bool prefix = true;
    const struct qr_tok_member members[] = {{"add_prefix_space", QR_TOK_BOOL, &prefix},
                                            {"prepend_scheme", QR_TOK_STRING, &scheme},
                                            {"replacement", QR_TOK_CHAR, d->mark},
                                            {"split", QR_TOK_IGNORED, NULL},
                                            {"str_rep", QR_TOK_IGNORED, NULL}};
    int rc = qr_tok_members(v, section, members, QR_COUNT(members), err);
    if (rc != 0)
        return rc;
    if (d->place != QR_DECODER_IN_TOKENS || d->n_ops > 0)
        return out_of_order(err, "Metaspace");
    rc = add_op(d, QR_DECODER_REPLACE, (struct qr_tok_string){d->mark, strlen(d->mark)},
                (struct qr_tok_string){" ", 1}, err);
    d->drop_first = prefix && !(scheme.s && strcmp(scheme.s, "never") == 0);
    return rc;
}

static int read_byte_level(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    if (t->decoder.place != QR_DECODER_IN_TOKENS || t->decoder.n_ops > 0)
        return out_of_order(err, "ByteLevel");
    t->decoder.kind = QR_DECODER_BYTES;
    t->decoder.place = QR_DECODER_ALONE;
    return qr_tok_byte_level(v, section, err);
}

int qr_tok_read_decoder(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err)
{
    static const struct qr_tok_part parts[] = {
        {"Replace", read_replace}, {"Strip", read_strip},         {"ByteFallback", read_byte_fallback},
        {"Fuse", read_fuse},       {"Metaspace", read_metaspace}, {"ByteLevel", read_byte_level},
    };
    t->decoder.kind = text->n > 0 ? QR_DECODER_CHAIN : QR_DECODER_JOIN;
    return qr_tok_read_section(t, text, &(struct qr_tok_section){section, "decoders", parts, QR_COUNT(parts)}, err);
}
