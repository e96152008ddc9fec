/* command.h - what one command of the program is, and what all of them do alike: they read their settings, answer -h, --help, --print-config and
 * --check-config, and say what is wrong. A command is data and one function, its work.
 */
#ifndef QR_BASE_COMMAND_H
#define QR_BASE_COMMAND_H

#include "base/option.h"

/* One run of a command. `status` other than 0 becomes the exit status, with an error or without one. */
struct qr_command_run {
    void *options;           /* what its table has filled */
    const struct qr_option_set *set; /* where each value came from */
    const char *const *args; /* [n_args] positional arguments that no row has taken */
    int32_t n_args;
    int status;
};

/* A flag of another program, "--base-url", that is read as one of ours. */
struct qr_renamed {
    const char *theirs, *ours;
};

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
    size_t options_bytes;          /* of the struct that the table fills, zeroed before */
    /* Before its work, also before --check-config that is left to it: may replace texts of its settings. Its error ends the command. NULL: none. */
    int (*settle)(struct qr_option_set *set, struct qr_command_run *r, struct qr_err *err);
    int (*run)(struct qr_command_run *r, struct qr_err *err); /* its work, behind the reading of settings; its error is printed */
    const struct qr_renamed *renamed; /* [n_renamed] */
    int32_t n_renamed;
    const char *config_hint;       /* a line behind an error in the settings where --config was given; or NULL */
    const struct qr_command *const *sub; /* [n_sub] of a group of commands, which has no table */
    int32_t n_sub;
};

/* The whole command: argv[0] is ignored. Returns the exit status. Not for a group. */
int qr_command_main(const struct qr_command *c, int argc, char **argv);

/* Text for people that has names in it which others have chosen, to stdout: control bytes are made visible. */
void qr_command_print(const char *text, size_t n);

/* Prints "quire NAME: message" to stderr, with control bytes made visible, too; returns the exit status for the code. */
int qr_command_fail(const char *name, const struct qr_err *err);

/* Appends the help of a command or a group: all of it, or at most 25 lines of 80 columns (brief). */
void qr_command_help(struct qr_buf *out, const struct qr_command *c, bool brief, int32_t columns);

/* The command `name` among n, or NULL. */
const struct qr_command *qr_command_find(const struct qr_command *const *list, int32_t n, const char *name);

#endif
