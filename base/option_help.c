/* What the table says to people: --help, --print-config and the nearest name. Lines fit the terminal's columns; the
 * brief help has at most 25 lines. Nothing about a setting is written twice: rows are the only source. Pure; any
 * thread. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/option_set.h"
#include "base/utf8.h"

#define LEFT_COLUMN 30 /* where the help text begins */
#define TEXT_MIN 30    /* the narrowest it may get: names of variables stay whole */
#define NEAR_NAME_MAX 64

/* ---- --help ---- */

static int32_t width_of(const char *s, size_t n)
{
    int32_t w = 0;
    for (size_t i = 0; i < n; i++)
        w += ((unsigned char)s[i] & 0xC0) != 0x80;
    return w;
}

static void put_spaces(struct qr_buf *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        qr_buf_put_byte(out, ' ');
}

/* Bytes of a word of n bytes that has at most `room` columns, or else of as many of its choices (a|b|c) as have, if one has. */
static size_t word_part(const char *word, size_t n, int32_t room)
{
    size_t part = 0;
    if (width_of(word, n) <= room)
        return n;
    for (size_t i = 1; i <= n; i++)
        if (word[i - 1] == '|' && width_of(word, i) <= room)
            part = i;
    return part ? part : n;
}

/* Words of `text` from column LEFT_COLUMN on; the cursor stands at column `at`. Ends the line. */
static void put_wrapped(struct qr_buf *out, const char *text, int32_t at, int32_t columns)
{
    if (at > LEFT_COLUMN - 2 && at > 0) {
        qr_buf_put_byte(out, '\n');
        at = 0;
    }
    put_spaces(out, LEFT_COLUMN - at);
    at = LEFT_COLUMN;
    bool first = true;
    for (const char *p = text + strspn(text, " \n"); *p; p += strspn(p, " \n")) {
        size_t len = word_part(p, strcspn(p, " \n"), columns - LEFT_COLUMN);
        int32_t w = width_of(p, len);
        if (!first && at + 1 + w > columns) {
            qr_buf_put_byte(out, '\n');
            put_spaces(out, LEFT_COLUMN);
            at = LEFT_COLUMN;
            first = true;
        }
        if (!first)
            qr_buf_put_byte(out, ' ');
        qr_buf_put(out, p, len);
        at += w + !first;
        first = false;
        p += len;
    }
    qr_buf_put_byte(out, '\n');
}

static void put_entry(struct qr_buf *out, char letter, const char *spelling, const char *arg, const char *text, int32_t columns)
{
    size_t start = out->len;
    if (letter)
        qr_buf_printf(out, "  -%c, --%s", letter, spelling);
    else
        qr_buf_printf(out, "      --%s", spelling);
    if (arg)
        qr_buf_printf(out, " %s", arg);
    put_wrapped(out, text, width_of(out->data + start, out->len - start), columns);
}

void qr_options_help_entry(struct qr_buf *out, const char *head, const char *text, int32_t columns)
{
    QR_ASSERT(out != NULL && head != NULL);
    QR_ASSERT(text != NULL && columns > LEFT_COLUMN);
    qr_buf_put_str(out, head);
    put_wrapped(out, text, width_of(head, strlen(head)), columns);
}

static const char *default_arg(enum qr_option_type type)
{
    static const char *const arg[] = {[QR_OPT_INT] = "N",      [QR_OPT_BYTES] = "BYTES", [QR_OPT_TIME] = "TIME", [QR_OPT_FLOAT] = "X",
                                      [QR_OPT_STR] = "STRING", [QR_OPT_ENUM] = "CHOICE", [QR_OPT_LIST] = "STRING"};
    return (int)type < QR_COUNT(arg) ? arg[type] : NULL;
}

void qr_option_facts(struct qr_buf *out, const struct qr_option *o, const char *variable)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(o != NULL);
    const size_t start = out->len;
    if (o->builtin)
        qr_buf_printf(out, "default %s, ", *o->builtin ? o->builtin : "empty");
    if (o->type == QR_OPT_ENUM)
        qr_buf_printf(out, "one of %s, ", o->choices);
    if (o->type == QR_OPT_LIST)
        qr_buf_put_str(out, "may be repeated, ");
    if (o->min != 0 || o->max != 0) {
        qr_option_format_bound(out, o, o->min);
        qr_buf_put_str(out, " to ");
        qr_option_format_bound(out, o, o->max);
        qr_buf_put_str(out, ", ");
    }
    qr_buf_put_str(out, variable ? variable : "");
    if (!variable && out->len > start)
        out->data[out->len -= 2] = 0; /* the last comma */
}

