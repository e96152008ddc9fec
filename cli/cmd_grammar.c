/* cmd_grammar.c - what a grammar takes, without a model: JSON lines in, JSON lines out, one for each, in order and at once.
 *
 * A line holds a grammar in one of its languages and perhaps a text. The grammar is compiled as a request's is, and the text is read by the
 * matcher that fills a request's masks. Whatever a line holds, its answer is a line, and the command goes on. Main thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "answers/constraint.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/grammar_walk.h"
#include "tokenizer/tokenizer.h"

#define WALKS_MAX 1000
#define LINE_BYTES_MAX ((size_t)64 << 20)
#define TOKEN_BYTES_MAX 32 /* of tokens that stand for a text which the tokenizer writes otherwise */

static const struct qr_json_limits limits = {.bytes_max = LINE_BYTES_MAX, .values_max = 8 << 20, .depth_max = QR_JSON_DEPTH_MAX, .nul_ok = true};

static const struct {
    const char *key;
    enum qr_constraint_kind kind;
    enum qr_json_type type; /* of the member; null: any, and its JSON text is meant */
} languages[] = {
    {"schema", QR_CONSTRAINT_SCHEMA, QR_JSON_T_NULL},  {"regex", QR_CONSTRAINT_REGEX, QR_JSON_T_STRING},
    {"gbnf", QR_CONSTRAINT_GBNF, QR_JSON_T_STRING},    {"lark", QR_CONSTRAINT_LARK, QR_JSON_T_STRING},
    {"choice", QR_CONSTRAINT_CHOICE, QR_JSON_T_ARRAY}, {"structural_tag", QR_CONSTRAINT_TAGS, QR_JSON_T_OBJECT},
};

struct grammar_options {
    struct qr_cli_model m;
    bool strict, masks;
};

struct checker {
    const struct grammar_options *o;
    struct qr_tokenizer *tokenizer; /* owned */
    struct qr_vocab *vocab;         /* owned */
    uint32_t *mask;                 /* owned [QR_MASK_WORDS] */
    int32_t *by_bytes;              /* owned [n_by_bytes]: tokens with bytes, in the order of these; NULL until it is needed */
    int32_t n_by_bytes;
    struct qr_buf out;              /* the answer to a line */
    int64_t (*now_ns)(void);        /* what times are taken from */
};

/* How far one reading of a text came. */
struct reading {
    size_t at;           /* bytes that could be read */
    bool complete;       /* all of them, and the text may end there */
    bool tokens_ok;      /* every token, and the end where it may, was in its mask */
    double *mask_us;     /* owned [n_masks] */
    int32_t n_masks;
    struct qr_err why;   /* of a mask that could not be filled; code 0: none */
};

/* ---- tokens ---- */

static int compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_tokens(const void *a, const void *b, void *vocab)
{
    size_t n_a, n_b;
    const char *s_a = qr_vocab_token(vocab, *(const int32_t *)a, &n_a), *s_b = qr_vocab_token(vocab, *(const int32_t *)b, &n_b);
    return compare_bytes(s_a, n_a, s_b, n_b);
}

static void sort_tokens(struct checker *c)
{
    const int32_t n_vocab = qr_vocab_size(c->vocab);
    c->by_bytes = qr_alloc((size_t)n_vocab, sizeof *c->by_bytes);
    for (int32_t id = 0; id < n_vocab; id++) {
        size_t len;
        qr_vocab_token(c->vocab, id, &len);
        if (len > 0)
            c->by_bytes[c->n_by_bytes++] = id;
    }
    qsort_r(c->by_bytes, (size_t)c->n_by_bytes, sizeof *c->by_bytes, compare_tokens, c->vocab);
}

/* The token with these bytes, or -1. */
static int32_t find_token(const struct checker *c, const char *bytes, size_t len)
{
    int32_t low = 0, high = c->n_by_bytes;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        size_t n;
        const char *s = qr_vocab_token(c->vocab, c->by_bytes[mid], &n);
        const int order = compare_bytes(s, n, bytes, len);
        if (order == 0)
            return c->by_bytes[mid];
        low = order < 0 ? mid + 1 : low;
        high = order < 0 ? high : mid;
    }
    return -1;
}

