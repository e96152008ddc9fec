/* option.h - settings from one table (the only door to libyaml).
 *
 * A row states flag, environment variable, YAML key, type, default, range, unit and help; parsing, --help, --print-config,
 * --check-config and the documentation all follow from it. A value's source wins in this order: flag, environment,
 * file, built-in. Unknown names are errors that name the nearest known one. Values are written into a caller's struct.
 */
#ifndef QR_BASE_OPTION_H
#define QR_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum qr_option_type {
    QR_OPT_FLAG,   /* bool: --name, --no-name, --name=true */
    QR_OPT_INT,    /* int64_t; suffixes k m g (1000) and ki mi gi (1024) */
    QR_OPT_BYTES,  /* int64_t; 512, 64k, 8GiB, 100MB */
    QR_OPT_TIME,   /* int64_t microseconds; 250ms, 30s, 2m, 1h; a bare number is seconds */
    QR_OPT_FLOAT,  /* double */
    QR_OPT_STR,    /* const char * (owned by the option set); NULL when unset */
    QR_OPT_ENUM,   /* int32_t index into `choices` ("auto|f32|bf16") */
    QR_OPT_LIST,   /* struct qr_str_list: the flag may be repeated; YAML sequence; comma-separated in the environment */
};

struct qr_str_list {
    const char **item; /* owned by the option set */
    int32_t n;
};

/* A name with dots, as "optimizer.lr", is nested in the file: `optimizer: {lr: 1}`, or written out: `optimizer.lr: 1`.
 * name "max-tokens" gives flag --max-tokens, YAML key max-tokens (max_tokens is read as the same) and a variable (qr_options_variable). */
struct qr_option {
    const char *name;
    char letter; /* short flag, or 0 */
    enum qr_option_type type;
    size_t offset;            /* of the field in the caller's struct */
    const char *builtin;      /* as one would type it; NULL: unset (only STR and LIST) */
    double min, max;          /* inclusive, for INT, BYTES, TIME (microseconds) and FLOAT; both 0: unbounded (INT and FLOAT only) */
    const char *choices;      /* ENUM only */
    const char *arg;          /* what --help shows for the value: "DIR", "N", "HOST" */
    const char *help;         /* one or two sentences; -h shows the first one, up to "; " where it has that */
    const char *group;        /* heading in --help */
    bool brief;               /* one of the few that -h shows */
};

