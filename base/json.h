/* json.h - strict JSON in, JSON out (the only door to cJSON).
 *
 * Every text passes the gate first: RFC 8259 grammar, valid UTF-8, no trailing text, no duplicate keys, no lone surrogates,
 * no U+0000 in strings (when the limits say so), numbers that fit a double, limits on depth, number of values and bytes.
 * Messages carry line and column. Two ways to read follow: *scan* pulls tokens out of the text without building anything
 * (large files: tokenizer.json, safetensors headers), *doc* builds a tree (requests, configurations).
 * Numbers keep their text, so 64-bit integers are exact.
 */
#ifndef QR_BASE_JSON_H
#define QR_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct qr_json_limits {
    size_t bytes_max;
    int64_t values_max; /* every object, array, string, number and literal counts one */
    int32_t depth_max;  /* <= QR_JSON_DEPTH_MAX */
    bool nul_ok;        /* U+0000 allowed inside strings (escaped) */
};
#define QR_JSON_DEPTH_MAX 128
extern const struct qr_json_limits qr_json_limits_request; /* 4 MiB, 262,144 values, depth 32, no NUL */
extern const struct qr_json_limits qr_json_limits_file;    /* 256 MiB, 64 Mi values, depth 32, NUL allowed */

/* ---- scan ---- */

enum qr_json_event {
    QR_JSON_OBJECT_BEGIN, QR_JSON_OBJECT_END, QR_JSON_ARRAY_BEGIN, QR_JSON_ARRAY_END,
    QR_JSON_KEY, QR_JSON_STRING, QR_JSON_NUMBER, QR_JSON_TRUE, QR_JSON_FALSE, QR_JSON_NULL,
    QR_JSON_DONE, /* the text ended where it should */
};

struct qr_json_token {
    enum qr_json_event event;
    const char *text; /* borrowed from the input: a string's or key's inside (quotes left out, escapes as they are), a number's digits */
    size_t len;
    size_t offset;    /* of the token in the input, bytes */
    bool escaped;     /* a string that contains a backslash: use qr_json_unescape */
};

struct qr_json_scan; /* opaque */

/* The text must outlive the scan. Duplicate keys are refused in objects of any size. */
struct qr_json_scan *qr_json_scan_new(const char *text, size_t len, const struct qr_json_limits *limits);
void qr_json_scan_free(struct qr_json_scan *s);

/* The next token. Errors: QR_E_INVALID with line, column and what was expected; QR_E_TOO_LARGE for a limit. After an error
 * or QR_JSON_DONE the scan stays where it is. */
int qr_json_next(struct qr_json_scan *s, struct qr_json_token *t, struct qr_err *err);

/* Skips the value that t begins (t is the token just read: nothing to do for scalars; behind a key its whole value). What is
 * skipped is checked all the same. */
int qr_json_skip(struct qr_json_scan *s, const struct qr_json_token *t, struct qr_err *err);

/* Appends the string's characters with escapes resolved. Cannot fail on a token that the scan returned. */
void qr_json_unescape(struct qr_buf *out, const struct qr_json_token *t);
bool qr_json_token_is(const struct qr_json_token *t, const char *text);            /* for keys and strings */
bool qr_json_token_i64(const struct qr_json_token *t, int64_t *out);              /* an integer that fits, written as one */
double qr_json_token_f64(const struct qr_json_token *t);

/* ---- doc ---- */

enum qr_json_type { QR_JSON_T_NULL, QR_JSON_T_BOOL, QR_JSON_T_NUMBER, QR_JSON_T_STRING, QR_JSON_T_ARRAY, QR_JSON_T_OBJECT };

struct qr_json; /* opaque: a value inside a document */

/* Gate, then tree. *out is the root, to be freed with qr_json_free. text need not be terminated and need not outlive it. */
int qr_json_parse(struct qr_json **out, const char *text, size_t len, const struct qr_json_limits *limits, struct qr_err *err);