/* Tokens with exactly these bytes, the longest first ones. */
static int cover(struct checker *c, struct qr_ids *out, const char *text, size_t len, struct qr_err *err)
{
    if (!c->by_bytes)
        sort_tokens(c);
    for (size_t at = 0, n; at < len; at += n) {
        int32_t id = -1;
        for (n = len - at < TOKEN_BYTES_MAX ? len - at : TOKEN_BYTES_MAX; n > 0 && (id = find_token(c, text + at, n)) < 0;)
            n--;
        if (id < 0)
            return qr_err_set(err, QR_E_INVALID, "no token begins with byte 0x%02x", (unsigned char)text[at]);
        qr_ids_push(out, id);
    }
    return 0;
}

/* The text's tokens as the tokenizer has them, but that their bytes are exactly the text: a tokenizer may put a blank before it, or compose
 * characters, and a model that goes on in the middle of a text does neither. */
static int tokenize(struct checker *c, struct qr_ids *out, const char *text, size_t len, unsigned flags, struct qr_err *err)
{
    struct qr_ids ids = {0};
    size_t at = 0;
    int rc = qr_tokenizer_encode(c->tokenizer, &ids, text, len, flags, err);
    for (int32_t i = 0; rc == 0 && i < ids.n; i++) {
        size_t n;
        const char *s = qr_tokenizer_token_bytes(c->tokenizer, ids.id[i], &n);
        if (n <= len - at && memcmp(text + at, s, n) == 0) {
            qr_ids_push(out, ids.id[i]);
            at += n;
        } else if (n > 0 && s[0] == ' ' && n - 1 <= len - at && memcmp(text + at, s + 1, n - 1) == 0) {
            rc = cover(c, out, s + 1, n - 1, err);
            at += n - 1;
        } else {
            break;
        }
    }
    qr_ids_release(&ids);
    return rc ? rc : cover(c, out, text + at, len - at, err);
}

/* ---- reading a text ---- */

/* The processor's time of this thread: what else runs on the machine takes none of it. */
static int64_t processor_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static bool in_mask(const uint32_t *mask, int32_t id)
{
    return (mask[id / 32] >> (id % 32) & 1) != 0;
}

/* The next mask, timed. */
static bool fill(struct checker *c, struct reading *r, struct qr_matcher *m)
{
    const int64_t began = c->now_ns();
    if (qr_matcher_mask(m, c->mask, &r->why) != 0)
        return false;
    r->mask_us[r->n_masks++] = (double)(c->now_ns() - began) * 1e-3;
    return true;
}

/* Whether the mask at the end of a text has an end token exactly where the text may end. */
static bool end_fits(const struct checker *c, const struct qr_matcher *m)
{
    const int32_t n_vocab = qr_vocab_size(c->vocab);
    bool any = false, offered = false;
    for (int32_t id = 0; id < n_vocab; id++)
        if (qr_vocab_is_end(c->vocab, id)) {
            any = true;
            offered = offered || in_mask(c->mask, id);
        }
    return !any || offered == qr_matcher_accepts(m);
}

/* As a model would write the text: the mask, one of its tokens, and so on. */
static void read_tokens(struct checker *c, struct reading *r, struct qr_grammar *g, const struct qr_ids *ids)
{
    struct qr_matcher m;
    bool goes_on = true;
    qr_matcher_init(&m, g);
    r->mask_us = qr_alloc((size_t)ids->n + 1, sizeof *r->mask_us);
    r->tokens_ok = true;
    for (int32_t i = 0; i < ids->n && goes_on; i++) {
        goes_on = fill(c, r, &m) && in_mask(c->mask, ids->id[i]);
        r->tokens_ok = goes_on;
        goes_on = goes_on && qr_matcher_token(&m, ids->id[i]);
        r->tokens_ok = r->tokens_ok && goes_on;
    }
    if (goes_on)
        r->tokens_ok = fill(c, r, &m) && end_fits(c, &m);
    qr_matcher_release(&m);
}

/* Byte by byte; a special token at its place where `special` has one. ids: of the whole text, read by `special` alone. */
static void read_bytes(struct checker *c, struct reading *r, struct qr_grammar *g, const char *text, size_t len, const struct qr_ids *special)
{
    struct qr_matcher m;
    bool goes_on = true;
    qr_matcher_init(&m, g);
    r->at = 0;
    for (int32_t i = 0; special && i < special->n && goes_on; i++) {
        size_t n, n_ok = 0;
        const char *s = qr_tokenizer_token_bytes(c->tokenizer, special->id[i], &n);
        if (qr_tokenizer_is_special(c->tokenizer, special->id[i])) {
            goes_on = qr_matcher_token(&m, special->id[i]);
            n_ok = goes_on ? n : 0;
        } else {
            goes_on = qr_matcher_bytes(&m, s, n, &n_ok);
        }
        r->at += n_ok;
    }
    if (!special)
        goes_on = qr_matcher_bytes(&m, text, len, &r->at);
    r->complete = goes_on && r->at == len && qr_matcher_accepts(&m);
    qr_matcher_release(&m);
}

