/* lex.c - template text to tokens, with the white-space rules of trim_blocks and lstrip_blocks. Literals are unescaped
 * as in Python. An error names its line and leaves the parser (ast.h). One thread, when a template is compiled. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/unicode.h"

struct lexer {
    const char *s; /* newlines are all '\n' */
    size_t n, pos;
    size_t line_at; /* where `line` begins */
    size_t seen;    /* lines are counted up to here */
    int32_t line;
    struct qr_jparser *p;
    int32_t n_open;
    char open[QR_JINJA_PARSE_DEPTH_MAX]; /* the brackets that must still be closed */
};

/* The line and column of byte `at`, which never moves backwards. */
static void locate(struct lexer *x, size_t at)
{
    QR_ASSERT(at >= x->seen && at <= x->n);
    for (; x->seen < at; x->seen++) {
        if (x->s[x->seen] == '\n') {
            x->line++;
            x->line_at = x->seen + 1;
        }
    }
}

static int32_t column(const struct lexer *x, size_t at)
{
    return (int32_t)(at - x->line_at) + 1;
}

#define LEX_ERROR(x, at, ...) (locate(x, at), qr_jparse_error((x)->p, (x)->line, column(x, at), __VA_ARGS__))

static char *alloc(struct lexer *x, size_t n)
{
    char *s = qr_arena_try(&x->p->t->arena, n, 1);
    if (!s)
        qr_jparse_fail(x->p, QR_E_TOO_LARGE, "the template needs too much memory");
    return s;
}

static void push(struct lexer *x, enum qr_jtok type, size_t at, const char *text, size_t len)
{
    struct qr_jtokens *v = &x->p->tok;
    locate(x, at);
    v->at = QR_GROW(v->at, v->n, v->cap);
    v->at[v->n++] = (struct qr_jtoken){type, x->line, column(x, at), text, len};
}

static size_t skip_space(const struct lexer *x, size_t i)
{
    for (size_t n; i < x->n && (n = qr_jspace_at(x->s + i, x->n - i)) > 0;)
        i += n;
    return i;
}

/* The end of s[from..to) without the white space behind it. */
static size_t strip_end(const struct lexer *x, size_t from, size_t to)
{
    for (size_t n; (n = qr_jspace_before(x->s + from, to - from)) > 0;)
        to -= n;
    return to;
}

/* What lstrip_blocks leaves of s[from..to), the text before a tag that is no variable. */
static size_t strip_blanks(const struct lexer *x, size_t from, size_t to)
{
    size_t at = to;
    while (at > from && x->s[at - 1] != '\n')
        at--;
    bool line_start = at > from || from == 0 || x->s[from - 1] == '\n';
    return line_start && skip_space(x, at) >= to ? at : to;
}

static bool looking_at(const struct lexer *x, size_t i, const char *what)
{
    size_t n = strlen(what);
    return i <= x->n && x->n - i >= n && memcmp(x->s + i, what, n) == 0;
}

/* The text from..to that stands before a tag whose sign ('-', '+' or another character) follows its two opening characters. */
static void push_data(struct lexer *x, size_t from, size_t to, char sign, bool variable)
{
    if (sign == '-')
        to = strip_end(x, from, to);
    else if (sign != '+' && !variable)
        to = strip_blanks(x, from, to);
    if (to > from)
        push(x, QR_JT_DATA, from, x->s + from, to - from);
}

static char sign_at(const struct lexer *x, size_t i)
{
    return i < x->n && (x->s[i] == '-' || x->s[i] == '+') ? x->s[i] : ' ';
}

/* Behind the end of a block tag or comment: "-" strips all white space, "+" nothing, else one newline goes. */
static size_t after_end(const struct lexer *x, size_t i, char sign)
{
    if (sign == '-')
        return skip_space(x, i);
    return sign != '+' && looking_at(x, i, "\n") ? i + 1 : i;
}

static void comment(struct lexer *x)
{
    size_t start = x->pos + 2;
    if (sign_at(x, start) != ' ')
        start++;
    const char *end = x->n > start ? memmem(x->s + start, x->n - start, "#}", 2) : NULL;
    if (!end)
        LEX_ERROR(x, x->pos, "this comment has no end (#})");
    size_t at = (size_t)(end - x->s);
    x->pos = after_end(x, at + 2, at > start ? sign_at(x, at - 1) : ' ');
}

