/* reader.h - the inside of an answer's parser. Internal to answers/dialect/: parser.c reads text and reasoning,
 * calls.c where a call begins and what is around it, values.c its arguments, heads.c messages with heads.
 *
 * * All of them look at the same held text and do steps. A step takes a part of it that is certain, or waits for more;
 * what it does depends on the text alone and never on how the text was cut. With `end` no step may wait.
 */
#ifndef QR_ANSWERS_DIALECT_READER_H
#define QR_ANSWERS_DIALECT_READER_H

#include <string.h>

#include "answers/dialect/form.h"
#include "base/assert.h"
#include "base/mem.h"

#define QR_STARTS_MAX 4
#define QR_MARKS_MAX 48
#define QR_CALL_HEAD_MAX 16384 /* bytes before a call is certain; behind them it is text */
#define QR_CALL_NAME_MAX 256
#define QR_LOOSE_DEPTH_MAX 64

enum qr_match { QR_MATCH_NO, QR_MATCH_PART /* the text ends too early to say */, QR_MATCH_FULL };

/* A form, as it is read. */
struct qr_reading {
    const struct qr_call_form *form; /* borrowed */
    char *start;                     /* owned: section and call start without white space around; "": the form is bare */
    const char *starts[QR_STARTS_MAX]; /* start, and where in it reading may begin, too: models leave the first marker out */
    int32_t n_starts;
    bool bracket;                    /* a list's bracket opens the calls */
    char *section_end;               /* owned; without that bracket */
};

enum qr_mark_kind { QR_MARK_THINK, QR_MARK_CALL, QR_MARK_DROP, QR_MARK_CONTENT };
struct qr_mark {
    const char *text; /* borrowed */
    size_t len;
    enum qr_mark_kind kind;
};

enum qr_read_state {
    QR_READ_TEXT, QR_READ_REASONING, QR_READ_CODE, QR_READ_JSON, QR_READ_REST, QR_READ_TAGGED, QR_READ_VALUE, QR_READ_LOOSE, QR_READ_AFTER, QR_READ_HEAD,
    QR_READ_BODY, QR_READ_NOTHING,
};

enum { QR_TYPE_STRING = 1, QR_TYPE_INTEGER = 2, QR_TYPE_NUMBER = 4, QR_TYPE_BOOLEAN = 8, QR_TYPE_NULL = 16, QR_TYPE_ARRAY = 32, QR_TYPE_OBJECT = 64 };

/* JSON that is passed on as it is, or taken out of a string. */
struct qr_json_pass {
    int32_t depth;
    bool in_string, escaped, quoted;
};

/* Literals that become JSON. */
struct qr_loose {
    char open[QR_LOOSE_DEPTH_MAX]; /* '{' '[' '(' of what is open */
    int32_t depth;
    bool want_key, want_value, comma; /* comma: one is due before the next item */
    char quote;                       /* inside a string: its quote; 'q': the form's own; 0: outside */
    bool key;                         /* that string is a key */
};

struct qr_answer_parser {
    const struct qr_dialect *d; /* borrowed */
    struct qr_answer_options o;
    struct qr_reading form[QR_CALL_FORMS_MAX];
    int32_t n_forms;
    struct qr_mark mark[QR_MARKS_MAX];
    int32_t n_marks;
    bool begins[256];  /* whether a mark begins with the byte */

    struct qr_buf held; /* what is not certain yet begins at `at` */
    size_t at, seen;    /* seen: bytes behind `at` that hold no end of a value */
    bool end;
    qr_part_fn *said;
    void *user;

    enum qr_read_state state;
    bool leading;    /* white space here is the format's */
    bool spoke;      /* this stretch of content has begun */
    bool content;    /* there has been content */
    bool thought;    /* there has been reasoning */
    bool fresh;      /* reasoning, or a value, begins here */
    bool preface;    /* reasoning that began in the prompt is shown with the prompt's marker */

