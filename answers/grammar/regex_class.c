/* regex_class.c - escapes and classes of regular expressions. What ECMAScript, Python and Rust read alike is read so; where they differ,
 * ECMAScript's meaning is taken in the JSON forms, and what would silently mean two things is refused by name. One thread. */
#include "answers/grammar/regex.h"

#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/categories.h"

static const struct qr_rune_range digits[] = {{'0', '9'}};
const struct qr_rune_range qr_rx_word[4] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct qr_rune_range blanks[] = {{9, 13}, {32, 32}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                              {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

static int class_of(struct qr_rx_escaped *out, const struct qr_rune_range *range, int32_t n, bool negated)
{
    out->kind = QR_RX_CLASS;
    qr_runes_add_all(&out->runes, range, n);
    if (negated)
        qr_runes_invert(&out->runes);
    return 0;
}

/* n hexadecimal digits, all of them there. */
static bool take_hex(struct qr_rx_reader *r, int n, int32_t *out)
{
    int32_t value = 0;
    if (r->n - r->at < (size_t)n)
        return false;
    for (int i = 0; i < n; i++) {
        const int32_t digit = qr_hex_digit(r->s[r->at + (size_t)i]);
        if (digit < 0 || value > QR_RUNE_MAX)
            return false;
        value = value * 16 + digit;
    }
    r->at += (size_t)n;
    *out = value;
    return value <= QR_RUNE_MAX;
}

/* {H...}, the braces included. */
static bool take_braced(struct qr_rx_reader *r, int32_t *out)
{
    int n = 0;
    r->at++;
    while (r->at + (size_t)n < r->n && qr_hex_digit(r->s[r->at + (size_t)n]) >= 0 && n < 9)
        n++;
    return n > 0 && n < 9 && take_hex(r, n, out) && qr_rx_take(r, "}");
}

/* \xHH, \x{H}, \uHHHH, \u{H}, \UHHHHHHHH; r->at is behind the letter. */
static int read_code(struct qr_rx_reader *r, char letter, size_t start, int32_t *out)
{
    const int n = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
    const bool ok = qr_rx_is(r, "{") && letter != 'U' ? take_braced(r, out) : take_hex(r, n, out);
    if (!ok)
        return qr_rx_fail(r, QR_E_INVALID, start, "behind \\%c %d hexadecimal digits of a character were expected", letter, n);
    if (letter == 'u' && *out >= 0xD800 && *out <= 0xDBFF && qr_rx_is(r, "\\u")) {
        const size_t before = r->at;
        int32_t low = 0;
        r->at += 2;
        if (take_hex(r, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
            *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
        else
            r->at = before;
    }
    return 0;
}

/* ---- \p ---- */

static bool has_prefix(const char **name, size_t *len, const char *const *prefix, int n)
{
    for (int i = 0; i < n; i++) {
        const size_t k = strlen(prefix[i]);
        if (*len > k && memcmp(*name, prefix[i], k) == 0) {
            *name += k;
            *len -= k;
            return true;
        }
    }
    return false;
}

static void add_categories(struct qr_rx_reader *r, struct qr_runes *out, uint32_t categories)
{
    int32_t first, last;
    for (int32_t i = 0; i < r->n_categories; i++) {
        if (r->category[i].categories == categories) {
            const struct qr_runes *known = &r->rx->set[r->category[i].set].runes;
            qr_runes_add_all(out, known->range, known->n);
            return;
        }
    }
    struct qr_runes made = {0};
    for (int32_t at = 0; qr_category_run(categories, at, &first, &last); at = last + 1)
        qr_runes_add(&made, first, last);
    qr_runes_add_all(out, made.range, made.n);
    QR_ASSERT(r->n_categories < QR_COUNT(r->category)); /* there are fewer names */
    const int32_t set = qr_rx_intern(r->rx, &made);
    r->category[r->n_categories].categories = categories;
    r->category[r->n_categories++].set = set;
}

/* \p{Name}, \p{Key=Name}, \pL and their negations; r->at is behind the letter. */
static int read_property(struct qr_rx_reader *r, char letter, size_t start, struct qr_rx_escaped *out)
{
    static const char *const category[] = {"General_Category=", "gc="}, *const script[] = {"Script=", "sc="};
    const char *name = r->s + r->at;
    const bool braced = qr_rx_take(r, "{");
    const char *close = braced ? memchr(r->s + r->at, '}', r->n - r->at) : NULL;
    if ((braced && !close) || r->at == r->n)
        return qr_rx_fail(r, QR_E_INVALID, start, "behind \\%c a property in braces was expected, as in \\p{L}", letter);
    name += braced;
    size_t len = braced ? (size_t)(close - name) : (size_t)qr_utf8_decode(name, r->n - r->at, &(uint32_t){0});
    r->at += len + braced;
    const char *shown = name;
    const int n_shown = len < 60 ? (int)len : 60;
    bool negated = letter == 'P', found = false;
    if (len > 1 && *name == '^') {
        negated = !negated;
        name++;
        len--;
    }
    const bool is_script = has_prefix(&name, &len, script, QR_COUNT(script));
    const bool is_category = !is_script && has_prefix(&name, &len, category, QR_COUNT(category));
    const uint32_t categories = is_script ? 0 : qr_category_find(name, len);
    if (categories) {
        add_categories(r, &out->runes, categories);
        found = true;
    } else if (!is_category && len == 5 && memcmp(name, "ASCII", 5) == 0) {
        qr_runes_add(&out->runes, 0, 127);
        found = true;
    } else if (!is_category) {
        found = qr_runes_add_script(&out->runes, name, len);
    }
    if (!found)
        return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "the property \\%c{%.*s} is not supported: general categories and large scripts are", letter,
                          n_shown, shown);
    out->kind = QR_RX_CLASS;
    out->cased = true;
    if (negated)
        qr_runes_invert(&out->runes);
    return 0;
}

/* ---- escapes ---- */

static const struct { char letter; int32_t rune; } controls[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'f', '\f'}, {'v', '\v'}};

static int refuse_letter(struct qr_rx_reader *r, char letter, size_t start)
{
    static const struct { const char *letters, *what; } why[] = {
        {"123456789k", "back references are not regular"}, {"G", "the place of the last match (\\G) has no meaning here"},
        {"Q", "quoting by \\Q is not supported: escape each character"}, {"R", "\\R is not supported: write (?:\\r\\n|[\\n\\r])"},
        {"X", "characters with their marks (\\X) are not supported"}, {"N", "names of characters (\\N) are not supported"},
    };
    for (int i = 0; i < QR_COUNT(why); i++)
        if (strchr(why[i].letters, letter))
            return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "%s", why[i].what);
    return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "the escape \\%c has no meaning that is known here", letter);
}