/* " [default 8000, 1 to 65535, QUIRE_PORT]"; nothing where there is no fact. */
static void put_facts(struct qr_buf *out, const struct qr_option *o, const char *variable)
{
    struct qr_buf facts = {0};
    qr_option_facts(&facts, o, variable);
    if (facts.len > 0)
        qr_buf_printf(out, " [%s]", facts.data);
    qr_buf_release(&facts);
}

static void put_setting_row(struct qr_buf *out, const struct qr_option *o, const char *command, int32_t columns)
{
    struct qr_buf text = {0};
    size_t start = out->len;
    qr_buf_put_str(&text, o->help ? o->help : "");
    put_facts(&text, o, NULL);
    qr_buf_printf(out, "  %s", o->name);
    if (o->type != QR_OPT_FLAG)
        qr_buf_printf(out, " %s", o->arg ? o->arg : default_arg(o->type));
    put_wrapped(out, text.data, width_of(out->data + start, out->len - start), columns);
    qr_buf_release(&text);
}

const char *qr_option_arg(const struct qr_option *o)
{
    QR_ASSERT(o != NULL);
    return o->type == QR_OPT_FLAG ? NULL : o->arg ? o->arg : default_arg(o->type);
}

static void put_row(struct qr_buf *out, const struct qr_option *o, const char *command, int32_t columns)
{
    struct qr_buf text = {0};
    char variable[QR_OPTION_VARIABLE_MAX], spelling[QR_OPTION_NAME_MAX + 8];
    qr_options_variable(variable, command, o->name);
    qr_buf_put_str(&text, o->help ? o->help : "");
    put_facts(&text, o, variable);
    snprintf(spelling, sizeof spelling, "%s%s", o->type == QR_OPT_FLAG ? "[no-]" : "", o->name);
    put_entry(out, o->letter, spelling, qr_option_arg(o), text.data, columns);
    qr_buf_release(&text);
}

static void put_brief_row(struct qr_buf *out, const struct qr_option *o, int32_t columns)
{
    struct qr_buf text = {0};
    size_t n = strlen(o->help);
    for (size_t i = n; i > 0; i--)
        if (strchr(".;", o->help[i - 1]) && (o->help[i] == ' ' || o->help[i] == 0))
            n = i - 1;
    qr_buf_put(&text, o->help, n);
    if (o->builtin && *o->builtin && o->type != QR_OPT_FLAG)
        qr_buf_printf(&text, " [default %s]", o->builtin);
    put_entry(out, o->letter, o->name, qr_option_arg(o), text.data, columns);
    qr_buf_release(&text);
}

const char *qr_option_group(const struct qr_option *o)
{
    QR_ASSERT(o != NULL);
    return o->group ? o->group : "Options";
}

static bool is_first_of_group(const struct qr_option *table, int32_t row)
{
    for (int32_t i = 0; i < row; i++)
        if (strcmp(qr_option_group(&table[i]), qr_option_group(&table[row])) == 0)
            return false;
    return true;
}

/* Group by group. */
static void put_rows(struct qr_buf *out, const struct qr_option *table, int32_t n, const char *command, int32_t columns,
                     void (*put)(struct qr_buf *, const struct qr_option *, const char *, int32_t))
{
    for (int32_t g = 0; g < n; g++) {
        if (!is_first_of_group(table, g))
            continue;
        qr_buf_printf(out, "%s:\n", qr_option_group(&table[g]));
        for (int32_t i = g; i < n; i++)
            if (strcmp(qr_option_group(&table[i]), qr_option_group(&table[g])) == 0)
                put(out, &table[i], command, columns);
        qr_buf_put_byte(out, '\n');
    }
}

static int32_t wide_enough(int32_t columns)
{
    return columns < LEFT_COLUMN + TEXT_MIN ? LEFT_COLUMN + TEXT_MIN : columns;
}

int32_t qr_options_columns(void)
{
    struct winsize ws;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= 40 ? ws.ws_col : 100;
}

/* Behind a line that was too long: the next one is more of the same paragraph. */
static bool goes_on(const char *next)
{
    return *next && *next != '\n' && *next != ' ' && strncmp(next, "quire ", 6) != 0;
}

/* One line, the cursor standing at column *at; true when it took more than one. */
static bool put_line_words(struct qr_buf *out, const char *line, size_t n, int32_t *at, int32_t columns)
{
    const int32_t indent = (int32_t)strspn(line, " ");
    bool cut = false;
    for (const char *p = line; p < line + n;) { /* a word with the spaces before it */
        const size_t gap = strspn(p, " "), len = strcspn(p + gap, " \n");
        const bool ends = *at > indent && *at + width_of(p, gap + len) > columns;
        if (ends)
            qr_buf_put_byte(out, '\n');
        *at = ends ? 0 : *at;
        put_spaces(out, ends ? indent : (int32_t)gap);
        qr_buf_put(out, p + gap, len);
        *at += (ends ? indent : (int32_t)gap) + width_of(p + gap, len);
        cut |= ends;
        p += gap + len;
    }
    return cut;
}

