/* The option set: where values come from and which source wins. A value keeps its source: flag, variable, file,
 * built-in, in this order. Unknown names are errors with the nearest known one. The set owns all texts that it hands
 * out. One thread, at start. */
#include "base/option.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/option_set.h"

#define STRINGS_MAX_BYTES ((size_t)64 << 20) /* arguments and environment are a few MiB at most, a file is 1 MiB */

/* Flags that every table has. They are no rows: they say what to do, not how. */
enum verb { VERB_NONE, VERB_HELP, VERB_BRIEF, VERB_PRINT, VERB_CHECK, VERB_CONFIG };
static const struct {
    const char *name;
    enum verb verb;
} verbs[] = {{"help", VERB_HELP}, {"print-config", VERB_PRINT}, {"check-config", VERB_CHECK}, {"config", VERB_CONFIG}};

/* A flag that was read but not yet stored: the file and the environment come first. */
struct flag {
    int32_t row;
    const char *value, *label; /* borrowed from argv or the arena */
};

struct reading {
    struct qr_option_set *s;
    char **argv; /* borrowed */
    int argc, at;
    struct flag *flag; /* owned [argc] */
    int32_t n_flags;
    const char *config, *config_label; /* NULL: none named */
};

/* ---- the set ---- */

static void check_row(const struct qr_option *o)
{
    QR_ASSERT(o->name != NULL && strlen(o->name) > 0 && strlen(o->name) <= QR_OPTION_NAME_MAX);
    QR_ASSERT(o->type != QR_OPT_ENUM || o->choices != NULL);
    QR_ASSERT(o->builtin != NULL || o->type == QR_OPT_STR || o->type == QR_OPT_LIST);
    QR_ASSERT(o->max != 0 || (o->type != QR_OPT_BYTES && o->type != QR_OPT_TIME)); /* which are never below 0 */
    QR_ASSERT(o->letter != 'h');                                                   /* the short help's */
    for (int i = 0; i < QR_COUNT(verbs); i++)
        QR_ASSERT(strcmp(o->name, verbs[i].name) != 0);
}

struct qr_option_set *qr_options_new(const struct qr_option *table, int32_t n, const char *command, void *target)
{
    QR_ASSERT(table != NULL && n > 0);
    QR_ASSERT(target != NULL);
    for (int32_t i = 0; i < n; i++)
        check_row(&table[i]);
    struct qr_option_set *s = qr_alloc(1, sizeof *s);
    s->table = table;
    s->n = n;
    s->command = command;
    s->target = target;
    s->origin = qr_alloc((size_t)n, sizeof *s->origin);
    qr_arena_init(&s->strings, STRINGS_MAX_BYTES);
    return s;
}

void qr_options_free(struct qr_option_set *s)
{
    if (!s)
        return;
    qr_arena_release(&s->strings);
    qr_free(s->origin);
    qr_free(s->args);
    qr_free(s);
}

static bool same_name(const char *a, const char *b, size_t len_b)
{
    if (strlen(a) != len_b)
        return false;
    for (size_t i = 0; i < len_b; i++)
        if (a[i] != (b[i] == '_' ? '-' : b[i]))
            return false;
    return true;
}

int32_t qr_option_row(const struct qr_option_set *s, const char *name, size_t len)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(name != NULL);
    for (int32_t i = 0; i < s->n; i++)
        if (same_name(s->table[i].name, name, len))
            return i;
    return -1;
}

void qr_options_variable(char out[QR_OPTION_VARIABLE_MAX], const char *command, const char *name)
{
    QR_ASSERT(out != NULL && name != NULL);
    const bool plain = !command || strcmp(command, "serve") == 0;
    const int n = snprintf(out, QR_OPTION_VARIABLE_MAX, "QUIRE_%s%s%s", plain ? "" : command, plain ? "" : "_", name);
    QR_ASSERT(n < QR_OPTION_VARIABLE_MAX);
    for (; *out; out++)
        *out = *out == '-' || *out == ' ' ? '_' : (char)toupper((unsigned char)*out);
}