/* ---- a line's answer ---- */

static void put_error(struct qr_buf *out, const struct qr_err *err, bool with_path)
{
    qr_buf_put_str(out, "{\"ok\": false, \"error\": ");
    qr_json_put_str(out, err->msg, strlen(err->msg));
    if (with_path) {
        const char *path = err->param[0] ? err->param : "$";
        qr_buf_put_str(out, ", \"path\": ");
        qr_json_put_str(out, path, strlen(path));
    }
    qr_buf_put_byte(out, '}');
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least value that q of all are not above. */
static double quantile(const double *sorted, int32_t n, double q)
{
    const int32_t rank = (int32_t)(q * n + 0.999999);
    return sorted[rank < 1 ? 0 : rank > n ? n - 1 : rank - 1];
}

static void put_masks(struct qr_buf *out, const struct reading *r, bool each)
{
    double sum = 0;
    if (each) {
        qr_buf_put_str(out, ", \"each_us\": [");
        for (int32_t i = 0; i < r->n_masks; i++)
            qr_buf_printf(out, i > 0 ? ", %.2f" : "%.2f", r->mask_us[i]);
        qr_buf_put_byte(out, ']');
    }
    if (r->n_masks == 0) {
        qr_buf_put_str(out, ", \"mask_us\": null");
    } else {
        qsort(r->mask_us, (size_t)r->n_masks, sizeof *r->mask_us, compare_doubles);
        for (int32_t i = 0; i < r->n_masks; i++)
            sum += r->mask_us[i];
        qr_buf_printf(out, ", \"mask_us\": {\"mean\": %.2f, \"p50\": %.2f, \"p99\": %.2f, \"max\": %.2f, \"n\": %d}", sum / r->n_masks,
                      quantile(r->mask_us, r->n_masks, 0.50), quantile(r->mask_us, r->n_masks, 0.99), r->mask_us[r->n_masks - 1], r->n_masks);
    }
    qr_buf_printf(out, ", \"tokens_ok\": %s", r->tokens_ok ? "true" : "false");
    if (r->why.code != 0) {
        qr_buf_put_str(out, ", \"mask_error\": ");
        qr_json_put_str(out, r->why.msg, strlen(r->why.msg));
    }
}

/* A special token may stand for its text in grammars that can name it; they are tried where the text alone is refused. */
static int read_text(struct checker *c, struct reading *r, struct qr_grammar *g, enum qr_constraint_kind kind, const char *text, size_t len,
                     struct qr_err *err)
{
    const bool names_tokens = kind == QR_CONSTRAINT_GBNF || kind == QR_CONSTRAINT_LARK || kind == QR_CONSTRAINT_TAGS;
    struct qr_ids ids = {0};
    int rc = c->o->masks ? tokenize(c, &ids, text, len, 0, err) : 0;
    if (rc == 0 && c->o->masks)
        read_tokens(c, r, g, &ids);
    if (rc == 0)
        read_bytes(c, r, g, text, len, NULL);
    if (rc == 0 && names_tokens && !r->complete) {
        struct reading other = {0};
        ids.n = 0;
        rc = tokenize(c, &ids, text, len, QR_ENCODE_PARSE_SPECIAL, err);
        if (rc == 0)
            read_bytes(c, &other, g, text, len, &ids);
        if (rc == 0 && (other.complete || other.at > r->at)) {
            if (c->o->masks)
                read_tokens(c, &other, g, &ids);
            qr_free(r->mask_us);
            *r = other;
        }
    }
    qr_ids_release(&ids);
    return rc;
}

/* Walks `walk`, `walk` + 1, ... of a line. */
static int put_walks(struct checker *c, struct qr_grammar *g, const struct qr_json *line, struct qr_err *err)
{
    int64_t first = 0, n = 1;
    if (!qr_json_i64(qr_json_find(line, "walk"), &first) || (qr_json_find(line, "n") && !qr_json_i64(qr_json_find(line, "n"), &n)) || first < 0 ||
        first > INT32_MAX || n < 1 || n > WALKS_MAX)
        return qr_err_set(err, QR_E_INVALID, "expected 'walk' from 0 to 2147483647 and 'n' from 1 to %d", WALKS_MAX);
    struct qr_walk walk;
    struct qr_buf text = {0};
    int rc = 0;
    qr_walk_init(&walk, c->vocab, c->mask);
    qr_buf_put_str(&c->out, ", \"texts\": [");
    for (int64_t i = 0; i < n && rc == 0; i++) {
        qr_buf_clear(&text);
        rc = qr_walk_text(&walk, &text, g, (uint64_t)(first + i), err);
        qr_buf_put_comma(&c->out);
        qr_json_put_str(&c->out, text.data ? text.data : "", text.len);
    }
    qr_buf_put_byte(&c->out, ']');
    qr_buf_release(&text);
    return rc;
}

static int answer(struct checker *c, const struct qr_constraint *constraint, const struct qr_json *line, struct qr_err *err)
{
    const struct qr_json *text = qr_json_find(line, "text");
    struct qr_grammar *g = NULL;
    struct reading r = {0};
    c->now_ns = qr_json_find(line, "each") ? processor_ns : qr_clock_ns;
    const int64_t began = c->now_ns();
    int rc = qr_constraint_compile(&g, constraint, c->vocab, err);
    const double compile_us = (double)(c->now_ns() - began) * 1e-3;
    size_t len = 0;
    const char *s = qr_json_text(text, &len);
    if (rc == 0 && s)
        rc = read_text(c, &r, g, constraint->kind, s, len, err);
    if (rc == 0) {
        qr_buf_put_str(&c->out, "{\"ok\": true");
        if (s)
            qr_buf_printf(&c->out, ", \"accepted\": %s, \"at\": %zu", r.complete ? "true" : "false", r.at);
        if (c->o->masks)
            qr_buf_printf(&c->out, ", \"compile_us\": %.2f", compile_us);
        if (c->o->masks && s)
            put_masks(&c->out, &r, qr_json_find(line, "each") != NULL);
        if (qr_json_find(line, "walk"))
            rc = put_walks(c, g, line, err);
        qr_buf_put_byte(&c->out, '}');
    }
    qr_free(r.mask_us);
    qr_grammar_unref(g);
    return rc;
}

/* The one grammar of a line. The text that it is made of is borrowed from line or own. */
static int find_language(struct qr_constraint *out, struct qr_buf *own, const struct qr_json *line, struct qr_err *err)
{
    const struct qr_json *found = NULL, *text = qr_json_find(line, "text");
    int32_t row = -1;
    for (int32_t i = 0; i < QR_COUNT(languages); i++) {
        const struct qr_json *v = qr_json_find(line, languages[i].key);
        if (v && found)
            return qr_err_set(err, QR_E_INVALID, "expected one grammar, found '%s' and '%s'", languages[row].key, languages[i].key);
        found = v ? v : found;
        row = v ? i : row;
    }
    if (!found)
        return qr_err_set(err, QR_E_INVALID, "expected an object with one of schema, regex, gbnf, lark, choice, structural_tag");
    if (text && qr_json_type(text) != QR_JSON_T_STRING)
        return qr_err_set(err, QR_E_INVALID, "'text' must be a string, found a %s", qr_json_type_name(qr_json_type(text)));
    if (languages[row].type != QR_JSON_T_NULL && qr_json_type(found) != languages[row].type)
        return qr_err_set(err, QR_E_INVALID, "'%s' must be a %s, found a %s", languages[row].key, qr_json_type_name(languages[row].type),
                          qr_json_type_name(qr_json_type(found)));
    out->kind = languages[row].kind;
    if (languages[row].type == QR_JSON_T_STRING) {
        out->text = qr_json_str(found, &out->len);
        return 0;
    }
    qr_json_print(own, found);
    out->text = own->data;
    out->len = own->len;
    return 0;
}

static void check_line(struct checker *c, const char *line, size_t len)
{
    struct qr_constraint constraint = {.strict = c->o->strict};
    struct qr_buf own = {0};
    struct qr_json *v = NULL;
    struct qr_err err;
    int rc = len > LINE_BYTES_MAX ? qr_err_set(&err, QR_E_TOO_LARGE, "%zu bytes; a line may have %zu", len, LINE_BYTES_MAX)
                                  : qr_json_parse_line(&v, line, len, &limits, &err);
    const bool is_json = rc == 0;
    rc = rc ? rc : find_language(&constraint, &own, v, &err);
    rc = rc ? rc : answer(c, &constraint, v, &err);
    if (rc != 0) {
        qr_buf_clear(&c->out);
        put_error(&c->out, &err, is_json);
    }
    qr_json_free(v);
    qr_buf_release(&own);
}

/* Every line is answered, also an empty one, and before the next is read. */
static int each_line(struct checker *c, FILE *in, struct qr_err *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int rc = 0;
    while (rc == 0 && (len = getline(&line, &cap, in)) >= 0) {
        while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
            len--;
        qr_buf_clear(&c->out);
        check_line(c, line, (size_t)len);
        qr_buf_put_byte(&c->out, '\n');
        if (fwrite(c->out.data, 1, c->out.len, stdout) != c->out.len || fflush(stdout) != 0)
            rc = qr_err_set(err, QR_E_IO, "cannot write to stdout: %s", strerror(errno));
    }
    if (rc == 0 && ferror(in))
        rc = qr_err_set(err, QR_E_IO, "cannot read the input: %s", strerror(errno));
    free(line);
    return rc;
}

/* ---- the command ---- */

/* What ends an answer. tokenizer.json alone does not say it; then the first of the usual names that it has. */
static int32_t end_token(const struct qr_tokenizer *t)
{
    static const char *const usual[] = {"<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<|end|>"};
    int32_t id = qr_tokenizer_eos(t);
    for (int i = 0; id < 0 && i < QR_COUNT(usual); i++)
        id = qr_tokenizer_token_id(t, usual[i], strlen(usual[i]));
    return id;
}

static int run(struct qr_command_run *r, struct qr_err *err)
{
    struct checker c = {.o = r->options};
    int rc = qr_cli_need_model(&c.o->m, err);
    rc = rc ? rc : qr_tokenizer_open(&c.tokenizer, c.o->m.model, err);
    if (rc == 0) {
        const int32_t end = end_token(c.tokenizer);
        c.vocab = qr_vocab_new(c.tokenizer, qr_tokenizer_vocab_size(c.tokenizer), &end, end >= 0 ? 1 : 0);
        c.mask = qr_alloc(QR_MASK_WORDS(qr_vocab_size(c.vocab)), sizeof *c.mask);
        rc = each_line(&c, stdin, err);
    }
    qr_buf_release(&c.out);
    qr_free(c.by_bytes);
    qr_free(c.mask);
    qr_vocab_free(c.vocab);
    qr_tokenizer_close(c.tokenizer);
    return rc;
}

static const struct qr_option table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct grammar_options, m.model), .arg = "DIR",
     .help = "Directory with tokenizer.json (nothing else of a model is needed), or ORG/NAME of the hub."},
    QR_HUB_ROWS(struct grammar_options, m.hub, NULL),
    {.name = "strict", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct grammar_options, strict), .builtin = "false",
     .help = "Check the rules that OpenAI has for schemas with \"strict\": true as well."},
    {.name = "masks", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct grammar_options, masks), .builtin = "false",
     .help = "Read the text token by token, each against its mask, and report what compiling and each mask took."}};