/* The same, but of a root that is an object only members whose names are in `wanted` (ended by NULL) become part of the tree: the others cost no memory. */
int qr_json_parse_members(struct qr_json **out, const char *text, size_t len, const struct qr_json_limits *limits, const char *const *wanted,
                          struct qr_err *err);
/* The same for a line of a file: errors of the text name the column alone, as the caller counts lines. */
int qr_json_parse_line(struct qr_json **out, const char *line, size_t len, const struct qr_json_limits *limits, struct qr_err *err);
/* The same for all of a file (text may be NULL when len is 0): every error is QR_E_DAMAGED and begins with the file's name. */
int qr_json_parse_file(struct qr_json **out, const char *text, size_t len, const struct qr_json_limits *limits, const char *file, struct qr_err *err);
void qr_json_free(struct qr_json *root); /* NULL is fine */

enum qr_json_type qr_json_type(const struct qr_json *v);
const char *qr_json_type_name(enum qr_json_type type); /* "null", "boolean", "number", "string", "array", "object" */

/* Object members are compared case-sensitively. find: NULL when v is no object or has no such member. */
const struct qr_json *qr_json_find(const struct qr_json *v, const char *key);
/* Frees all members but those named (ended by NULL); nothing may point into them any more. */
void qr_json_retain(struct qr_json *v, const char *const *keys);
/* Frees the members of that name of v and of all objects at most `depth` levels below it; nothing may point into them. v NULL: nothing. */
void qr_json_forget(struct qr_json *v, const char *key, int32_t depth);
int32_t qr_json_count(const struct qr_json *v);                          /* members or elements; 0 for scalars */
const struct qr_json *qr_json_first(const struct qr_json *v);            /* NULL when empty or scalar */
const struct qr_json *qr_json_after(const struct qr_json *v);            /* next sibling or NULL */
const char *qr_json_key(const struct qr_json *v);                        /* a member's name (terminated), NULL for array elements */
const char *qr_json_str(const struct qr_json *v, size_t *len);           /* asserts a string; len may be NULL */
const char *qr_json_text(const struct qr_json *v, size_t *len);          /* the same; NULL when v is NULL or no string */
bool qr_json_says(const struct qr_json *v, const char *text);            /* v is a string with this text */
bool qr_json_bool(const struct qr_json *v);                              /* asserts a boolean */
double qr_json_f64(const struct qr_json *v);                             /* asserts a number */
bool qr_json_i64(const struct qr_json *v, int64_t *out);                 /* false when it is no number, not integral (1.0 is), or out of range */
bool qr_json_is_integer_text(const struct qr_json *v);                   /* a number written without '.', 'e' or 'E' */
bool qr_json_is_null(const struct qr_json *v);                           /* also true for a NULL pointer */

/* Appends v as compact JSON (numbers as they were written). */
void qr_json_print(struct qr_buf *out, const struct qr_json *v);

/* ---- writing ---- */

/* Appends "..." with escapes. Bytes that are no valid UTF-8 become U+FFFD. */
void qr_json_put_str(struct qr_buf *out, const char *s, size_t n);

/* Members of an object that is being written: "name": behind a comma where one is needed, and a value. A name has no byte that needs an escape. */
void qr_json_put_name(struct qr_buf *out, const char *name);
void qr_json_put_member_i64(struct qr_buf *out, const char *name, int64_t value);
void qr_json_put_member_text(struct qr_buf *out, const char *name, const char *text); /* NULL: null */

/* The fewest digits that read back as v, which is positive and finite: v = digits * 10^exp10. */
void qr_shortest_f64(double v, uint64_t *digits, int *exp10);

/* Shortest decimal text that reads back as the same float or double; infinities and NaN are written as null. */
void qr_json_put_f32(struct qr_buf *out, float v);
void qr_json_put_f64(struct qr_buf *out, double v);

#endif