static int assertion(struct qr_rx_escaped *out, enum qr_rx_kind kind, bool negated)
{
    out->kind = QR_RX_ASSERTION;
    out->assertion = kind;
    out->negated = negated;
    return 0;
}

/* \0 alone, \cX. */
static int read_control(struct qr_rx_reader *r, char letter, size_t start, struct qr_rx_escaped *out)
{
    const char next = r->at < r->n ? r->s[r->at] : 0;
    if (letter == '0') {
        if (next >= '0' && next <= '9')
            return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "octal escapes are not supported: write \\xHH");
        out->rune = 0;
        return 0;
    }
    if ((next | 0x20) < 'a' || (next | 0x20) > 'z')
        return qr_rx_fail(r, QR_E_INVALID, start, "behind \\c a letter was expected");
    out->rune = next & 31;
    r->at++;
    return 0;
}

int qr_rx_read_escape(struct qr_rx_reader *r, bool in_class, struct qr_rx_escaped *out)
{
    const size_t start = r->at;
    QR_ASSERT(r->at < r->n && r->s[r->at] == '\\');
    *out = (struct qr_rx_escaped){.kind = QR_RX_ONE};
    if (++r->at == r->n)
        return qr_rx_fail(r, QR_E_INVALID, start, "the pattern ends behind a backslash");
    out->rune = qr_rx_next(r);
    const bool is_letter = out->rune < 0x80 && ((out->rune >= '0' && out->rune <= '9') || ((out->rune | 32) >= 'a' && (out->rune | 32) <= 'z'));
    if (!is_letter)
        return 0;
    const char letter = (char)out->rune;
    for (int i = 0; i < QR_COUNT(controls); i++)
        if (controls[i].letter == letter) {
            out->rune = controls[i].rune;
            return 0;
        }
    switch (letter) {
    case 'd': case 'D': return class_of(out, digits, QR_COUNT(digits), letter == 'D');
    case 'w': case 'W': return class_of(out, qr_rx_word, QR_COUNT(qr_rx_word), letter == 'W');
    case 's': case 'S': return class_of(out, blanks, QR_COUNT(blanks), letter == 'S');
    case 'x': case 'u': case 'U': return read_code(r, letter, start, &out->rune);
    case 'p': case 'P': return read_property(r, letter, start, out);
    case 'c': case '0': return read_control(r, letter, start, out);
    case 'b':
        if (in_class)
            out->rune = '\b';
        return in_class ? 0 : assertion(out, QR_RX_WORD, false);
    case 'B': return in_class ? refuse_letter(r, letter, start) : assertion(out, QR_RX_WORD, true);
    case 'A': return in_class ? refuse_letter(r, letter, start) : assertion(out, QR_RX_BEGIN, false);
    case 'z': case 'Z': return in_class ? refuse_letter(r, letter, start) : assertion(out, QR_RX_END, false);
    default: return refuse_letter(r, letter, start);
    }
}