/* A row that fills `field` of a struct T: QR_OPTION(struct settings, port, INT, "port", .builtin = "8000", ...). */
#define QR_OPTION(T, field, kind, text, ...) \
    {.name = text, .type = QR_OPT_##kind, .offset = offsetof(T, field), __VA_ARGS__}

enum qr_option_source { QR_FROM_BUILTIN, QR_FROM_FILE, QR_FROM_ENV, QR_FROM_FLAG };

struct qr_option_set; /* opaque: the table, the target, where each value came from, the strings */

/* `table` has n rows and is borrowed for the set's life; `target` is the caller's struct, filled by qr_options_read. Variables are those of `command`. */
struct qr_option_set *qr_options_new(const struct qr_option *table, int32_t n, const char *command, void *target);
void qr_options_free(struct qr_option_set *s);

/* Reads built-ins, then the YAML file named by --config or QUIRE_CONFIG, then the environment, then argv[1..argc).
 * Positional arguments are collected (see qr_options_args). "--" ends flags. The last flag wins. Checks type, range and
 * choice of every value, also of those that another source overrules, and names the source ("--port", "QUIRE_PORT",
 * "server.yaml:3:7") in errors (QR_E_USAGE). A variable that is empty counts as not set; variables that no row names are
 * left alone. In the file a plain `null` unsets a string or list. --help and -h end the reading at once, so that they
 * work beside a wrong file. Read once per set.
 * --help, --print-config, --check-config and --config are known to every table; see the next functions. */
int qr_options_read(struct qr_option_set *s, int argc, char **argv, struct qr_err *err);

/* The same for tables that have neither flags nor variables: built-ins, then the file at `path` (NULL: none), then setting[0..n), each "name=value" and
 * named "--set name" in errors; an item of a list is a setting of its own, which adds to those before; no value unsets a string or list.
 * Once per set. */
int qr_options_read_settings(struct qr_option_set *s, const char *path, const char *const *setting, int32_t n, struct qr_err *err);

/* Whether a setting of that name (n bytes) is a key, which is not shown. */
bool qr_option_is_secret(const char *name, size_t n);

bool qr_options_wants_help(const struct qr_option_set *s);  /* --help or -h */
bool qr_options_wants_brief(const struct qr_option_set *s); /* -h */
bool qr_options_wants_print(const struct qr_option_set *s);
bool qr_options_wants_check(const struct qr_option_set *s);
int32_t qr_options_args(const struct qr_option_set *s, const char *const **args); /* positional arguments */

/* Gives the positional arguments, in their order, to those strings among `names` ("model prompt") whose flags were not given, as these flags would. After
 * qr_options_read. Errors: QR_E_USAGE for an argument that is left over. */
int qr_options_take_args(struct qr_option_set *s, const char *names, struct qr_err *err);

/* The value of a row of type STR (NULL: unset); whether one of type FLAG is on; another value for a row of type STR, of which the set keeps a copy. Requires a
 * row of that name and type. */
const char *qr_options_text(const struct qr_option_set *s, const char *name);
bool qr_options_is_on(const struct qr_option_set *s, const char *name);
void qr_options_replace(struct qr_option_set *s, const char *name, const char *text);

const char *qr_options_command(const struct qr_option_set *s); /* whose settings these are: "serve" */

enum qr_option_source qr_options_source(const struct qr_option_set *s, const char *name);
const char *qr_options_label(const struct qr_option_set *s, const char *name); /* its source in words: "server.yaml:3:7", "--port", "built-in" */

/* Columns of the terminal that stdout is, or 100. */
int32_t qr_options_columns(void);

/* Appends lines of text; a line of more than `columns` is cut at words, and the rest of its paragraph follows it. Ends the last one. */
void qr_options_help_text(struct qr_buf *out, const char *text, int32_t columns);

/* Appends one entry: `text` beside `head`, wrapped. Requires more than 30 columns. */
void qr_options_help_entry(struct qr_buf *out, const char *head, const char *text, int32_t columns);

/* The variable that sets `name` of a command: QUIRE_BENCH_LOAD_MAX_TOKENS for "bench load" and "max-tokens". Those of "serve" (and of no command, NULL) are
 * without its name: QUIRE_MAX_TOKENS. */
#define QR_OPTION_VARIABLE_MAX 112
void qr_options_variable(char out[QR_OPTION_VARIABLE_MAX], const char *command, const char *name);

/* Appends help text: groups, flags, defaults, ranges, variables of `command`, wrapped at `columns`. */
void qr_options_help(struct qr_buf *out, const struct qr_option *table, int32_t n, const char *command, int32_t columns);

/* The same of the rows marked `brief` only: flags, first sentences, defaults. */
void qr_options_help_brief(struct qr_buf *out, const struct qr_option *table, int32_t n, int32_t columns);

/* The same for a table that is read by qr_options_read_settings: names as in the file. */
void qr_options_help_settings(struct qr_buf *out, const struct qr_option *table, int32_t n, int32_t columns);

/* Of one row, for pages that are made from tables: what its value is called ("DIR"; NULL: it has none), its heading, and what help says behind its text
 * ("default 8000, 1 to 65535, QUIRE_PORT"; without a variable where that is NULL). */
const char *qr_option_arg(const struct qr_option *o);
const char *qr_option_group(const struct qr_option *o);
void qr_option_facts(struct qr_buf *out, const struct qr_option *o, const char *variable);

/* Appends valid YAML, fit for --config: every value with a comment that names its source. What is set under a name that
 * ends in "key" or "keys" is masked, and its line commented out. */
void qr_options_print(struct qr_buf *out, const struct qr_option_set *s);

/* The known name nearest to `name` by edit distance (case and '_' for '-' cost nothing), else the first that begins with
 * it, or NULL when nothing is near. For subcommands and fields too. */
const char *qr_nearest(const char *name, const char *const *known, int32_t n);

/* Parses text as o's type into field; messages begin with `where` ("--port"). STR keeps the pointer. */
int qr_option_parse(const struct qr_option *o, const char *text, const char *where, void *field, struct qr_err *err);

#endif
