/* tok_split.c - the sections "normalizer" and "pre_tokenizer" into flat lists of steps and stages. Nested sequences are
 * flattened in order, with a bound on their number. Patterns are compiled here (pattern.h). What a type or setting
 * means is Hugging Face's; unknown ones are refused by name. Runs once, when a tokenizer is opened. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/tok.h"

/* Radford et al. 2019: contractions, letters, digits, the rest, and white space that leaves one space to the next word. */
#define GPT2_SPLIT "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define ASCII_PUNCTUATION "!-/:-@\\[-`{-~"

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
        rc = qr_tok_members(v, normalizer, NULL, 0, err);
    for (int i = 0; rc == 0 && i < QR_COUNT(name); i++)
        if (strcmp(type, name[i]) == 0 && !add_step(t, kind[i], err))
            rc = err->code;
    return rc;
}

static void copy_text(struct qr_norm_step *step, struct qr_tok_string s)
{
    step->text = qr_alloc(s.n, 1);
    if (s.n > 0)
        memcpy(step->text, s.s, s.n);
    step->n_text = s.n;
}

static int read_prepend(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    struct qr_tok_string text = {0};
    const struct qr_tok_member members[] = {{"prepend", QR_TOK_STRING, &text}};
    int rc = qr_tok_members(v, normalizer, members, QR_COUNT(members), err);
    if (rc != 0)
        return rc;
    if (!text.s || text.n > QR_TOKEN_BYTES_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "normalizer.prepend: expected a string of at most %d bytes",
                          QR_TOKEN_BYTES_MAX);
    struct qr_norm_step *step = add_step(t, QR_NORM_PREPEND, err);
    if (!step)
        return err->code;
    copy_text(step, text);
    return 0;
}

static int read_replace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    struct qr_tok_string text = {0};
    const struct qr_tok_member members[] = {{"pattern", QR_TOK_IGNORED, NULL}, {"content", QR_TOK_STRING, &text}};
    int rc = qr_tok_members(v, normalizer, members, QR_COUNT(members), err);
    if (rc != 0)
        return rc;
    if (!text.s || text.n > 64)
        return qr_err_set(err, QR_E_DAMAGED, "normalizer.content: expected a string of at most 64 bytes");
    struct qr_norm_step *step = add_step(t, QR_NORM_REPLACE, err);
    if (!step)
        return err->code;
    copy_text(step, text);
    return qr_tok_pattern(&step->pattern, v, normalizer, err);
}