const char *qr_option_keep(struct qr_option_set *s, const char *text, size_t n)
{
    QR_ASSERT(s != NULL && (text != NULL || n == 0));
    char *copy = qr_arena_alloc(&s->strings, n + 1, 1);
    if (n)
        memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

static void *field_of(const struct qr_option_set *s, int32_t row)
{
    QR_ASSERT(row >= 0 && row < s->n);
    return (char *)s->target + s->table[row].offset;
}

int qr_option_assign(struct qr_option_set *s, int32_t row, const char *text, struct qr_option_origin origin, struct qr_err *err)
{
    QR_ASSERT(s != NULL && text != NULL);
    const struct qr_option *o = &s->table[row];
    QR_ASSERT(o->type != QR_OPT_LIST);
    char where[600];
    if (origin.source == QR_FROM_FILE)
        snprintf(where, sizeof where, "%s: %s", origin.label, o->name);
    else
        snprintf(where, sizeof where, "%s", origin.label);
    int rc = qr_option_parse(o, text, where, field_of(s, row), err);
    if (!rc)
        s->origin[row] = origin;
    return rc;
}

void qr_option_assign_list(struct qr_option_set *s, int32_t row, const char *const *item, int32_t n,
                           struct qr_option_origin origin)
{
    QR_ASSERT(s != NULL && s->table[row].type == QR_OPT_LIST);
    QR_ASSERT(n >= 0 && (item != NULL || n == 0));
    struct qr_str_list list = {.item = qr_arena_alloc(&s->strings, (size_t)n * sizeof *item + 1, sizeof *item), .n = n};
    if (n)
        memcpy(list.item, item, (size_t)n * sizeof *item);
    memcpy(field_of(s, row), &list, sizeof list);
    s->origin[row] = origin;
}

void qr_option_clear(struct qr_option_set *s, int32_t row, struct qr_option_origin origin)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->table[row].type == QR_OPT_STR || s->table[row].type == QR_OPT_LIST);
    const char *none = NULL;
    if (s->table[row].type == QR_OPT_LIST)
        qr_option_assign_list(s, row, NULL, 0, origin);
    else
        memcpy(field_of(s, row), &none, sizeof none);
    s->origin[row] = origin;
}

const char *qr_option_nearest(const struct qr_option_set *s, const char *name)
{
    QR_ASSERT(s != NULL && name != NULL);
    int32_t n = s->n + QR_COUNT(verbs);
    const char **known = qr_alloc((size_t)n, sizeof *known);
    for (int32_t i = 0; i < s->n; i++)
        known[i] = s->table[i].name;
    for (int32_t i = 0; i < QR_COUNT(verbs); i++)
        known[s->n + i] = verbs[i].name;
    const char *near = qr_nearest(name, known, n), *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    for (int32_t i = 0; i < s->n && !near; i++) { /* "lr" may be meant for "optimizer.lr" */
        dot = strrchr(known[i], '.');
        near = dot && strcasecmp(dot + 1, last) == 0 ? known[i] : NULL;
    }
    qr_free(known);
    return near;
}

/* ---- built-ins and environment ---- */

/* Comma-separated; empty pieces are dropped. */
static void assign_pieces(struct qr_option_set *s, int32_t row, const char *text, struct qr_option_origin origin)
{
    int32_t n = 1;
    for (const char *p = text; *p; p++)
        n += *p == ',';
    const char **item = qr_alloc((size_t)n, sizeof *item);
    n = 0;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, ",");
        if (len)
            item[n++] = qr_option_keep(s, p, len);
        p += len + (p[len] == ',');
    }
    qr_option_assign_list(s, row, item, n, origin);
    qr_free(item);
}

static int assign_text(struct qr_option_set *s, int32_t row, const char *text, struct qr_option_origin origin, struct qr_err *err)
{
    if (s->table[row].type != QR_OPT_LIST)
        return qr_option_assign(s, row, qr_option_keep(s, text, strlen(text)), origin, err);
    assign_pieces(s, row, text, origin);
    return 0;
}

static void read_builtins(struct qr_option_set *s)
{
    const struct qr_option_origin origin = {QR_FROM_BUILTIN, "built-in"};
    for (int32_t i = 0; i < s->n; i++) {
        struct qr_err err;
        if (!s->table[i].builtin)
            qr_option_clear(s, i, origin);
        else if (assign_text(s, i, s->table[i].builtin, origin, &err) != 0)
            qr_panic("option %s: its built-in value is wrong: %s", s->table[i].name, err.msg);
    }
}