/* ---- classes ---- */

struct members {
    struct qr_runes folded, plain; /* the other cases of `folded` belong to it when case does not matter */
};

static int read_member(struct qr_rx_reader *r, struct qr_rx_escaped *out)
{
    if (r->s[r->at] == '\\')
        return qr_rx_read_escape(r, true, out);
    if (qr_rx_is(r, "[:") || qr_rx_is(r, "[.") || qr_rx_is(r, "[=")) {
        const char end[3] = {r->s[r->at + 1], ']', 0};
        if (memmem(r->s + r->at, r->n - r->at, end, 2))
            return qr_rx_fail(r, QR_E_UNSUPPORTED, r->at, "POSIX classes as [:alpha:] are not supported: write \\p{L} or a range");
    }
    if (qr_rx_is(r, "&&"))
        return qr_rx_fail(r, QR_E_UNSUPPORTED, r->at, "'&&' in a class is not supported: escape it, or write the class that is meant");
    *out = (struct qr_rx_escaped){.kind = QR_RX_ONE, .rune = qr_rx_next(r)};
    return 0;
}

static void put_member(struct members *m, struct qr_rx_escaped *e)
{
    if (e->kind == QR_RX_ONE)
        qr_runes_add(&m->folded, e->rune, e->rune);
    else
        qr_runes_add_all(e->cased ? &m->folded : &m->plain, e->runes.range, e->runes.n);
    qr_runes_release(&e->runes);
}

/* One member, or two with '-' between them. */
static int read_members(struct qr_rx_reader *r, struct members *m)
{
    struct qr_rx_escaped low = {0}, high = {0};
    const size_t start = r->at;
    int rc = read_member(r, &low);
    if (rc == 0 && qr_rx_is(r, "-") && r->n - r->at > 1 && r->s[r->at + 1] != ']') {
        r->at++;
        rc = read_member(r, &high);
        if (rc == 0 && low.kind == QR_RX_ONE && high.kind == QR_RX_ONE) {
            if (low.rune > high.rune)
                return qr_rx_fail(r, QR_E_INVALID, start, "a range of characters ends before its begin");
            qr_runes_add(&m->folded, low.rune, high.rune);
            return 0;
        }
        if (rc == 0) { /* [\d-x]: three members */
            put_member(m, &high);
            qr_runes_add(&m->folded, '-', '-');
        }
    }
    if (rc == 0)
        put_member(m, &low);
    qr_runes_release(&low.runes);
    qr_runes_release(&high.runes);
    return rc;
}

/* [] and [^] are the empty class and any character in ECMAScript; elsewhere the ']' is a member. */
static int read_first_bracket(struct qr_rx_reader *r, size_t start, bool negated, struct members *m, bool *done)
{
    *done = false;
    if (!qr_rx_is(r, "]"))
        return 0;
    const bool closed_later = memchr(r->s + r->at + 1, ']', r->n - r->at - 1) != NULL;
    r->at++;
    if (r->form == QR_REGEX_TEXT) {
        if (!closed_later)
            return qr_rx_fail(r, QR_E_INVALID, start, "the class '[' is never closed");
        qr_runes_add(&m->folded, ']', ']');
        return 0;
    }
    if (closed_later)
        return qr_rx_fail(r, QR_E_UNSUPPORTED, start, "'[%s]' means two things: write \\] for a bracket in a class", negated ? "^" : "");
    *done = true;
    return 0;
}

int qr_rx_read_class(struct qr_rx_reader *r, int32_t *set)
{
    const size_t start = r->at;
    struct members m = {0};
    bool done;
    QR_ASSERT(r->at < r->n && r->s[r->at] == '[' && set != NULL);
    r->at++;
    const bool negated = qr_rx_take(r, "^");
    int rc = read_first_bracket(r, start, negated, &m, &done);
    while (rc == 0 && !done) {
        if (r->at == r->n)
            rc = qr_rx_fail(r, QR_E_INVALID, start, "the class '[' is never closed");
        else if (qr_rx_take(r, "]"))
            done = true;
        else
            rc = read_members(r, &m);
    }
    if (rc == 0) {
        qr_runes_settle(&m.folded);
        if (r->flags & QR_REGEX_CASELESS)
            qr_runes_fold(&m.folded, &r->folds);
        qr_runes_add_all(&m.folded, m.plain.range, m.plain.n);
        qr_runes_settle(&m.folded);
        if (negated)
            qr_runes_invert(&m.folded);
        *set = qr_rx_intern(r->rx, &m.folded);
    }
    qr_runes_release(&m.folded);
    qr_runes_release(&m.plain);
    return rc;
}