    int32_t n_calls;
    const struct qr_reading *r; /* the open call's */
    bool in_call, in_list, said_arguments;
    struct qr_buf name, id, key, out;
    bool late_id;
    struct qr_json_pass pass;
    struct qr_loose loose;
    bool first;         /* no argument was said yet */
    uint32_t types;     /* the value's, by the tool's schema; 0: not known */
    bool line_due;      /* a line end before the value is the format's */
    bool text_value;    /* the form says that the value is a string */
    enum qr_part body;  /* of a message with a head */
    bool plain;         /* a call's body that is no JSON */
    bool raw;           /* a body that is passed on as it is */
};

/* ---- text ---- */

static inline const char *qr_text_of(const char *s) { return s ? s : ""; }
static inline bool qr_is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static inline const char *qr_held(const struct qr_answer_parser *p) { return p->held.data ? p->held.data + p->at : ""; }
static inline size_t qr_held_len(const struct qr_answer_parser *p) { return p->held.len - p->at; }
static inline size_t qr_blanks(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && qr_is_blank(s[i]))
        i++;
    return i;
}

/* Whether s[0..n) begins with `text`; white space of either counts for nothing (loosely) or for what it is (exactly). *len: bytes of s. */
enum qr_match qr_match_loosely(const char *s, size_t n, const char *text, size_t *len);
enum qr_match qr_match_exactly(const char *s, size_t n, const char *text, size_t text_len);

void qr_say(struct qr_answer_parser *p, enum qr_part part, const char *text, size_t len); /* nothing where len is 0 */
void qr_read_text_from(struct qr_answer_parser *p); /* content may follow, behind reasoning or a call */

/* Steps: false: nothing can be done without more text. */
bool qr_step_call_after(struct qr_answer_parser *p);
bool qr_step_rest(struct qr_answer_parser *p);
bool qr_step_code(struct qr_answer_parser *p);
bool qr_step_json(struct qr_answer_parser *p);
bool qr_step_tagged(struct qr_answer_parser *p);
bool qr_step_value(struct qr_answer_parser *p);
bool qr_step_loose(struct qr_answer_parser *p);
bool qr_step_head(struct qr_answer_parser *p);
bool qr_step_body(struct qr_answer_parser *p);

/* ---- calls ---- */

void qr_reading_init(struct qr_reading *r, const struct qr_call_form *form);
void qr_reading_release(struct qr_reading *r);
size_t qr_first_marker(const char *s); /* its bytes: up to white space, or to the end of <...> before another marker */

/* Whether a call begins `from` bytes behind `at`, with a mark or, where there is none, a bare one. FULL: it was said, and its arguments are next. */
enum qr_match qr_call_begin(struct qr_answer_parser *p, size_t from, bool bare);
void qr_call_say(struct qr_answer_parser *p, const char *name, size_t name_len);
void qr_call_end(struct qr_answer_parser *p, bool cut); /* cut: the text ended in it */
void qr_arguments_begin(struct qr_answer_parser *p, enum qr_args_kind kind);

/* ---- values ---- */

/* The end of the JSON value that begins at s[i]; *i moves behind it. */
enum qr_match qr_json_skip_value(const char *s, size_t n, size_t *i);
/* Appends the inside of a JSON string without escapes; bytes of an escape that is cut off are left, and their number returned. */
size_t qr_json_unescape_text(struct qr_buf *out, const char *s, size_t n, bool end);
/* Appends with escapes, as the inside of a JSON string, quotes left out. */
void qr_json_escape_text(struct qr_buf *out, const char *s, size_t n);
/* Types that the schema of the tool's parameter allows. */
uint32_t qr_tool_types(const struct qr_json *tools, const char *name, const char *key, size_t key_len);
/* Appends the Python literal s[0..n), an object or a list, as JSON; false where it is none. */
bool qr_loose_whole(struct qr_buf *out, const char *s, size_t n);
/* The tool that runs a program: of those that are known, or "python"; NULL: there is none. */
const char *qr_tool_of_code(const struct qr_json *tools);
bool qr_tool_known(const struct qr_json *tools, const char *name, size_t len);

#endif
