/* command.h - what one command of the program is, and what all of them do alike: they read their settings, answer -h, --help, --print-config and
 * --check-config, and say what is wrong. Data only: a command's work is its own.
 */
#ifndef QR_BASE_COMMAND_H
#define QR_BASE_COMMAND_H

#include "base/option.h"

struct qr_command {
    const char *name;     /* "serve", "bench load": messages begin with it, and variables are named after it (qr_options_variable) */
    const char *purpose;  /* part of a line, for the list of commands and the first line of help */
    const char *usage;    /* lines: "quire serve MODEL [flags]" */
    const char *examples; /* two or three lines of commands */
    const char *text;     /* further lines of --help, or NULL */
    const char *args;     /* names of the rows that arguments without a flag are for (qr_options_take_args); NULL: they are left to the command */
    bool checks;          /* --check-config is left to the command, which looks further than at the settings (qr_options_wants_check) */
    const struct qr_option *table; /* [n_options] */
    int32_t n_options;
    int (*main)(int argc, char **argv); /* argv[0] is ignored; returns the exit status */
    const struct qr_command *const *sub; /* [n_sub] of a group of commands, which has no table */
    int32_t n_sub;
};

/* Reads argv into `target` by the command's table. Returns -1 to go on, with *out to be freed, or the exit status: after help, --print-config,
 * --check-config, or an error, which is printed. */
int qr_command_read(struct qr_option_set **out, const struct qr_command *c, void *target, int argc, char **argv);

/* Prints "quire NAME: message" to stderr; returns the exit status for the code. */
int qr_command_fail(const char *name, const struct qr_err *err);

/* Appends the help of a command or a group: all of it, or at most 25 lines of 80 columns (brief). */
void qr_command_help(struct qr_buf *out, const struct qr_command *c, bool brief, int32_t columns);

/* The command `name` among n, or NULL. */
const struct qr_command *qr_command_find(const struct qr_command *const *list, int32_t n, const char *name);

#endif
