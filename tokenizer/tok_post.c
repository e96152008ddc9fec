/* tok_post.c - the sections "added_tokens" and "post_processor", and tokenizer_config.json. Tokens that a template puts
 * before and behind a text become two lists of ids. tokenizer_config.json may only say what tokenizer.json leaves open.
 * Runs once, when a tokenizer is opened; errors name section and field. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/tok.h"

/* ---- added tokens ---- */

static const char added[] = "added_tokens";

struct added_entry {
    struct qr_added token; /* text borrowed from the document */
    bool normalized;
};

static int read_entry(struct added_entry *e, const struct qr_json *v, struct qr_err *err)
{
    struct qr_tok_string content = {0};
    int64_t id;
    *e = (struct added_entry){0};
    const struct qr_tok_member members[] = {{"id", QR_TOK_ID, &id},
                                            {"content", QR_TOK_STRING, &content},
                                            {"special", QR_TOK_BOOL, &e->token.special},
                                            {"single_word", QR_TOK_BOOL, &e->token.single_word},
                                            {"lstrip", QR_TOK_BOOL, &e->token.lstrip},
                                            {"rstrip", QR_TOK_BOOL, &e->token.rstrip},
                                            {"normalized", QR_TOK_BOOL, &e->normalized}};
    int rc = qr_tok_members(v, added, members, QR_COUNT(members), err);
    if (rc != 0)
        return rc;
    if (!content.s || content.n > QR_TOKEN_BYTES_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "added_tokens: the content of id %d must be a string of at most %d bytes",
                          (int)id, QR_TOKEN_BYTES_MAX);
    if (qr_json_is_null(qr_json_find(v, "normalized")))
        e->normalized = !e->token.special;
    e->token.text = content.s;
    e->token.len = content.n;
    e->token.id = (int32_t)id;
    return 0;
}

/* Gives the token its place in the vocabulary. A content that is there already keeps that id, as the reference does. */
static int place_entry(struct qr_tokenizer *t, struct added_entry *e, struct qr_err *err)
{
    int32_t known = qr_vocab_find(&t->vocab, e->token.text, e->token.len);
    if (known >= 0) {
        e->token.id = known;
    } else if (t->vocab.n_tokens >= QR_VOCAB_ENTRIES_MAX) {
        return qr_err_set(err, QR_E_DAMAGED, "vocabulary and added_tokens have more than %d entries", QR_VOCAB_ENTRIES_MAX);
    } else if (qr_vocab_add(&t->vocab, e->token.text, e->token.len, e->token.id) != QR_VOCAB_ADDED) {
        size_t n;
        const char *other = qr_vocab_content(&t->vocab, e->token.id, &n);
        return qr_err_set(err, QR_E_DAMAGED, "added_tokens: id %d of \"%.*s\" belongs to \"%.*s\"", (int)e->token.id,
                          e->token.len > 64 ? 64 : (int)e->token.len, e->token.text, n > 64 ? 64 : (int)n, other);
    }
    int flags = QR_TOKEN_ADDED | (e->token.special ? QR_TOKEN_SPECIAL : 0);
    t->vocab.token[e->token.id].flags |= (uint16_t)flags;
    return 0;
}

struct added_work {
    struct qr_norm_work norm;
    struct qr_matcher *matcher;
};

/* Tokens that are looked for behind the normalizers are normalized themselves. */
static int push_entry(struct qr_tokenizer *t, struct added_work *w, const struct added_entry *e, struct qr_err *err)
{
    if (!e->normalized) {
        qr_added_push(&t->raw, &e->token);
        return 0;
    }
    struct qr_text in = {.data = e->token.text, .len = e->token.len}, out;
    int rc = qr_normalize(&t->normalizer, &w->norm, w->matcher, in, &out, err);
    if (rc != 0)
        return rc;
    struct qr_added token = e->token;
    token.text = out.data;
    token.len = out.len;
    if (out.len > 0)
        qr_added_push(&t->normalized, &token);
    return 0;
}