/* Whether a `raw` tag (word "raw" or "endraw") opens at i; *body is behind its end. */
static bool raw_tag(const struct lexer *x, size_t i, const char *word, size_t *body)
{
    if (!looking_at(x, i, "{%"))
        return false;
    i += 2;
    if (sign_at(x, i) != ' ')
        i++;
    i = skip_space(x, i);
    if (!looking_at(x, i, word))
        return false;
    i = skip_space(x, i + strlen(word));
    bool ends = word[0] == 'e';
    char sign = sign_at(x, i);
    if (sign == '+' && !ends)
        return false;
    if (!looking_at(x, i + (sign != ' '), "%}"))
        return false;
    i += 2 + (sign != ' ');
    *body = ends || sign == '-' ? after_end(x, i, sign) : i;
    return true;
}

static void raw_block(struct lexer *x, size_t body)
{
    size_t i = body, after = 0;
    for (;; i++) {
        const char *p = i < x->n ? memmem(x->s + i, x->n - i, "{%", 2) : NULL;
        if (!p)
            LEX_ERROR(x, x->pos, "this raw block has no endraw");
        i = (size_t)(p - x->s);
        if (raw_tag(x, i, "endraw", &after))
            break;
    }
    push_data(x, body, i, sign_at(x, i + 2), false);
    x->pos = after;
}

/* ---- inside a tag ---- */

static size_t digits(const struct lexer *x, size_t i)
{
    size_t from = i;
    while (i < x->n && (x->s[i] >= '0' && x->s[i] <= '9' ? true : i > from && x->s[i] == '_' && i + 1 < x->n &&
                                                                    x->s[i + 1] >= '0' && x->s[i + 1] <= '9'))
        i++;
    return i;
}

static bool digit_of(char c, int base)
{
    const int32_t digit = qr_hex_digit(c);
    return digit >= 0 && digit < base;
}

/* The end of a number at i that starts with 0b, 0o or 0x; i when it does not. */
static size_t prefixed(const struct lexer *x, size_t i)
{
    char letter = i + 1 < x->n && x->s[i] == '0' ? (char)(x->s[i + 1] | 32) : ' ';
    int base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 0;
    if (base == 0)
        return i;
    size_t at = i + 2;
    for (;;) {
        size_t next = at + (at < x->n && x->s[at] == '_');
        if (next >= x->n || !digit_of(x->s[next], base))
            break;
        at = next + 1;
    }
    return at > i + 2 ? at : i;
}

static void number(struct lexer *x)
{
    size_t from = x->pos, end = prefixed(x, from);
    enum qr_jtok type = QR_JT_INT;
    if (end == from) {
        size_t whole = digits(x, from), frac = whole;
        bool after_dot = from > 0 && x->s[from - 1] == '.';
        end = whole;
        if (frac < x->n && x->s[frac] == '.' && digits(x, frac + 1) > frac + 1)
            frac = digits(x, frac + 1);
        size_t e = frac;
        if (e < x->n && (x->s[e] | 32) == 'e') {
            e += 1 + (sign_at(x, e + 1) != ' ');
            e = digits(x, e) > e ? digits(x, e) : frac;
        }
        if (!after_dot && e > whole) {
            end = e;
            type = QR_JT_FLOAT;
        } else if (x->s[from] == '0') { /* zeros only: 012 is two numbers, as in the reference */
            for (end = from + 1; end < whole && (x->s[end] == '0' || x->s[end] == '_');)
                end++;
        }
    }
    push(x, type, from, x->s + from, end - from);
    x->pos = end;
}

static size_t name_end(const struct lexer *x, size_t i)
{
    while (i < x->n) {
        uint32_t cp;
        int32_t len = qr_utf8_decode(x->s + i, x->n - i, &cp);
        if (len <= 0 || !qr_jword(cp))
            break;
        i += (size_t)len;
    }
    return i;
}

/* The number that n hexadecimal digits at i write; false when there are fewer. */
static bool hex(const char *s, size_t len, size_t i, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t k = 0; k < n; k++) {
        const int32_t digit = i + k < len ? qr_hex_digit(s[i + k]) : -1;
        if (digit < 0)
            return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* \xHH, \uHHHH, \UHHHHHHHH at s[i] (the letter). Returns how many bytes it takes, 0 when malformed. */
static size_t hex_escape(const char *s, size_t len, size_t i, uint32_t *cp)
{
    size_t n = s[i] == 'x' ? 2 : s[i] == 'u' ? 4 : 8;
    if (!hex(s, len, i + 1, n, cp))
        return 0;
    uint32_t low;
    if (*cp >= 0xD800 && *cp < 0xDC00 && i + 2 + n < len && s[i + 1 + n] == '\\' && s[i + 2 + n] == 'u' &&
        hex(s, len, i + 3 + n, 4, &low) && low >= 0xDC00 && low < 0xE000) {
        *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
        return 1 + n + 6;
    }
    if (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp < 0xE000))
        return 0;
    return 1 + n;
}

