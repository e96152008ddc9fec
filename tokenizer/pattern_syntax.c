/* pattern_syntax.c - from Oniguruma's Ruby syntax to PCRE2's, refusing what the two read differently. The result
 * matches what the tokenizers library matches, or there is an error. Lengths and nesting are bounded. Pure; runs once
 * per pattern, when a tokenizer is opened. */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/pattern.h"

struct reader {
    const char *s;
    size_t n, at;
    bool in_class;
    struct qr_buf *out;
    struct qr_err *err;
};

static int refuse(const struct reader *r, const char *what)
{
    int shown = r->n > 200 ? 200 : (int)r->n;
    return qr_err_set(r->err, QR_E_UNSUPPORTED, "regular expression \"%.*s\": %s at byte %zu is not supported", shown, r->s,
                      what, r->at);
}

static bool looking_at(const struct reader *r, const char *what)
{
    size_t n = strlen(what);
    return r->n - r->at >= n && memcmp(r->s + r->at, what, n) == 0;
}

static bool is_category(const char *name, size_t n)
{
    static const char *const all[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "L&", "M",  "Mn", "Mc", "Me", "N",  "Nd",
                                      "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc",
                                      "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};
    for (int i = 0; i < QR_COUNT(all); i++)
        if (strlen(all[i]) == n && memcmp(all[i], name, n) == 0)
            return true;
    return false;
}

/* \p{Name}: a general category stays; anything else is a script, which PCRE2 would read as script *extensions*. */
static int property(struct reader *r)
{
    size_t name = r->at + 2;
    if (name >= r->n)
        return refuse(r, "a cut property");
    if (r->s[name] != '{') {
        if (!is_category(r->s + name, 1))
            return refuse(r, "a property without braces");
        qr_buf_put(r->out, r->s + r->at, 3);
        r->at = name + 1;
        return 0;
    }
    bool negated = ++name < r->n && r->s[name] == '^';
    name += negated;
    const char *close = memchr(r->s + name, '}', r->n - name);
    if (!close)
        return refuse(r, "a property without its closing brace");
    size_t n = (size_t)(close - (r->s + name));
    qr_buf_printf(r->out, "\\%c{%s%s%.*s}", r->s[r->at + 1], negated ? "^" : "", is_category(r->s + name, n) ? "" : "sc:",
                  (int)n, r->s + name);
    r->at = name + n + 1;
    return 0;
}

/* \uHHHH, \xHH (below 0x80: above, Oniguruma means a raw byte) and \x{H...}. */
static int code_point(struct reader *r)
{
    if (looking_at(r, "\\x{")) {
        const char *close = memchr(r->s + r->at, '}', r->n - r->at);
        if (!close)
            return refuse(r, "a code point without its closing brace");
        size_t n = (size_t)(close - (r->s + r->at)) + 1;
        qr_buf_put(r->out, r->s + r->at, n);
        r->at += n;
        return 0;
    }
    size_t n = r->s[r->at + 1] == 'u' ? 4 : 2;
    unsigned value = 0;
    if (r->n - r->at < n + 2)
        return refuse(r, "a cut code point");
    for (size_t i = 0; i < n; i++) {
        int digit = qr_hex_digit(r->s[r->at + 2 + i]);
        if (digit < 0)
            return refuse(r, "a code point with a bad digit");
        value = value * 16 + (unsigned)digit;
    }
    if (n == 2 && value >= 0x80)
        return refuse(r, "a raw byte");
    qr_buf_printf(r->out, "\\x{%x}", value);
    r->at += n + 2;
    return 0;
}

struct escape {
    char c;
    const char *outside, *in_class; /* NULL: refused */
};

/* \s is White_Space in Oniguruma, one character less than PCRE2's; its \w has marks and every connector. */
static const struct escape escapes[] = {
    {'s', "\\p{White_Space}", "\\p{White_Space}"},
    {'S', "\\P{White_Space}", "\\P{White_Space}"},
    {'w', "[\\p{L}\\p{M}\\p{N}\\p{Pc}]", "\\p{L}\\p{M}\\p{N}\\p{Pc}"},
    {'W', "[^\\p{L}\\p{M}\\p{N}\\p{Pc}]", NULL},
    {'v', "\\x{b}", "\\x{b}"},
    {'d', "\\d", "\\d"},
    {'D', "\\D", "\\D"},
    {'n', "\\n", "\\n"},
    {'r', "\\r", "\\r"},
    {'t', "\\t", "\\t"},
    {'f', "\\f", "\\f"},
    {'a', "\\a", "\\a"},
    {'e', "\\e", "\\e"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
};

static int escape(struct reader *r)
{
    if (r->at + 1 >= r->n)
        return refuse(r, "a backslash at the end");
    char c = r->s[r->at + 1];
    if (c == 'p' || c == 'P')
        return property(r);
    if (c == 'u' || c == 'x')
        return code_point(r);
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), digit = c >= '0' && c <= '9';
    for (int i = 0; i < QR_COUNT(escapes); i++) {
        const char *as = r->in_class ? escapes[i].in_class : escapes[i].outside;
        if (escapes[i].c != c || !as)
            continue;
        qr_buf_put_str(r->out, as);
        r->at += 2;
        return 0;
    }
    if (letter || digit || (unsigned char)c >= 0x80) {
        const char name[] = {'\\', c, 0};
        return refuse(r, name);
    }
    qr_buf_put(r->out, r->s + r->at, 2);
    r->at += 2;
    return 0;
}

static int in_class(struct reader *r)
{
    char c = r->s[r->at];
    if (c == '[')
        return refuse(r, "a class inside a class");
    if (looking_at(r, "&&"))
        return refuse(r, "the class intersection &&");
    if (c == ']')
        r->in_class = false;
    qr_buf_put_byte(r->out, c);
    r->at++;
    return 0;
}

static int group(struct reader *r)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
    if (looking_at(r, "(*"))
        return refuse(r, "(*");
    if (!looking_at(r, "(?")) {
        qr_buf_put_byte(r->out, r->s[r->at++]);
        return 0;
    }
    for (int i = 0; i < QR_COUNT(known); i++) {
        if (!looking_at(r, known[i]))
            continue;
        qr_buf_put_str(r->out, known[i]);
        r->at += strlen(known[i]);
        return 0;
    }
    if (r->at == 0 && looking_at(r, "(?i)")) {
        qr_buf_put_str(r->out, "(?i)");
        r->at += 4;
        return 0;
    }
    return refuse(r, "this kind of group");
}