void qr_options_help_text(struct qr_buf *out, const char *text, int32_t columns)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(text != NULL && columns > 0);
    int32_t at = 0;
    bool cut = false;
    while (*text) {
        const size_t n = strcspn(text, "\n");
        cut |= put_line_words(out, text, n, &at, columns);
        text += n + (text[n] == '\n');
        if (cut && n > 0 && goes_on(text)) {
            const bool fits = at + 1 + width_of(text, strcspn(text, " \n")) <= columns;
            qr_buf_put_byte(out, fits ? ' ' : '\n');
            at = fits ? at + 1 : 0;
            continue;
        }
        qr_buf_put_byte(out, '\n');
        at = 0;
        cut = false;
    }
}

void qr_options_help_settings(struct qr_buf *out, const struct qr_option *table, int32_t n, int32_t columns)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(table != NULL && n > 0);
    put_rows(out, table, n, NULL, wide_enough(columns), put_setting_row);
}

void qr_options_help_brief(struct qr_buf *out, const struct qr_option *table, int32_t n, int32_t columns)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(table != NULL && n > 0);
    for (int32_t i = 0; i < n; i++)
        if (table[i].brief)
            put_brief_row(out, &table[i], wide_enough(columns));
}

/* The units of those kinds of numbers that the table has. */
static void put_units(struct qr_buf *out, const struct qr_option *table, int32_t n, int32_t columns)
{
    static const struct {
        enum qr_option_type type;
        const char *head, *text;
    } kind[] = {{QR_OPT_INT, "  Whole numbers", "4096, 4k (4000) or 4ki (4096): k, m, g are powers of 1000, ki, mi, gi of 1024."},
                {QR_OPT_BYTES, "  Sizes in bytes",
                 "512, 64k (64000), 64KiB (65536) or 8GiB: k, MB, GB, TB are powers of 1000, KiB, MiB, GiB, TiB of 1024."},
                {QR_OPT_TIME, "  Times", "250ms, 30s, 2m or 1h; without a unit seconds."}};
    bool any = false;
    for (int k = 0; k < QR_COUNT(kind); k++) {
        int32_t i = 0;
        while (i < n && table[i].type != kind[k].type)
            i++;
        if (i == n)
            continue;
        qr_buf_put_str(out, any ? "" : "Numbers:\n");
        qr_options_help_entry(out, kind[k].head, kind[k].text, columns);
        any = true;
    }
    qr_buf_put_str(out, any ? "\n" : "");
}

void qr_options_help(struct qr_buf *out, const struct qr_option *table, int32_t n, const char *command, int32_t columns)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(table != NULL && n > 0);
    columns = wide_enough(columns);
    put_rows(out, table, n, command, columns, put_row);
    put_units(out, table, n, columns);
    qr_buf_put_str(out, "Configuration:\n");
    put_entry(out, 0, "config", "FILE", "Read settings from a YAML file. Flags win over the environment, the environment over the "
              "file. [QUIRE_CONFIG]", columns);
    put_entry(out, 0, "print-config", NULL, "Print every setting with its source, as a configuration file, and exit.", columns);
    put_entry(out, 0, "check-config", NULL, "Check the settings and exit.", columns);
    put_entry(out, 0, "help", NULL, "Print this and exit. -h is the short form: the most used options.", columns);
}

/* ---- --print-config ---- */

/* What a YAML reader takes as it stands, line separators apart (YAML 1.1, sections 5.1 and 5.4). */
static bool is_printable(uint32_t cp)
{
    if (cp < 0xA0)
        return cp >= 0x20 && cp < 0x7F;
    return cp != 0x2028 && cp != 0x2029 && cp != 0xFEFF && cp != 0xFFFE && cp != 0xFFFF;
}

/* In double quotes, escaped where needed; bytes that are no UTF-8 become U+FFFD. */
static void put_yaml_str(struct qr_buf *out, const char *s)
{
    size_t n = strlen(s);
    qr_buf_put_byte(out, '"');
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0xFFFD;
        int32_t len = qr_utf8_decode(s + i, n - i, &cp);
        if (cp == '"' || cp == '\\')
            qr_buf_printf(out, "\\%c", (char)cp);
        else if (len > 0 && is_printable(cp))
            qr_buf_put(out, s + i, (size_t)len);
        else if (cp == '\n')
            qr_buf_put(out, "\\n", 2);
        else
            qr_buf_printf(out, cp > 0xFFFF ? "\\U%08X" : "\\u%04X", cp);
        i += len > 0 ? (size_t)len : 1;
    }
    qr_buf_put_byte(out, '"');
}

