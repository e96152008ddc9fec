/* tok_decoder.c - the section "decoder" into one of the three kinds of decode.h. Steps are recognized by their types
 * and settings; a chain that fits no kind is refused by name. Runs once, when a tokenizer is opened. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/tok.h"

static const char section[] = "decoder";

/* Where in the chain the reader is; parts only go forward. */
enum place { IN_TOKENS, IN_BYTES, FUSED, STRIPPED };

struct chain {
    struct qr_decoder *d;
    enum place place;
    struct qr_err *err;
};

static int out_of_order(const struct chain *c, const char *type)
{
    return qr_tok_unsupported(c->err, section, "%s at this place of the sequence", type);
}

static struct qr_decoder_op *add_op(struct chain *c, enum qr_decoder_op_kind kind)
{
    if (c->d->n_ops == QR_DECODER_OPS_MAX || c->d->drop_first) {
        qr_tok_unsupported(c->err, section, "a chain of this many steps");
        return NULL;
    }
    struct qr_decoder_op *op = &c->d->op[c->d->n_ops++];
    *op = (struct qr_decoder_op){.kind = kind};
    return op;
}

static char *copy(const char *s, size_t n)
{
    char *p = qr_alloc(n, 1);
    if (n > 0)
        memcpy(p, s, n);
    return p;
}

static int read_replace(struct chain *c, const struct qr_json *v)
{
    static const char *const keys[] = {"pattern", "content"};
    const char *from, *to;
    size_t n_from, n_to;
    bool literal;
    if (c->place != IN_TOKENS)
        return out_of_order(c, "Replace");
    int rc = qr_tok_check_keys(v, section, keys, QR_COUNT(keys), c->err);
    if (rc == 0)
        rc = qr_tok_pattern_text(v, section, "pattern", &from, &n_from, &literal, c->err);
    if (rc == 0)
        rc = qr_tok_string(v, section, "content", &to, &n_to, c->err);
    if (rc != 0)
        return rc;
    if (!literal)
        return qr_tok_unsupported(c->err, section, "Replace with a regular expression");
    if (n_from == 0 || n_from > QR_TOKEN_BYTES_MAX || !to || n_to > 64)
        return qr_err_set(c->err, QR_E_DAMAGED, "decoder: Replace needs a pattern and a content of at most 64 bytes");
    struct qr_decoder_op *op = add_op(c, QR_DECODER_REPLACE);
    if (!op)
        return c->err->code;
    op->from = copy(from, n_from);
    op->n_from = n_from;
    op->to = copy(to, n_to);
    op->n_to = n_to;
    return 0;
}

static int read_strip(struct chain *c, const struct qr_json *v)
{
    static const char *const keys[] = {"content", "start", "stop"};
    int64_t left, right;
    char mark[5];
    int rc = qr_tok_check_keys(v, section, keys, QR_COUNT(keys), c->err);
    if (rc == 0)
        rc = qr_tok_char(v, section, "content", mark, c->err);
    if (rc == 0)
        rc = qr_tok_int(v, section, "start", 0, QR_TOKEN_BYTES_MAX, &left, c->err);
    if (rc == 0)
        rc = qr_tok_int(v, section, "stop", 0, QR_TOKEN_BYTES_MAX, &right, c->err);
    if (rc != 0)
        return rc;
    if (c->place == IN_BYTES || c->place == STRIPPED)
        return out_of_order(c, "Strip");
    if (c->place == FUSED) {
        if (right > 0)
            return qr_tok_unsupported(c->err, section, "Strip at the end of the text");
        memcpy(c->d->strip, mark, sizeof mark);
        c->d->strip_max = (int32_t)left;
        c->place = STRIPPED;
        return 0;
    }
    struct qr_decoder_op *op = add_op(c, QR_DECODER_STRIP);
    if (!op)
        return c->err->code;
    op->from = copy(mark, strlen(mark));
    op->n_from = strlen(mark);
    op->left = left;
    op->right = right;
    return 0;
}

static int read_byte_fallback(struct chain *c, const struct qr_json *v)
{
    if (c->place != IN_TOKENS || c->d->drop_first)
        return out_of_order(c, "ByteFallback");
    c->place = IN_BYTES;
    c->d->byte_fallback = true;
    return qr_tok_check_keys(v, section, NULL, 0, c->err);
}