/* Resolves one escape; i is behind the backslash. Returns the bytes it takes, 0 when it is malformed. */
static size_t escape(const char *s, size_t len, size_t i, char *out, size_t *n_out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = s[i] ? strchr(from, s[i]) : NULL;
    *n_out = 1;
    if (simple) {
        out[0] = to[simple - from];
        return 1;
    }
    if (s[i] == '\n') {
        *n_out = 0;
        return 1;
    }
    uint32_t cp = 0;
    size_t n = 0;
    if (s[i] == 'x' || s[i] == 'u' || s[i] == 'U') {
        n = hex_escape(s, len, i, &cp);
        if (n == 0)
            return 0;
    } else if (s[i] >= '0' && s[i] <= '7') {
        for (; n < 3 && i + n < len && s[i + n] >= '0' && s[i + n] <= '7'; n++)
            cp = cp * 8 + (uint32_t)(s[i + n] - '0');
    } else {
        out[0] = '\\'; /* an unknown escape stays as it is: its second character follows as ordinary text */
        return s[i] == 'N' ? 0 : SIZE_MAX;
    }
    *n_out = (size_t)qr_utf8_encode(cp, out);
    return n;
}

static void string(struct lexer *x)
{
    char quote = x->s[x->pos];
    size_t from = x->pos + 1, end = from;
    while (end < x->n && x->s[end] != quote)
        end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n)
        LEX_ERROR(x, x->pos, "this string has no closing %c", quote);
    const char *s = x->s + from;
    size_t len = end - from, n = 0;
    if (memchr(s, '\\', len)) {
        char *out = alloc(x, len * 2 + 4); /* an octal escape \7 of two bytes may be two bytes long, no escape grows */
        for (size_t i = 0; i < len;) {
            size_t n_out = 1, took;
            if (s[i] != '\\') {
                out[n++] = s[i++];
                continue;
            }
            took = escape(s, len, i + 1, out + n, &n_out);
            if (took == 0)
                LEX_ERROR(x, from + i, "this escape in a string is malformed");
            n += n_out;
            i += took == SIZE_MAX ? 1 : 1 + took;
        }
        s = out;
        len = n;
    }
    push(x, QR_JT_STRING, x->pos, s, len);
    x->pos = end + 1;
}

static const struct {
    char text[3];
    uint8_t type;
} operators[] = {
    {"//", QR_JT_FLOORDIV}, {"**", QR_JT_POW}, {"==", QR_JT_EQ}, {"!=", QR_JT_NE}, {">=", QR_JT_GE}, {"<=", QR_JT_LE},
    {"+", QR_JT_ADD}, {"-", QR_JT_SUB}, {"/", QR_JT_DIV}, {"*", QR_JT_MUL}, {"%", QR_JT_MOD}, {"~", QR_JT_TILDE},
    {"[", QR_JT_LBRACKET}, {"]", QR_JT_RBRACKET}, {"(", QR_JT_LPAREN}, {")", QR_JT_RPAREN}, {"{", QR_JT_LBRACE},
    {"}", QR_JT_RBRACE}, {">", QR_JT_GT}, {"<", QR_JT_LT}, {"=", QR_JT_ASSIGN}, {".", QR_JT_DOT}, {":", QR_JT_COLON},
    {"|", QR_JT_PIPE}, {",", QR_JT_COMMA}, {";", QR_JT_SEMICOLON},
};

/* Keeps the brackets in balance: only outside of them can a tag end. */
static void balance(struct lexer *x, char ch)
{
    char want = ch == '(' ? ')' : ch == '[' ? ']' : ch == '{' ? '}' : 0;
    if (want) {
        if (x->n_open == QR_COUNT(x->open))
            LEX_ERROR(x, x->pos, "brackets are nested deeper than %d", QR_COUNT(x->open));
        x->open[x->n_open++] = want;
    } else if (ch == ')' || ch == ']' || ch == '}') {
        if (x->n_open == 0)
            LEX_ERROR(x, x->pos, "unexpected '%c'", ch);
        if (x->open[--x->n_open] != ch)
            LEX_ERROR(x, x->pos, "unexpected '%c', expected '%c'", ch, x->open[x->n_open]);
    }
}