/* {n}, {n,} and {n,m} as quantifiers; {,m} and a possessive interval mean different things to the two. */
static int brace(struct reader *r)
{
    size_t i = r->at + 1;
    if (looking_at(r, "{,"))
        return refuse(r, "an interval without its lower bound");
    while (i < r->n && ((r->s[i] >= '0' && r->s[i] <= '9') || r->s[i] == ','))
        i++;
    if (i == r->at + 1 || i >= r->n || r->s[i] != '}')
        return refuse(r, "a brace that is no interval");
    if (i + 1 < r->n && r->s[i + 1] == '+')
        return refuse(r, "a possessive interval");
    qr_buf_put(r->out, r->s + r->at, i + 1 - r->at);
    r->at = i + 1;
    return 0;
}

static int step(struct reader *r)
{
    char c = r->s[r->at];
    if (c == '\\')
        return escape(r);
    if (r->in_class)
        return in_class(r);
    if (c == '(')
        return group(r);
    if (c == '{')
        return brace(r);
    qr_buf_put_byte(r->out, c);
    r->at++;
    if (c != '[')
        return 0;
    r->in_class = true;
    if (r->at < r->n && r->s[r->at] == '^')
        qr_buf_put_byte(r->out, r->s[r->at++]);
    if (r->at < r->n && r->s[r->at] == ']')
        return refuse(r, "a class that begins with ]");
    return 0;
}

int qr_pattern_translate(struct qr_buf *out, const char *regex, size_t len, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(regex != NULL || len == 0);
    struct reader r = {.s = regex, .n = len, .out = out, .err = err};
    while (r.at < r.n) {
        int rc = step(&r);
        if (rc != 0)
            return rc;
    }
    return r.in_class ? refuse(&r, "a class without its closing bracket") : 0;
}
