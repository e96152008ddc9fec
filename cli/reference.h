/* reference.h - pages that are made from the tables of commands, so that nothing about an option is written twice: manual pages, completions of shells, the
 * reference in Markdown, JSON Schemas of files of settings. Pure: text is appended to a buffer.
 */
#ifndef QR_CLI_REFERENCE_H
#define QR_CLI_REFERENCE_H

#include "base/buf.h"
#include "base/command.h"

/* A manual page in roff (man(7)): of one command, or of the program (c NULL). */
void qr_reference_man(struct qr_buf *out, const struct qr_command *c);

/* What a shell completes: commands, flags, choices, files. */
void qr_reference_bash(struct qr_buf *out);
void qr_reference_zsh(struct qr_buf *out);
void qr_reference_fish(struct qr_buf *out);

/* Every command's options in Markdown. */
void qr_reference_options(struct qr_buf *out);

/* The JSON Schema (draft 2020-12) of a file of settings with n rows, for editors and --config files. A name with dots is nested. */
void qr_reference_schema(struct qr_buf *out, const char *title, const struct qr_option *table, int32_t n);

/* Calls each(user, c) for every command that has options, groups' own ones among them, in the order of --help. */
void qr_reference_each(void (*each)(void *user, const struct qr_command *c), void *user);

/* The flags that every command has beside its table (option.h): NULL behind the last. */
struct qr_reference_flag {
    const char *name, *arg, *help; /* static; arg NULL: it has no value */
};
extern const struct qr_reference_flag qr_reference_common[];

#endif