/* A variable that is set but empty counts as not set. */
static const char *env_value(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static int read_environment(struct qr_option_set *s, struct qr_err *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        char name[QR_OPTION_VARIABLE_MAX];
        qr_options_variable(name, s->command, s->table[i].name);
        const char *text = env_value(name);
        if (!text)
            continue;
        struct qr_option_origin origin = {QR_FROM_ENV, qr_option_keep(s, name, strlen(name))};
        int rc = assign_text(s, i, text, origin, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- flags ---- */

static int unknown_flag(struct reading *r, const char *arg, const char *name, struct qr_err *err)
{
    const char *near = qr_option_nearest(r->s, name);
    if (near)
        return qr_err_set(err, QR_E_USAGE, "unknown flag %.80s; did you mean --%s?", arg, near);
    return qr_err_set(err, QR_E_USAGE, "unknown flag %.80s; --help lists the known ones", arg);
}

/* The value behind '=' or, without one, the next argument. A next argument that is itself a flag was probably not meant. */
static int flag_value(struct reading *r, const char *label, const char *inline_value, const char **out, struct qr_err *err)
{
    *out = inline_value;
    if (inline_value)
        return 0;
    const char *next = r->at < r->argc ? r->argv[r->at] : NULL;
    if (!next)
        return qr_err_set(err, QR_E_USAGE, "%s needs a value and is the last argument", label);
    if (next[0] == '-' && next[1] == '-' && isalpha((unsigned char)next[2]))
        return qr_err_set(err, QR_E_USAGE, "%s needs a value, but %.80s follows; write %s=%.80s if that is the value", label, next,
                          label, next);
    *out = next;
    r->at++;
    return 0;
}

static int take_verb(struct reading *r, enum verb verb, const char *label, const char *inline_value, struct qr_err *err)
{
    if (verb == VERB_CONFIG) {
        r->config_label = label;
        return flag_value(r, label, inline_value, &r->config, err);
    }
    if (inline_value)
        return qr_err_set(err, QR_E_USAGE, "%s takes no value", label);
    r->s->wants_help |= verb == VERB_HELP || verb == VERB_BRIEF;
    r->s->wants_brief |= verb == VERB_BRIEF;
    r->s->wants_print |= verb == VERB_PRINT;
    r->s->wants_check |= verb == VERB_CHECK;
    return 0;
}

static void push_flag(struct reading *r, int32_t row, const char *value, const char *label)
{
    QR_ASSERT(r->n_flags < r->argc);
    r->flag[r->n_flags++] = (struct flag){.row = row, .value = value, .label = label};
}

/* --name, --name value, --name=value, --no-name. */
static int read_long(struct reading *r, const char *arg, struct qr_err *err)
{
    const char *name = arg + 2, *eq = strchr(name, '=');
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    const char *label = qr_option_keep(r->s, arg, 2 + len), *value = eq ? eq + 1 : NULL;
    for (int i = 0; i < QR_COUNT(verbs); i++)
        if (same_name(verbs[i].name, name, len))
            return take_verb(r, verbs[i].verb, label, value, err);
    int32_t row = qr_option_row(r->s, name, len);
    if (row < 0 && len > 3 && (strncmp(name, "no-", 3) == 0 || strncmp(name, "no_", 3) == 0)) {
        row = qr_option_row(r->s, name + 3, len - 3);
        if (row >= 0 && r->s->table[row].type != QR_OPT_FLAG)
            return qr_err_set(err, QR_E_USAGE, "%s: --%s takes a value and cannot be turned off", label, r->s->table[row].name);
        if (row >= 0 && value)
            return qr_err_set(err, QR_E_USAGE, "%s takes no value", label);
        value = "false";
    }
    if (row < 0)
        return unknown_flag(r, label, label + 2, err);
    if (r->s->table[row].type == QR_OPT_FLAG && !value)
        value = "true";
    int rc = flag_value(r, label, value, &value, err);
    if (!rc)
        push_flag(r, row, value, label);
    return rc;
}

/* -p value, -pvalue, -v. */
static int read_short(struct reading *r, const char *arg, struct qr_err *err)
{
    int32_t row = 0;
    while (row < r->s->n && r->s->table[row].letter != arg[1])
        row++;
    const char *label = qr_option_keep(r->s, arg, 2), *value = arg[2] ? arg + 2 : NULL;
    if (row == r->s->n && arg[1] == 'h' && !value)
        return take_verb(r, VERB_BRIEF, label, NULL, err);
    if (row == r->s->n)
        return unknown_flag(r, arg, arg + 1, err);
    bool is_switch = r->s->table[row].type == QR_OPT_FLAG;
    if (is_switch && value)
        return qr_err_set(err, QR_E_USAGE, "%.80s: -%c takes no value", arg, arg[1]);
    int rc = flag_value(r, label, is_switch ? "true" : value, &value, err);
    if (!rc)
        push_flag(r, row, value, label);
    return rc;
}

/* Sorts argv into flags, verbs and positional arguments; stores no value yet. */
static int read_arguments(struct reading *r, struct qr_err *err)
{
    bool flags_over = false;
    while (r->at < r->argc) {
        const char *arg = r->argv[r->at++];
        if (!flags_over && strcmp(arg, "--") == 0) {
            flags_over = true;
            continue;
        }
        if (flags_over || arg[0] != '-' || arg[1] == 0) {
            r->s->args[r->s->n_args++] = arg;
            continue;
        }
        int rc = arg[1] == '-' ? read_long(r, arg, err) : read_short(r, arg, err);
        if (rc || r->s->wants_help)
            return rc;
    }
    return 0;
}

static int apply_flags(struct reading *r, struct qr_err *err)
{
    const char **item = qr_alloc((size_t)r->argc + 1, sizeof *item);
    int rc = 0;
    for (int32_t i = 0; i < r->n_flags && !rc; i++) {
        const struct flag *f = &r->flag[i];
        struct qr_option_origin origin = {QR_FROM_FLAG, f->label};
        if (r->s->table[f->row].type != QR_OPT_LIST) {
            rc = qr_option_assign(r->s, f->row, qr_option_keep(r->s, f->value, strlen(f->value)), origin, err);
            continue;
        }
        if (r->s->origin[f->row].source == QR_FROM_FLAG)
            continue; /* its first occurrence collected them all */
        int32_t n = 0;
        for (int32_t j = i; j < r->n_flags; j++)
            if (r->flag[j].row == f->row)
                item[n++] = qr_option_keep(r->s, r->flag[j].value, strlen(r->flag[j].value));
        qr_option_assign_list(r->s, f->row, item, n, origin);
    }
    qr_free(item);
    return rc;
}

int qr_options_read(struct qr_option_set *s, int argc, char **argv, struct qr_err *err)
{
    QR_ASSERT(s != NULL && s->args == NULL);
    QR_ASSERT(argc >= 0 && err != NULL);
    struct reading r = {.s = s, .argv = argv, .argc = argc, .at = 1};
    s->args = qr_alloc((size_t)argc + 1, sizeof *s->args);
    r.flag = qr_alloc((size_t)argc + 1, sizeof *r.flag);
    read_builtins(s);
    int rc = read_arguments(&r, err);
    if (rc || s->wants_help)
        goto out;
    if (!r.config) {
        r.config = env_value("QUIRE_CONFIG");
        r.config_label = "QUIRE_CONFIG";
    }
    if (r.config && *r.config) {
        rc = qr_option_read_yaml(s, r.config, err);
        if (rc && strncmp(err->msg, r.config, strlen(r.config)) != 0)
            qr_err_prefix(err, "%s: ", r.config_label);
    }
    if (!rc)
        rc = read_environment(s, err);
    if (!rc)
        rc = apply_flags(&r, err);
out:
    qr_free(r.flag);
    return rc;
}

/* A list keeps what earlier settings put there. */
static void add_item(struct qr_option_set *s, int32_t row, const char *text, struct qr_option_origin origin)
{
    struct qr_str_list old = {0};
    if (s->origin[row].source == QR_FROM_FLAG)
        memcpy(&old, field_of(s, row), sizeof old);
    const char **item = qr_alloc((size_t)old.n + 1, sizeof *item);
    if (old.n)
        memcpy(item, old.item, (size_t)old.n * sizeof *item);
    item[old.n] = text;
    qr_option_assign_list(s, row, item, old.n + 1, origin);
    qr_free(item);
}

static int read_setting(struct qr_option_set *s, const char *setting, struct qr_err *err)
{
    const char *eq = strchr(setting, '=');
    if (!eq)
        return qr_err_set(err, QR_E_USAGE, "--set %.80s: expected name=value", setting);
    const char *name = qr_option_keep(s, setting, (size_t)(eq - setting)), *text = qr_option_keep(s, eq + 1, strlen(eq + 1));
    char label[QR_OPTION_NAME_MAX + 16];
    const int32_t row = qr_option_row(s, name, strlen(name));
    if (row < 0) {
        const char *near = qr_option_nearest(s, name);
        return qr_err_set(err, QR_E_USAGE, near ? "--set %.80s: unknown setting; did you mean '%s'?" : "--set %.80s: unknown setting", name, near);
    }
    const int n = snprintf(label, sizeof label, "--set %s", s->table[row].name);
    const struct qr_option_origin origin = {QR_FROM_FLAG, qr_option_keep(s, label, (size_t)n)};
    if (*text == 0 && (s->table[row].type == QR_OPT_STR || s->table[row].type == QR_OPT_LIST)) {
        qr_option_clear(s, row, origin);
        return 0;
    }
    if (s->table[row].type != QR_OPT_LIST)
        return qr_option_assign(s, row, text, origin, err);
    add_item(s, row, text, origin);
    return 0;
}

int qr_options_read_settings(struct qr_option_set *s, const char *path, const char *const *setting, int32_t n, struct qr_err *err)
{
    QR_ASSERT(s != NULL && err != NULL);
    QR_ASSERT(n == 0 || setting != NULL);
    read_builtins(s);
    int rc = path ? qr_option_read_yaml(s, path, err) : 0;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = read_setting(s, setting[i], err);
    return rc;
}

bool qr_options_wants_help(const struct qr_option_set *s)
{
    return s->wants_help;
}

bool qr_options_wants_brief(const struct qr_option_set *s)
{
    return s->wants_brief;
}

bool qr_options_wants_print(const struct qr_option_set *s)
{
    return s->wants_print;
}

bool qr_options_wants_check(const struct qr_option_set *s)
{
    return s->wants_check;
}

int32_t qr_options_args(const struct qr_option_set *s, const char *const **args)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(args != NULL);
    *args = s->args;
    return s->n_args;
}

/* The first of the rows in `names` that no flag has set, or -1. */
static int32_t open_row(const struct qr_option_set *s, const char *names)
{
    for (size_t len; *names; names += len + (names[len] == ' ')) {
        len = strcspn(names, " ");
        const int32_t row = qr_option_row(s, names, len);
        QR_ASSERT(row >= 0 && s->table[row].type == QR_OPT_STR);
        if (s->origin[row].source != QR_FROM_FLAG)
            return row;
    }
    return -1;
}

int qr_options_take_args(struct qr_option_set *s, const char *names, struct qr_err *err)
{
    QR_ASSERT(s != NULL && names != NULL);
    QR_ASSERT(err != NULL);
    const struct qr_option_origin origin = {QR_FROM_FLAG, "argument"};
    for (int32_t i = 0; i < s->n_args; i++) {
        const char *arg = s->args[i];
        const int32_t row = open_row(s, names);
        int rc = row < 0 ? qr_err_set(err, QR_E_USAGE, "unexpected argument '%.200s'", arg)
                         : qr_option_assign(s, row, qr_option_keep(s, arg, strlen(arg)), origin, err);
        if (rc)
            return rc;
    }
    s->n_args = 0;
    return 0;
}

static void *field_named(const struct qr_option_set *s, const char *name, enum qr_option_type type)
{
    const int32_t row = qr_option_row(s, name, strlen(name));
    QR_ASSERT(row >= 0 && s->table[row].type == type);
    return field_of(s, row);
}

const char *qr_options_text(const struct qr_option_set *s, const char *name)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(name != NULL);
    return *(const char **)field_named(s, name, QR_OPT_STR);
}

bool qr_options_is_on(const struct qr_option_set *s, const char *name)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(name != NULL);
    return *(const bool *)field_named(s, name, QR_OPT_FLAG);
}

void qr_options_replace(struct qr_option_set *s, const char *name, const char *text)
{
    QR_ASSERT(s != NULL && name != NULL);
    QR_ASSERT(text != NULL);
    *(const char **)field_named(s, name, QR_OPT_STR) = qr_option_keep(s, text, strlen(text));
}

const char *qr_options_command(const struct qr_option_set *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->command != NULL);
    return s->command;
}

enum qr_option_source qr_options_source(const struct qr_option_set *s, const char *name)
{
    QR_ASSERT(s != NULL && name != NULL);
    int32_t row = qr_option_row(s, name, strlen(name));
    QR_ASSERT(row >= 0);
    return s->origin[row].source;
}

const char *qr_options_label(const struct qr_option_set *s, const char *name)
{
    QR_ASSERT(s != NULL && name != NULL);
    int32_t row = qr_option_row(s, name, strlen(name));
    QR_ASSERT(row >= 0);
    return s->origin[row].label;
}