/* For comments: one line, nothing that a YAML reader would stop at. */
static void put_plain(struct qr_buf *out, const char *s)
{
    for (size_t n = strlen(s); n > 0;) {
        uint32_t cp = 0;
        int32_t len = qr_utf8_decode(s, n, &cp);
        if (len > 0 && is_printable(cp))
            qr_buf_put(out, s, (size_t)len);
        else
            qr_buf_put_byte(out, '?');
        s += len > 0 ? len : 1;
        n -= len > 0 ? (size_t)len : 1;
    }
}

bool qr_option_is_secret(const char *name, size_t n)
{
    QR_ASSERT(name != NULL);
    return (n >= 3 && memcmp(name + n - 3, "key", 3) == 0) || (n >= 4 && memcmp(name + n - 4, "keys", 4) == 0);
}

static void put_list(struct qr_buf *out, const struct qr_str_list *list)
{
    qr_buf_put_byte(out, '[');
    for (int32_t i = 0; i < list->n; i++) {
        if (i)
            qr_buf_put_str(out, ", ");
        put_yaml_str(out, list->item[i]);
    }
    qr_buf_put_byte(out, ']');
}

/* One setting. A secret that is set is shown as a comment, so that the output read back does not make "***" the key. */
static void put_setting(struct qr_buf *out, const struct qr_option *o, const void *field)
{
    struct qr_str_list list = {0};
    const char *str = NULL;
    if (o->type == QR_OPT_LIST)
        memcpy(&list, field, sizeof list);
    else if (o->type == QR_OPT_STR)
        memcpy(&str, field, sizeof str);
    bool text = o->type == QR_OPT_STR || o->type == QR_OPT_LIST, set = !text || str || list.n > 0;
    if (set && qr_option_is_secret(o->name, strlen(o->name))) {
        qr_buf_printf(out, "#%s: ***", o->name);
        return;
    }
    qr_buf_printf(out, "%s: ", o->name);
    if (o->type == QR_OPT_LIST)
        put_list(out, &list);
    else if (str)
        put_yaml_str(out, str);
    else if (text)
        qr_buf_put_str(out, "null");
    else
        qr_option_format(out, o, field);
}

void qr_options_print(struct qr_buf *out, const struct qr_option_set *s)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL);
    for (int32_t g = 0; g < s->n; g++) {
        if (!is_first_of_group(s->table, g))
            continue;
        qr_buf_printf(out, "%s# %s\n", g ? "\n" : "", qr_option_group(&s->table[g]));
        for (int32_t i = g; i < s->n; i++) {
            const struct qr_option *o = &s->table[i];
            if (strcmp(qr_option_group(o), qr_option_group(&s->table[g])) != 0)
                continue;
            put_setting(out, o, (const char *)s->target + o->offset);
            qr_buf_put_str(out, "  # ");
            put_plain(out, s->origin[i].label ? s->origin[i].label : "unread");
            qr_buf_put_byte(out, '\n');
        }
    }
}

/* ---- nearest name ---- */

/* Names differ in nothing that matters when only case or the kind of dash differs. */
static char folded(char c)
{
    return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment). */
static int distance(const char *a, int n_a, const char *b, int n_b)
{
    int row[3][NEAR_NAME_MAX + 1];
    for (int j = 0; j <= n_b; j++)
        row[0][j] = j;
    for (int i = 1; i <= n_a; i++) {
        int *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= n_b; j++) {
            char x = folded(a[i - 1]), y = folded(b[j - 1]);
            int best = up[j - 1] + (x != y);
            if (up[j] + 1 < best)
                best = up[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == folded(b[j - 2]) && y == folded(a[i - 2]) && up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[n_a % 3][n_b];
}

const char *qr_nearest(const char *name, const char *const *known, int32_t n)
{
    QR_ASSERT(name != NULL);
    QR_ASSERT(known != NULL || n == 0);
    size_t len = strlen(name);
    if (len == 0 || len > NEAR_NAME_MAX)
        return NULL;
    int allowed = ((int)len + 2) / 3, best = allowed + 1;
    const char *near = NULL, *longer = NULL;
    for (int32_t i = 0; i < n; i++) {
        size_t len_known = strlen(known[i]);
        if (len_known > NEAR_NAME_MAX)
            continue;
        int d = distance(name, (int)len, known[i], (int)len_known);
        if (d < best && d < (int)len) {
            best = d;
            near = known[i];
        }
        if (!longer && len >= 3 && len_known > len && distance(name, (int)len, known[i], (int)len) == 0)
            longer = known[i];
    }
    return near ? near : longer;
}
