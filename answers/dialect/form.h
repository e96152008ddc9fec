/* form.h - what a dialect holds. Internal to answers/dialect/: families.c has rows of it, derive.c fills one from a
 * template, parser.c and shape.c read it.
 *
 * * Every text is written as a model writes it, white space included: shape.c takes it as it is. A reader takes white
 * space between the pieces, and its absence, as the same thing. "" (never NULL in a finished dialect) means that there
 * is no such piece.
 */
#ifndef QR_ANSWERS_DIALECT_FORM_H
#define QR_ANSWERS_DIALECT_FORM_H

#include "answers/dialect/dialect.h"

#define QR_CALL_FORMS_MAX 6
#define QR_DROPPED_MAX 8

enum qr_call_layout {
    QR_CALL_JSON,  /* the call is one JSON object: its name is a member, or a member's key */
    QR_CALL_NAMED, /* the name stands as text before the arguments */
};

enum qr_args_kind {
    QR_ARGS_JSON,   /* one JSON object */
    QR_ARGS_TAGGED, /* each argument between markers of its own, its value as plain text */
    QR_ARGS_CODE,   /* the text of a program, the argument "code" of a call whose name is not written */
    QR_ARGS_LOOSE,  /* key=value or key:value with literals of Python or of Gemma */
};

/* section_start (call_start call call_end, separator ...) section_end. A call that is NAMED:
 * [id_start ID] before or behind the name, NAME name_end args_start ARGUMENTS args_end. */
struct qr_call_form {
    const char *section_start, *section_end; /* around all calls; with the bracket where they are an array */
    const char *call_start, *call_end;       /* around one */
    const char *separator;                   /* between two */
    enum qr_call_layout layout;
    enum qr_args_kind args;
    bool array;           /* JSON: the objects are elements of an array, whose brackets are in section_start and section_end */
    const char *name_key; /* JSON: "": the name is the key of its arguments */
    const char *args_key, *id_key;
    bool id_first;        /* JSON: the id stands before the name */
    const char *name_end; /* NAMED: behind the name */
    const char *id_start; /* NAMED: between the name and the id, if the form has one */
    const char *id_prefix;/* NAMED: the name is part of an id: prefix, name, ':', number */
    const char *args_start, *args_end;
    const char *param_start, *key_end, *key_end_text; /* TAGGED; key_end_text: before a value that is a string, where that differs */
    const char *value_end, *param_separator;
    bool value_lines;     /* TAGGED: a value stands on lines of its own */
    char assign;          /* LOOSE: '=' or ':' */
    const char *quote;    /* LOOSE: what stands around strings in which nothing is escaped, beside " and ' */
};

/* Messages with heads: start HEAD end BODY. The head says what the body is. */
struct qr_heads {
    const char *start, *end;  /* NULL start: the dialect has no heads */
    const char *recipient;    /* before the function's name in a head; "": the head is the name */
    const char *function;     /* before the name behind that */
    const char *thinking, *content; /* heads of reasoning and of text */
    const char *body_end[6];  /* what ends a body and is no part of the next message */
    const char *turn;         /* what may stand before a head */
    const char *call_head, *call_end; /* how a call is written: call_head NAME end ARGUMENTS call_end */
    const char *call_middle;
};

struct qr_dialect {
    const char *name;
    const char *think_start, *think_end;
    const char *think_label;  /* what may follow think_start and is no reasoning */
    const char *think_open;   /* how a prompt begins reasoning, to its end */
    const char *turn;         /* what a prompt writes where the answer begins; "": not known */
    bool think_opened;        /* the prompt begins it with enable_thinking */
    bool think_anywhere;      /* also behind content */
    bool calls_end_thinking;
    const char *content_start, *content_end;
    const char *dropped[QR_DROPPED_MAX]; /* markers that say nothing; NULL ends them */
    bool short_ids;           /* ids of calls are 9 of a-zA-Z0-9 */
    bool shows_tools;         /* a template shows tools to the model */
    struct qr_heads heads;
    struct qr_call_form form[QR_CALL_FORMS_MAX]; /* the first is what is written */
    int32_t n_forms;
    char **text;              /* owned [n_text]: texts of a derived dialect; NULL in a row */
    int32_t n_text;
    bool is_row;              /* static: is not freed */
};

/* Rows of families.c that have the forms of `first` (its first marker) as well: readers of a derived dialect take these too. */
void qr_dialect_add_readings(struct qr_dialect *d);

/* The row whose name or other name this is; NULL: none. */
const struct qr_dialect *qr_family_find(const char *name);

/* A copy of s[0..len) that the dialect owns. */
const char *qr_dialect_keep(struct qr_dialect *d, const char *s, size_t len);

/* Forms of calls in heads, and reasoning's usual markers: [n][2]. */
extern const char *const qr_think_pairs[][2];
extern const int32_t qr_think_n_pairs;

#endif