const struct qr_command qr_cmd_grammar = {
    .name = "grammar", .purpose = "what a schema or grammar accepts",
    .usage = "quire grammar MODEL [--strict] [--masks] < lines",
    .examples = "echo '{\"schema\": {\"type\": \"integer\"}, \"text\": \"12\"}' | quire grammar models/quire-tiny\n"
                "echo '{\"regex\": \"[a-c]+\", \"text\": \"abd\"}' | quire grammar models/quire-tiny --masks",
    .text = "Reads JSON lines {\"schema\": ...}, or \"regex\", \"gbnf\", \"lark\", \"choice\" or \"structural_tag\", with an optional\n"
            "\"text\", and writes one line for each, at once: {\"ok\": true, \"accepted\": true|false, \"at\": N}, or\n"
            "{\"ok\": false, \"error\": message, \"path\": \"$...\"} where the grammar is refused. accepted: the whole text is complete.\n"
            "at: the byte that was refused, or the length where the text is only cut. --masks adds compile_us, mask_us {mean, p50,\n"
            "p99, max} and tokens_ok: every token of the text was in its mask; \"each\": true in the line adds every mask's time,\n"
            "and times are the processor's.\n"
            "\"walk\": N and \"n\": M in a line add M texts drawn from masks at random, of seeds N, N + 1 and so on. The exit status is 0 whatever is refused.",
    .args = "model", .settle = qr_hub_settle, .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct grammar_options), .run = run,
};