static int read_strip(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    bool left = true, right = true;
    const struct qr_tok_member members[] = {{"strip_left", QR_TOK_BOOL, &left}, {"strip_right", QR_TOK_BOOL, &right}};
    int rc = qr_tok_members(v, normalizer, members, QR_COUNT(members), err);
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
    static const struct qr_tok_part parts[] = {
        {"NFC", read_form},         {"NFD", read_form},         {"NFKC", read_form},   {"NFKD", read_form},
        {"Prepend", read_prepend}, {"Replace", read_replace}, {"Strip", read_strip},
    };
    return qr_tok_read_section(
        t, text, &(struct qr_tok_section){normalizer, "normalizers", parts, QR_COUNT(parts)}, err);
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

static int add_regex(struct qr_tokenizer *t, const char *regex, enum qr_split_behavior behavior, bool invert,
                     struct qr_err *err)
{
    struct qr_pretok_stage *s = add_stage(t, QR_PRETOK_SPLIT, err);
    if (!s)
        return err->code;
    s->behavior = behavior;
    s->invert = invert;
    return qr_pattern_open(&s->pattern, regex, strlen(regex), err);
}

/* The number of the name that a member has, `*out` where it is absent. */
static int choose(const struct qr_tok_string *s, const char *member, const char *const *name, int n, int *out,
                  struct qr_err *err)
{
    for (int i = 0; s->s && i < n; i++) {
        if (strcmp(s->s, name[i]) != 0)
            continue;
        *out = i;
        return 0;
    }
    if (!s->s && *out >= 0)
        return 0;
    return qr_tok_unsupported(err, pretok, "%s \"%.64s\"", member, s->s ? s->s : "(none)");
}

/* In the order of enum qr_split_behavior. */
static int choose_behavior(const struct qr_tok_string *s, int *out, struct qr_err *err)
{
    static const char *const name[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    return choose(s, "behavior", name, QR_COUNT(name), out, err);
}

static int read_split(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    struct qr_tok_string name = {0};
    int behavior = -1;
    bool invert = false;
    const struct qr_tok_member members[] = {
        {"pattern", QR_TOK_IGNORED, NULL}, {"behavior", QR_TOK_STRING, &name}, {"invert", QR_TOK_BOOL, &invert}};
    int rc = qr_tok_members(v, pretok, members, QR_COUNT(members), err);
    if (rc == 0)
        rc = choose_behavior(&name, &behavior, err);
    if (rc != 0)
        return rc;
    struct qr_pretok_stage *s = add_stage(t, QR_PRETOK_SPLIT, err);
    if (!s)
        return err->code;
    s->behavior = (enum qr_split_behavior)behavior;
    s->invert = invert;
    return qr_tok_pattern(&s->pattern, v, pretok, err);
}

static int read_byte_level(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    bool prefix = true, regex = true;
    const struct qr_tok_member members[] = {{"add_prefix_space", QR_TOK_BOOL, &prefix},
                                            {"trim_offsets", QR_TOK_IGNORED, NULL},
                                            {"use_regex", QR_TOK_BOOL, &regex}};
    int rc = qr_tok_members(v, pretok, members, QR_COUNT(members), err);
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

static int read_metaspace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    static const char *const schemes[] = {"never", "first", "always"}; /* in the order of enum qr_prepend */
    struct qr_tok_string scheme = {0};
    bool prefix = true, cut = true;
    char mark[5];
    const struct qr_tok_member members[] = {{"add_prefix_space", QR_TOK_BOOL, &prefix},
                                            {"prepend_scheme", QR_TOK_STRING, &scheme},
                                            {"split", QR_TOK_BOOL, &cut},
                                            {"replacement", QR_TOK_CHAR, mark},
                                            {"str_rep", QR_TOK_IGNORED, NULL}};
    int rc = qr_tok_members(v, pretok, members, QR_COUNT(members), err);
    int prepend = prefix ? QR_PREPEND_ALWAYS : QR_PREPEND_NEVER;
    if (rc == 0)
        rc = choose(&scheme, "prepend_scheme", schemes, QR_COUNT(schemes), &prepend, err);
    if (rc == 0 && !prefix && prepend != QR_PREPEND_NEVER)
        rc = qr_err_set(err, QR_E_DAMAGED, "pre_tokenizer: add_prefix_space false contradicts prepend_scheme \"%s\"",
                        scheme.s);
    if (rc != 0)
        return rc;
    struct qr_pretok_stage *s = add_stage(t, QR_PRETOK_SPACES, err);
    if (!s)
        return err->code;
    s->prepend = (enum qr_prepend)prepend;
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
    bool each = false;
    const struct qr_tok_member members[] = {{"individual_digits", QR_TOK_BOOL, &each}};
    int rc = qr_tok_members(v, pretok, members, QR_COUNT(members), err);
    return rc ? rc : add_regex(t, "\\p{N}", each ? QR_SPLIT_ISOLATED : QR_SPLIT_CONTIGUOUS, false, err);
}

static int read_punctuation(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    struct qr_tok_string name = {0};
    int behavior = QR_SPLIT_ISOLATED;
    const struct qr_tok_member members[] = {{"behavior", QR_TOK_STRING, &name}};
    int rc = qr_tok_members(v, pretok, members, QR_COUNT(members), err);
    if (rc == 0)
        rc = choose_behavior(&name, &behavior, err);
    return rc ? rc : add_regex(t, "[\\p{P}" ASCII_PUNCTUATION "]", (enum qr_split_behavior)behavior, false, err);
}

static int read_whitespace(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    int rc = qr_tok_members(v, pretok, NULL, 0, err);
    return rc ? rc : add_regex(t, "\\w+|[^\\w\\s]+", QR_SPLIT_REMOVED, true, err);
}

static int read_whitespace_split(struct qr_tokenizer *t, const struct qr_json *v, struct qr_err *err)
{
    int rc = qr_tok_members(v, pretok, NULL, 0, err);
    return rc ? rc : add_regex(t, "\\s", QR_SPLIT_REMOVED, false, err);
}

int qr_tok_read_pretok(struct qr_tokenizer *t, const struct qr_tok_span *text, struct qr_err *err)
{
    static const struct qr_tok_part parts[] = {
        {"ByteLevel", read_byte_level},   {"Split", read_split},           {"Metaspace", read_metaspace},
        {"Digits", read_digits},          {"Punctuation", read_punctuation}, {"Whitespace", read_whitespace},
        {"WhitespaceSplit", read_whitespace_split},
    };
    return qr_tok_read_section(t, text, &(struct qr_tok_section){pretok, "pretokenizers", parts, QR_COUNT(parts)}, err);
}
