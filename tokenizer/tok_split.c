/* tok_split.c - the sections "normalizer" and "pre_tokenizer" into flat lists of steps and stages. Nested sequences are
 * flattened in order, with a bound on their number. Patterns are compiled here (pattern.h). What a type or setting
 * means is Hugging Face's; unknown ones are refused by name. Runs once, when a tokenizer is opened. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/tok.h"

#define DEPTH_MAX 8 /* of Sequence inside Sequence */

/* Radford et al. 2019: contractions, letters, digits, the rest, and white space that leaves one space to the next word. */
#define GPT2_SPLIT "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define ASCII_PUNCTUATION "!-/:-@\\[-`{-~"

typedef int part_fn(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err);

struct part {
    const char *type;
    part_fn *read;
};

/* Finds v's type among the parts and reads it; Sequence goes through its members under `list`. */
static int read_part(struct qr_tokenizer *t, const struct qr_json *v, const char *section, const char *list,
                     const struct part *part, int32_t n_parts, int32_t depth, struct qr_err *err)
{
    const char *type;
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_err_set(err, QR_E_DAMAGED, "%s: expected an object, found %s", section, qr_json_type_name(qr_json_type(v)));
    int rc = qr_tok_type(v, section, &type, err);
    if (rc != 0)
        return rc;
    for (int32_t i = 0; i < n_parts; i++)
        if (strcmp(type, part[i].type) == 0)
            return part[i].read(t, v, err);
    if (strcmp(type, "Sequence") != 0)
        return qr_tok_unsupported(err, section, "type \"%.64s\"", type);
    if (depth >= DEPTH_MAX)
        return qr_tok_unsupported(err, section, "a Sequence nested deeper than %d", DEPTH_MAX);
    rc = qr_tok_check_keys(v, section, &list, 1, err);
    if (rc != 0)
        return rc;
    const struct qr_json *members = qr_json_find(v, list);
    if (!members || qr_json_type(members) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_DAMAGED, "%s.%s: expected an array", section, list);
    for (const struct qr_json *m = qr_json_first(members); m; m = qr_json_after(m)) {
        rc = read_part(t, m, section, list, part, n_parts, depth + 1, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- normalizers ---- */

static const char normalizer[] = "normalizer";

static struct qr_norm_step *add_step(struct qr_tokenizer *t, enum qr_norm_kind kind, struct qr_err *err)
{
    if (t->normalizer.n == QR_NORM_STEPS_MAX) {
        qr_tok_unsupported(err, normalizer, "a chain of more than %d steps", QR_NORM_STEPS_MAX);
        return NULL;
    }
    struct qr_norm_step *s = &t->normalizer.step[t->normalizer.n++];
    *s = (struct qr_norm_step){.kind = kind};
    return s;
}

static int read_form(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const name[] = {"NFC", "NFD", "NFKC", "NFKD"};
    static const enum qr_norm_kind kind[] = {QR_NORM_NFC, QR_NORM_NFD, QR_NORM_NFKC, QR_NORM_NFKD};
    const char *type;
    int rc = qr_tok_type(v, normalizer, &type, err);
    if (rc == 0)
        rc = qr_tok_check_keys(v, normalizer, NULL, 0, err);
    for (int i = 0; rc == 0 && i < QR_COUNT(name); i++)
        if (strcmp(type, name[i]) == 0 && !add_step(t, kind[i], err))
            rc = err->code;
    return rc;
}

static void copy_text(struct qr_norm_step *step, const char *s, size_t n)
{
    step->text = qr_alloc(n, 1);
    if (n > 0)
        memcpy(step->text, s, n);
    step->n_text = n;
}

static int read_prepend(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"prepend"};
    const char *s;
    size_t n;
    int rc = qr_tok_check_keys(v, normalizer, keys, QR_COUNT(keys), err);
    if (rc == 0)
        rc = qr_tok_string(v, normalizer, "prepend", &s, &n, err);
    if (rc != 0)
        return rc;
    if (!s || n > QR_TOKEN_BYTES_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "normalizer.prepend: expected a string of at most %d bytes", QR_TOKEN_BYTES_MAX);
    struct qr_norm_step *step = add_step(t, QR_NORM_PREPEND, err);
    if (!step)
        return err->code;
    copy_text(step, s, n);
    return 0;
}

static int read_replace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"pattern", "content"};
    const char *s;
    size_t n;
    int rc = qr_tok_check_keys(v, normalizer, keys, QR_COUNT(keys), err);
    if (rc == 0)
        rc = qr_tok_string(v, normalizer, "content", &s, &n, err);
    if (rc != 0)
        return rc;
    if (!s || n > 64)
        return qr_err_set(err, QR_E_DAMAGED, "normalizer.content: expected a string of at most 64 bytes");
    struct qr_norm_step *step = add_step(t, QR_NORM_REPLACE, err);
    if (!step)
        return err->code;
    copy_text(step, s, n);
    return qr_tok_pattern(&step->pattern, v, normalizer, "pattern", err);
}