static void operator(struct lexer *x)
{
    for (int i = 0; i < QR_COUNT(operators); i++) {
        if (!looking_at(x, x->pos, operators[i].text))
            continue;
        size_t n = strlen(operators[i].text);
        if (n == 1)
            balance(x, x->s[x->pos]);
        push(x, (enum qr_jtok)operators[i].type, x->pos, x->s + x->pos, n);
        x->pos += n;
        return;
    }
    uint32_t cp = (unsigned char)x->s[x->pos];
    if (cp >= 0x20 && cp < 0x7f)
        LEX_ERROR(x, x->pos, "unexpected character '%c'", (char)cp);
    qr_utf8_decode(x->s + x->pos, x->n - x->pos, &cp);
    LEX_ERROR(x, x->pos, "unexpected character U+%04X", cp);
}

/* The end of the tag when it stands here; 0 when it does not. */
static size_t tag_end(const struct lexer *x, bool variable)
{
    char sign = sign_at(x, x->pos);
    size_t at = x->pos + (sign != ' ');
    if (x->n_open > 0 || !looking_at(x, at, variable ? "}}" : "%}") || (variable && sign == '+'))
        return 0;
    if (variable)
        return sign == '-' ? skip_space(x, at + 2) : at + 2;
    return after_end(x, at + 2, sign);
}

static void tag(struct lexer *x, bool variable)
{
    size_t start = x->pos;
    push(x, variable ? QR_JT_VAR_BEGIN : QR_JT_BLOCK_BEGIN, start, x->s + start, 2);
    x->pos += 2 + (sign_at(x, start + 2) != ' ');
    x->n_open = 0;
    int32_t line = x->line;
    for (;;) {
        x->pos = skip_space(x, x->pos);
        if (x->pos >= x->n)
            LEX_ERROR(x, x->n, "the tag opened on line %d has no end (%s)", line, variable ? "}}" : "%}");
        size_t end = tag_end(x, variable);
        if (end) {
            push(x, variable ? QR_JT_VAR_END : QR_JT_BLOCK_END, x->pos, x->s + x->pos, 2);
            x->pos = end;
            return;
        }
        char ch = x->s[x->pos];
        size_t word = name_end(x, x->pos);
        if (ch >= '0' && ch <= '9') {
            number(x);
        } else if (word > x->pos) {
            push(x, QR_JT_NAME, x->pos, x->s + x->pos, word - x->pos);
            x->pos = word;
        } else if (ch == '\'' || ch == '"') {
            string(x);
        } else {
            operator(x);
        }
    }
}

/* The next place where a tag or comment opens, or the end of the text. */
static size_t next_tag(const struct lexer *x)
{
    for (size_t i = x->pos; i + 1 < x->n; i++) {
        const char *p = memchr(x->s + i, '{', x->n - 1 - i);
        if (!p)
            break;
        i = (size_t)(p - x->s);
        if (p[1] == '%' || p[1] == '{' || p[1] == '#')
            return i;
    }
    return x->n;
}

static void lex_all(struct lexer *x)
{
    for (;;) {
        size_t at = next_tag(x), body = 0;
        if (at == x->n) {
            if (x->pos < x->n)
                push(x, QR_JT_DATA, x->pos, x->s + x->pos, x->n - x->pos);
            push(x, QR_JT_EOF, x->n, x->s + x->n, 0);
            return;
        }
        bool variable = x->s[at + 1] == '{';
        push_data(x, x->pos, at, sign_at(x, at + 2), variable);
        x->pos = at;
        if (x->s[at + 1] == '#')
            comment(x);
        else if (raw_tag(x, at, "raw", &body))
            raw_block(x, body);
        else
            tag(x, variable);
    }
}

void qr_jlex(struct qr_jparser *p, const char *text, size_t len)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(text != NULL || len == 0);
    struct lexer x = {.line = 1, .p = p};
    if (len > QR_JINJA_TEXT_MAX)
        qr_jparse_fail(p, QR_E_TOO_LARGE, "a chat template of %zu bytes is larger than the %zu allowed", len,
                       QR_JINJA_TEXT_MAX);
    size_t good = len ? qr_utf8_valid_prefix(text, len) : 0;
    if (good < len)
        qr_jparse_fail(p, QR_E_INVALID, "the template is no valid UTF-8 at byte %zu", good);
    char *s = alloc(&x, len + 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            continue;
        s[x.n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (x.n > 0 && s[x.n - 1] == '\n')
        x.n--;
    s[x.n] = 0;
    x.s = s;
    lex_all(&x);
}