static int read_fuse(struct chain *c, const struct qr_json *v)
{
    if (c->place == STRIPPED)
        return out_of_order(c, "Fuse");
    c->place = FUSED;
    return qr_tok_check_keys(v, section, NULL, 0, c->err);
}

/* Marks become spaces; those of the first token vanish unless nothing was put in front of the text. */
static int read_metaspace(struct chain *c, const struct qr_json *v)
{
    static const char *const keys[] = {"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"};
    const char *scheme;
    size_t n;
    bool prefix;
    int rc = qr_tok_check_keys(v, section, keys, QR_COUNT(keys), c->err);
    if (rc == 0)
        rc = qr_tok_bool(v, section, "add_prefix_space", true, &prefix, c->err);
    if (rc == 0)
        rc = qr_tok_string(v, section, "prepend_scheme", &scheme, &n, c->err);
    if (rc == 0)
        rc = qr_tok_char(v, section, "replacement", c->d->mark, c->err);
    if (rc != 0)
        return rc;
    if (c->place != IN_TOKENS || c->d->n_ops > 0)
        return out_of_order(c, "Metaspace");
    struct qr_decoder_op *op = add_op(c, QR_DECODER_REPLACE);
    if (!op)
        return c->err->code;
    op->from = copy(c->d->mark, strlen(c->d->mark));
    op->n_from = strlen(c->d->mark);
    op->to = copy(" ", 1);
    op->n_to = 1;
    c->d->drop_first = prefix && !(scheme && strcmp(scheme, "never") == 0);
    return 0;
}

static int read_byte_level(struct chain *c, const struct qr_json *v)
{
    static const char *const keys[] = {"add_prefix_space", "trim_offsets", "use_regex"};
    c->d->kind = QR_DECODER_BYTES;
    return qr_tok_check_keys(v, section, keys, QR_COUNT(keys), c->err);
}

static int read_step(struct chain *c, const struct qr_json *v)
{
    static const struct {
        const char *type;
        int (*read)(struct chain *c, const struct qr_json *v);
    } step[] = {
        {"Replace", read_replace}, {"Strip", read_strip},         {"ByteFallback", read_byte_fallback},
        {"Fuse", read_fuse},       {"Metaspace", read_metaspace},
    };
    const char *type;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_set(c->err, QR_E_DAMAGED, "decoder: expected an object, found %s", qr_json_type_name(qr_json_type(v)));
    int rc = qr_tok_type(v, section, &type, c->err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < QR_COUNT(step); i++)
        if (strcmp(type, step[i].type) == 0)
            return step[i].read(c, v);
    return qr_tok_unsupported(c->err, section, "type \"%.64s\" here", type);
}

static int read_decoder(struct chain *c, const struct qr_json *v)
{
    static const char *const keys[] = {"decoders"};
    const char *type;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_set(c->err, QR_E_DAMAGED, "decoder: expected an object, found %s", qr_json_type_name(qr_json_type(v)));
    int rc = qr_tok_type(v, section, &type, c->err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(c, v);
    c->d->kind = QR_DECODER_CHAIN;
    if (strcmp(type, "Sequence") != 0)
        return read_step(c, v);
    rc = qr_tok_check_keys(v, section, keys, QR_COUNT(keys), c->err);
    const struct qr_json *list = qr_json_find(v, "decoders");
    if (rc == 0 && (!list || qr_json_type(list) != QR_JSON_T_ARRAY))
        rc = qr_err_set(c->err, QR_E_DAMAGED, "decoder.decoders: expected an array");
    if (rc == 0 && qr_json_count(list) == 1) {
        rc = qr_tok_type(qr_json_first(list), section, &type, c->err);
        if (rc == 0 && strcmp(type, "ByteLevel") == 0)
            return read_byte_level(c, qr_json_first(list));
    }
    for (const struct qr_json *m = rc == 0 ? qr_json_first(list) : NULL; m && rc == 0; m = qr_json_after(m))
        rc = read_step(c, m);
    return rc;
}

int qr_tok_read_decoder(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err)
{
    QR_ASSERT(t != NULL && text != NULL);
    struct qr_json *doc;
    struct chain c = {.d = &t->decoder, .err = err};
    t->decoder.kind = QR_DECODER_JOIN;
    int rc = qr_tok_document(&doc, text, section, err);
    if (rc == 0 && doc)
        rc = read_decoder(&c, doc);
    qr_json_free(doc);
    return rc;
}