static int read_strip(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"strip_left", "strip_right"};
    bool left, right;
    int rc = qr_tok_check_keys(v, normalizer, keys, QR_COUNT(keys), err);
    if (rc == 0)
        rc = qr_tok_bool(v, normalizer, "strip_left", true, &left, err);
    if (rc == 0)
        rc = qr_tok_bool(v, normalizer, "strip_right", true, &right, err);
    if (rc != 0)
        return rc;
    struct qr_norm_step *step = add_step(t, QR_NORM_STRIP, err);
    if (!step)
        return err->code;
    step->left = left;
    step->right = right;
    return 0;
}

int qr_tok_read_normalizer(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err)
{
    static const struct part parts[] = {
        {"NFC", read_form},         {"NFD", read_form},         {"NFKC", read_form},   {"NFKD", read_form},
        {"Prepend", read_prepend}, {"Replace", read_replace}, {"Strip", read_strip},
    };
    QR_ASSERT(t != NULL && text != NULL);
    struct qr_json *doc;
    int rc = qr_tok_document(&doc, text, normalizer, err);
    if (rc == 0 && doc)
        rc = read_part(t, doc, normalizer, "normalizers", parts, QR_COUNT(parts), 0, err);
    qr_json_free(doc);
    return rc;
}

/* ---- pre-tokenizers ---- */

static const char pretok[] = "pre_tokenizer";

static struct qr_pretok_stage *add_stage(struct qr_tokenizer *t, enum qr_pretok_kind kind, struct qr_err *err);

/* A ByteLevel that nothing follows is left to the merges, which read bytes as they are. A step that follows it sees its alphabet. */
static int end_byte_level(struct qr_tokenizer *t, struct qr_err *err)
{
    const bool was = t->bpe.byte_level;
    t->bpe.byte_level = false;
    if (was)
        qr_bytechar_init(&t->pretok.bytechar);
    return was && !add_stage(t, QR_PRETOK_BYTES, err) ? (int)err->code : 0;
}

static struct qr_pretok_stage *add_stage(struct qr_tokenizer *t, enum qr_pretok_kind kind, struct qr_err *err)
{
    if (end_byte_level(t, err) != 0)
        return NULL;
    if (t->pretok.n == QR_PRETOK_STAGES_MAX) {
        qr_tok_unsupported(err, pretok, "a chain of more than %d steps", QR_PRETOK_STAGES_MAX);
        return NULL;
    }
    struct qr_pretok_stage *s = &t->pretok.stage[t->pretok.n++];
    *s = (struct qr_pretok_stage){.kind = kind};
    return s;
}

static int add_regex(struct qr_tokenizer *t, const char *regex, enum qr_split_behavior behavior, bool invert, struct qr_err *err)
{
    struct qr_pretok_stage *s = add_stage(t, QR_PRETOK_SPLIT, err);
    if (!s)
        return err->code;
    s->behavior = behavior;
    s->invert = invert;
    return qr_pattern_open(&s->pattern, regex, strlen(regex), err);
}

static int read_behavior(const struct qr_json *v, enum qr_split_behavior *out, struct qr_err *err)
{
    static const char *const name[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *s;
    size_t n;
    int rc = qr_tok_string(v, pretok, "behavior", &s, &n, err);
    if (rc != 0)
        return rc;
    for (int i = 0; s && i < QR_COUNT(name); i++) {
        if (strcmp(s, name[i]) != 0)
            continue;
        *out = (enum qr_split_behavior)i;
        return 0;
    }
    return qr_tok_unsupported(err, pretok, "behavior \"%.64s\"", s ? s : "(none)");
}

static int read_split(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"pattern", "behavior", "invert"};
    enum qr_split_behavior behavior;
    bool invert;
    int rc = qr_tok_check_keys(v, pretok, keys, QR_COUNT(keys), err);
    if (rc == 0)
        rc = read_behavior(v, &behavior, err);
    if (rc == 0)
        rc = qr_tok_bool(v, pretok, "invert", false, &invert, err);
    if (rc != 0)
        return rc;
    struct qr_pretok_stage *s = add_stage(t, QR_PRETOK_SPLIT, err);
    if (!s)
        return err->code;
    s->behavior = behavior;
    s->invert = invert;
    return qr_tok_pattern(&s->pattern, v, pretok, "pattern", err);
}

