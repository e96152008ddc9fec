/* option_set.h - inside base/option only: what its files share. option.c owns the set and reads flags and environment,
 * option_value.c turns text into values and back, option_yaml.c reads the file, option_help.c writes help and settings.
 */
#ifndef QR_BASE_OPTION_SET_H
#define QR_BASE_OPTION_SET_H

#include "base/arena.h"
#include "base/option.h"

#define QR_OPTION_NAME_MAX 64

struct qr_option_origin {
    enum qr_option_source source;
    const char *label; /* borrowed from the set's arena or static: "--port", "QUIRE_PORT", "server.yaml:3:7", "built-in" */
};

struct qr_option_set {
    const struct qr_option *table; /* borrowed [n] */
    int32_t n;
    const char *command;             /* borrowed: whose variables are read */
    void *target;                    /* borrowed */
    struct qr_option_origin *origin; /* owned [n] */
    const char **args;               /* owned */
    int32_t n_args;
    bool wants_help, wants_brief, wants_print, wants_check;
    struct qr_arena strings; /* labels, values and lists */
};

/* The row with this name, '_' and '-' being the same, or -1. */
int32_t qr_option_row(const struct qr_option_set *s, const char *name, size_t len);

/* A terminated copy in the set's arena. */
const char *qr_option_keep(struct qr_option_set *s, const char *text, size_t n);

/* Checks text and stores it in the row's field. `text` is kept by the set already. Not for lists. */
int qr_option_assign(struct qr_option_set *s, int32_t row, const char *text, struct qr_option_origin origin, struct qr_err *err);

/* Replaces the row's list by copies of the pointers item[0..n). */
void qr_option_assign_list(struct qr_option_set *s, int32_t row, const char *const *item, int32_t n,
                           struct qr_option_origin origin);

/* An unset string or list, said so by a file. */
void qr_option_clear(struct qr_option_set *s, int32_t row, struct qr_option_origin origin);

/* Appends the value in field as one would type it (INT, BYTES, TIME, FLOAT, FLAG, ENUM). */
void qr_option_format(struct qr_buf *out, const struct qr_option *o, const void *field);

/* Appends a bound (min or max) in the row's unit. */
void qr_option_format_bound(struct qr_buf *out, const struct qr_option *o, double bound);

/* Reads the file and assigns what it says. */
int qr_option_read_yaml(struct qr_option_set *s, const char *path, struct qr_err *err);

/* The row name nearest to `name`, or NULL. */
const char *qr_option_nearest(const struct qr_option_set *s, const char *name);

#endif