static int read_added(struct qr_tokenizer *t, struct added_work *w, const struct qr_json *doc, struct qr_err *err)
{
    if (qr_json_type(doc) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_DAMAGED, "added_tokens: expected an array");
    for (const struct qr_json *v = qr_json_first(doc); v; v = qr_json_after(v)) {
        struct added_entry e;
        int rc = read_entry(&e, v, err);
        if (rc == 0 && e.token.len == 0)
            continue;
        if (rc == 0)
            rc = place_entry(t, &e, err);
        if (rc == 0)
            rc = push_entry(t, w, &e, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int qr_tok_read_added(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err)
{
    QR_ASSERT(t != NULL && text != NULL);
    struct qr_json *doc;
    struct added_work w = {.matcher = qr_matcher_new()};
    int rc = qr_tok_document(&doc, text, added, err);
    if (rc == 0 && doc)
        rc = read_added(t, &w, doc, err);
    qr_added_sort(&t->raw);
    qr_added_sort(&t->normalized);
    qr_norm_work_release(&w.norm);
    qr_matcher_free(w.matcher);
    qr_json_free(doc);
    return rc;
}

/* ---- post-processor ---- */

static const char post[] = "post_processor";

/* list: room for QR_POST_IDS_MAX at least. */
static int push_post(int32_t *list, int32_t *n, int32_t id, struct qr_err *err)
{
    if (*n == QR_POST_IDS_MAX)
        return qr_tok_unsupported(err, post, "a template with more than %d tokens", QR_POST_IDS_MAX);
    list[(*n)++] = id;
    return 0;
}

/* Appends the ids of a template's special token. */
static int push_special(struct qr_tokenizer *t, const struct qr_json *specials, const char *name, int32_t *list, int32_t *n,
                        struct qr_err *err)
{
    const struct qr_json *entry = qr_json_find(specials, name), *ids = entry ? qr_json_find(entry, "ids") : NULL;
    if (!ids || qr_json_type(ids) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_DAMAGED, "post_processor.special_tokens: no ids for \"%.64s\"", name);
    for (const struct qr_json *v = qr_json_first(ids); v; v = qr_json_after(v)) {
        int64_t id;
        if (!qr_json_i64(v, &id) || id < 0 || id > QR_TOKEN_ID_MAX || !qr_vocab_has(&t->vocab, (int32_t)id))
            return qr_err_set(err, QR_E_DAMAGED, "post_processor.special_tokens: an id of \"%.64s\" is not in the vocabulary",
                              name);
        int rc = push_post(list, n, (int32_t)id, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* One piece of a template: {"SpecialToken": {"id": name}} or {"Sequence": {"id": "A"}}. */
static int template_piece(struct qr_tokenizer *t, struct qr_post *p, const struct qr_json *v, const struct qr_json *specials,
                          bool *seen_text, struct qr_err *err)
{
    const struct qr_json *special = qr_json_find(v, "SpecialToken"), *sequence = qr_json_find(v, "Sequence");
    if (!special == !sequence)
        return qr_tok_unsupported(err, post, "a template piece that is neither SpecialToken nor Sequence");
    const char *name = qr_json_text(qr_json_find(special ? special : sequence, "id"), NULL);
    if (!name)
        return qr_err_set(err, QR_E_DAMAGED, "post_processor: a template piece has no id");
    if (special)
        return push_special(t, specials, name, *seen_text ? p->suffix : p->prefix, *seen_text ? &p->n_suffix : &p->n_prefix,
                            err);
    if (*seen_text || strcmp(name, "A") != 0)
        return qr_tok_unsupported(err, post, "a single template that is not one text \"A\"");
    *seen_text = true;
    return 0;
}

/* The template of two texts. Few need it, so what is not "A", then "B", among special tokens is no error here. */
static void read_pair(struct qr_tokenizer *t, const struct qr_json *v)
{
    static const char *const text[] = {"A", "B"};
    const struct qr_json *list = qr_json_find(v, "pair");
    struct qr_post_pair *p = &t->pair;
    struct qr_err unread;
    int at = 0;
    p->other = p->n[0] + p->n[1] + p->n[2] > 0; /* of an earlier template */
    for (const struct qr_json *m = qr_json_is_null(list) ? NULL : qr_json_first(list); m && !p->other; m = qr_json_after(m)) {
        const char *special = qr_json_text(qr_json_find(qr_json_find(m, "SpecialToken"), "id"), NULL);
        if (special)
            p->other = push_special(t, qr_json_find(v, "special_tokens"), special, p->id[at], &p->n[at], &unread) != 0;
        else if (at < 2 && qr_json_says(qr_json_find(qr_json_find(m, "Sequence"), "id"), text[at]))
            at++;
        else
            p->other = true;
    }
    p->other |= at != 2;
}

/* A later template goes around what earlier ones made. */
static int wrap(struct qr_post *outer, const struct qr_post *inner, struct qr_err *err)
{
    int rc = 0;
    int32_t own = outer->n_suffix, moved[QR_POST_IDS_MAX];
    memcpy(moved, outer->suffix, sizeof moved);
    for (int32_t i = 0; i < inner->n_prefix && rc == 0; i++)
        rc = push_post(outer->prefix, &outer->n_prefix, inner->prefix[i], err);
    memcpy(outer->suffix, inner->suffix, sizeof outer->suffix);
    outer->n_suffix = inner->n_suffix;
    for (int32_t i = 0; i < own && rc == 0; i++)
        rc = push_post(outer->suffix, &outer->n_suffix, moved[i], err);
    return rc;
}

static int read_template(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const struct qr_tok_member members[] = {
        {"single", QR_TOK_IGNORED, NULL}, {"pair", QR_TOK_IGNORED, NULL}, {"special_tokens", QR_TOK_IGNORED, NULL}};
    struct qr_post p = {0};
    bool seen_text = false;
    int rc = qr_tok_members(v, post, members, QR_COUNT(members), err);
    if (rc != 0)
        return rc;
    const struct qr_json *single = qr_json_find(v, "single");
    if (!single || qr_json_type(single) != QR_JSON_T_ARRAY)
        return qr_tok_unsupported(err, post, "a template whose \"single\" is no array");
    for (const struct qr_json *m = qr_json_first(single); m; m = qr_json_after(m)) {
        rc = template_piece(t, &p, m, qr_json_find(v, "special_tokens"), &seen_text, err);
        if (rc != 0)
            return rc;
    }
    if (!seen_text)
        return qr_tok_unsupported(err, post, "a single template without its text \"A\"");
    rc = wrap(&p, &t->post, err);
    t->post = p;
    read_pair(t, v);
    return rc;
}

/* It only moves offsets. */
static int read_byte_level(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    return qr_tok_byte_level(v, post, err);
}

int qr_tok_read_post(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err)
{
    static const struct qr_tok_part parts[] = {{"ByteLevel", read_byte_level}, {"TemplateProcessing", read_template}};
    return qr_tok_read_section(t, text, &(struct qr_tok_section){post, "processors", parts, QR_COUNT(parts)}, err);
}

/* ---- tokenizer_config.json ---- */

/* A token is written as a string or as an object with "content"; -1 when there is none or it is not in the vocabulary. */
static int32_t config_token(const struct qr_tokenizer *t, const struct qr_json *doc, const char *key)
{
    const struct qr_json *v = qr_json_find(doc, key);
    size_t n;
    if (v && qr_json_type(v) == QR_JSON_T_OBJECT)
        v = qr_json_find(v, "content");
    const char *s = qr_json_text(v, &n);
    return s ? qr_vocab_find(&t->vocab, s, n) : -1;
}

/* The classes whose reference implementation builds the post-processor from add_bos_token and add_eos_token. */
static bool class_obeys_flags(const struct qr_json *doc)
{
    static const char *const name[] = {"LlamaTokenizer",         "LlamaTokenizerFast", "CodeLlamaTokenizer",
                                       "CodeLlamaTokenizerFast", "GemmaTokenizer",     "GemmaTokenizerFast"};
    bool obeys = false;
    for (int i = 0; i < QR_COUNT(name); i++)
        obeys = obeys || qr_json_says(qr_json_find(doc, "tokenizer_class"), name[i]);
    return obeys;
}

/* Makes `id` the outermost of the list or not, as the flag says. at_end: the outermost is the last. */
static void set_outermost(int32_t *list, int32_t *n, int32_t id, bool wanted, bool at_end)
{
    bool there = *n > 0 && list[at_end ? *n - 1 : 0] == id;
    if (id < 0 || there == wanted || (wanted && *n == QR_POST_IDS_MAX))
        return;
    if (!at_end && wanted)
        memmove(list + 1, list, (size_t)*n * sizeof *list);
    if (!at_end && !wanted)
        memmove(list, list + 1, (size_t)(*n - 1) * sizeof *list);
    if (wanted)
        list[at_end ? *n : 0] = id;
    *n += wanted ? 1 : -1;
}

/* Two texts, each as one alone, as these classes have it. */
static void pair_of_single(struct qr_post_pair *p, const struct qr_post *one)
{
    *p = (struct qr_post_pair){.n = {one->n_prefix, one->n_suffix + one->n_prefix, one->n_suffix}};
    memcpy(p->id[0], one->prefix, sizeof one->prefix);
    memcpy(p->id[1], one->suffix, (size_t)one->n_suffix * sizeof *one->suffix);
    memcpy(p->id[1] + one->n_suffix, one->prefix, (size_t)one->n_prefix * sizeof *one->prefix);
    memcpy(p->id[2], one->suffix, sizeof one->suffix);
}

int qr_tok_read_config(struct qr_tokenizer *t, const char *json, size_t len, struct qr_err *err)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(json != NULL || len == 0);
    struct qr_json *doc;
    struct qr_tok_span text = {.text = json, .n = len};
    int rc = qr_tok_document(&doc, &text, "tokenizer_config.json", err);
    if (rc == 0 && (!doc || qr_json_type(doc) != QR_JSON_T_OBJECT)) /* an empty one is a cut download; without it BOS may be wrong */
        rc = qr_err_set(err, QR_E_DAMAGED, "tokenizer_config.json: expected an object, found %s", doc ? qr_json_type_name(qr_json_type(doc)) : "an empty file");
    if (rc != 0) {
        qr_json_free(doc);
        return rc;
    }
    t->bos = config_token(t, doc, "bos_token");
    t->eos = config_token(t, doc, "eos_token");
    const struct qr_json *bos = qr_json_find(doc, "add_bos_token"), *eos = qr_json_find(doc, "add_eos_token");
    bool obeys = class_obeys_flags(doc);
    if (obeys && bos && qr_json_type(bos) == QR_JSON_T_BOOL)
        set_outermost(t->post.prefix, &t->post.n_prefix, t->bos, qr_json_bool(bos), false);
    if (obeys && eos && qr_json_type(eos) == QR_JSON_T_BOOL)
        set_outermost(t->post.suffix, &t->post.n_suffix, t->eos, qr_json_bool(eos), true);
    if (obeys && (!qr_json_is_null(bos) || !qr_json_is_null(eos)))
        pair_of_single(&t->pair, &t->post);
    qr_json_free(doc);
    return 0;
}