static int read_byte_level(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"add_prefix_space", "trim_offsets", "use_regex"};
    bool prefix, regex;
    int rc = qr_tok_check_keys(v, pretok, keys, QR_COUNT(keys), err);
    if (rc == 0)
        rc = qr_tok_bool(v, pretok, "add_prefix_space", true, &prefix, err);
    if (rc == 0)
        rc = qr_tok_bool(v, pretok, "use_regex", true, &regex, err);
    if (rc == 0)
        rc = end_byte_level(t, err);
    if (rc == 0 && prefix) {
        struct qr_pretok_stage *s = add_stage(t, QR_PRETOK_SPACES, err);
        if (!s)
            return err->code;
        s->prepend = QR_PREPEND_ALWAYS;
        strcpy(s->mark, " ");
    }
    if (rc == 0 && regex)
        rc = add_regex(t, GPT2_SPLIT, QR_SPLIT_ISOLATED, false, err);
    t->bpe.byte_level = true;
    return rc;
}

static int read_prepend_scheme(const struct qr_json *v, enum qr_prepend *out, struct qr_err *err)
{
    static const char *const name[] = {"never", "first", "always"};
    const char *s;
    size_t n;
    bool prefix;
    int rc = qr_tok_bool(v, pretok, "add_prefix_space", true, &prefix, err);
    if (rc == 0)
        rc = qr_tok_string(v, pretok, "prepend_scheme", &s, &n, err);
    if (rc != 0)
        return rc;
    *out = prefix ? QR_PREPEND_ALWAYS : QR_PREPEND_NEVER;
    if (!s)
        return 0;
    for (int i = 0; i < QR_COUNT(name); i++) {
        if (strcmp(s, name[i]) != 0)
            continue;
        *out = (enum qr_prepend)i;
        if (!prefix && *out != QR_PREPEND_NEVER)
            return qr_err_set(err, QR_E_DAMAGED, "pre_tokenizer: add_prefix_space false contradicts prepend_scheme \"%s\"", s);
        return 0;
    }
    return qr_tok_unsupported(err, pretok, "prepend_scheme \"%.64s\"", s);
}

static int read_metaspace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"};
    enum qr_prepend prepend;
    bool cut;
    char mark[5];
    int rc = qr_tok_check_keys(v, pretok, keys, QR_COUNT(keys), err);
    if (rc == 0)
        rc = read_prepend_scheme(v, &prepend, err);
    if (rc == 0)
        rc = qr_tok_bool(v, pretok, "split", true, &cut, err);
    if (rc == 0)
        rc = qr_tok_char(v, pretok, "replacement", mark, err);
    if (rc != 0)
        return rc;
    struct qr_pretok_stage *s = add_stage(t, QR_PRETOK_SPACES, err);
    if (!s)
        return err->code;
    s->prepend = prepend;
    memcpy(s->mark, mark, sizeof mark);
    if (!cut)
        return 0;
    s = add_stage(t, QR_PRETOK_SPLIT, err);
    if (!s)
        return err->code;
    s->behavior = QR_SPLIT_MERGED_NEXT;
    s->pattern = qr_pattern_literal(mark, strlen(mark));
    return 0;
}

static int read_digits(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"individual_digits"};
    bool each;
    int rc = qr_tok_check_keys(v, pretok, keys, QR_COUNT(keys), err);
    if (rc == 0)
        rc = qr_tok_bool(v, pretok, "individual_digits", false, &each, err);
    return rc ? rc : add_regex(t, "\\p{N}", each ? QR_SPLIT_ISOLATED : QR_SPLIT_CONTIGUOUS, false, err);
}

static int read_punctuation(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const keys[] = {"behavior"};
    enum qr_split_behavior behavior = QR_SPLIT_ISOLATED;
    int rc = qr_tok_check_keys(v, pretok, keys, QR_COUNT(keys), err);
    if (rc == 0 && qr_json_find(v, "behavior"))
        rc = read_behavior(v, &behavior, err);
    return rc ? rc : add_regex(t, "[\\p{P}" ASCII_PUNCTUATION "]", behavior, false, err);
}

static int read_whitespace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    int rc = qr_tok_check_keys(v, pretok, NULL, 0, err);
    return rc ? rc : add_regex(t, "\\w+|[^\\w\\s]+", QR_SPLIT_REMOVED, true, err);
}

static int read_whitespace_split(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    int rc = qr_tok_check_keys(v, pretok, NULL, 0, err);
    return rc ? rc : add_regex(t, "\\s", QR_SPLIT_REMOVED, false, err);
}

int qr_tok_read_pretok(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err)
{
    static const struct part parts[] = {
        {"ByteLevel", read_byte_level},   {"Split", read_split},           {"Metaspace", read_metaspace},
        {"Digits", read_digits},          {"Punctuation", read_punctuation}, {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
    };
    QR_ASSERT(t != NULL && text != NULL);
    struct qr_json *doc;
    int rc = qr_tok_document(&doc, text, pretok, err);
    if (rc == 0 && doc)
        rc = read_part(t, doc, pretok, "pretokenizers", parts, QR_COUNT(parts), 0, err);
    qr_json_free(doc);
    return rc;
}
