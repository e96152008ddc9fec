/* dialect.h - how a model writes what is no plain text: reasoning, content between markers, calls of tools.
 *
 * * A dialect is data. It is derived from the model's own chat template (rendered twice with one thing changed, and
 * compared), or taken by its name where a template cannot tell. One description makes both directions: the parser that
 * takes an answer apart while it is generated, and the grammar that makes sure that a call which was begun can be
 * taken apart. Immutable once made, so any thread may read it; a parser belongs to one thread.
 */
#ifndef QR_ANSWERS_DIALECT_DIALECT_H
#define QR_ANSWERS_DIALECT_DIALECT_H

#include "answers/grammar/expr.h"
#include "answers/grammar/vocab.h"
#include "base/buf.h"
#include "base/json.h"
#include "tokenizer/chat.h"

struct qr_dialect; /* opaque */

/* From a template. Never fails for a template's own faults: what it does not tell the dialect does not have. */
struct qr_dialect *qr_dialect_derive(const struct qr_chat *chat);
/* By name ("hermes", "mistral-v3", ...); NULL: there is none of that name. "json": the documented form for models that have none. */
struct qr_dialect *qr_dialect_named(const char *name);
const char *qr_dialect_name_at(int32_t i); /* of the i-th of them; NULL behind the last */
/* Reasoning alone, between two markers. */
struct qr_dialect *qr_dialect_of_tags(const char *start, const char *end);
void qr_dialect_free(struct qr_dialect *d); /* NULL is fine */
const char *qr_dialect_name(const struct qr_dialect *d); /* "derived: tags with JSON" and the like */

/* Ids of calls must be 9 of a-zA-Z0-9: the template refuses others in the next turn. */
bool qr_dialect_short_ids(const struct qr_dialect *d);

bool qr_dialect_has_tools(const struct qr_dialect *d);     /* the template shows tools to the model */
bool qr_dialect_has_reasoning(const struct qr_dialect *d);
/* What the markers of reasoning are ("<think>", "</think>"); "" where there is none. */
const char *qr_dialect_think_start(const struct qr_dialect *d);
const char *qr_dialect_think_end(const struct qr_dialect *d);

/* Whether prompts with enable_thinking begin reasoning for the model: for callers that have no prompt. */
bool qr_dialect_think_opened(const struct qr_dialect *d);

/* Whether a rendered prompt leaves its reader inside reasoning. */
bool qr_dialect_starts_inside(const struct qr_dialect *d, const char *prompt, size_t len);

/* ---- reading ---- */

enum qr_part { QR_PART_CONTENT, QR_PART_REASONING, QR_PART_CALL /* begins: name, id */, QR_PART_ARGUMENTS, QR_PART_CALL_END };
struct qr_part_text {
    enum qr_part part;
    int32_t call;          /* number of the call, from 0 */
    const char *text;      /* CONTENT, REASONING, ARGUMENTS: a piece; CALL: the name. Borrowed until the next call of the parser */
    size_t len;
    const char *id;        /* CALL: the id that the model wrote, or NULL; CALL_END: the id that it wrote behind the arguments, or NULL */
};

struct qr_answer_parser; /* opaque */
struct qr_answer_options {
    const struct qr_json *tools; /* borrowed: types of arguments, and the names that calls without markers may have; NULL: not known */
    bool calls_are_text;         /* no calls are read: the request has no tools */
    bool starts_inside;          /* reasoning has begun in the prompt */
    bool parse_reasoning;        /* false: markers of reasoning stay in the content */
    bool single;                 /* parallel_tool_calls false: what follows the first call is dropped */
};
struct qr_answer_parser *qr_answer_parser_new(const struct qr_dialect *d, const struct qr_answer_options *o);
void qr_answer_parser_free(struct qr_answer_parser *p); /* NULL is fine */

/* The next piece of the model's text; `said` is told every part that became certain, in order. The sequence of parts, joined, is the same
 * for every cut of the text into pieces. end: nothing follows (what is held back becomes certain). */
typedef void qr_part_fn(void *user, const struct qr_part_text *part);
void qr_answer_parser_feed(struct qr_answer_parser *p, const char *text, size_t len, bool end, qr_part_fn *said, void *user);

/* ---- writing ---- */

enum qr_call_choice { QR_CALL_AUTO, QR_CALL_REQUIRED, QR_CALL_NONE };
struct qr_answer_shape {
    const struct qr_json *tools;      /* borrowed: those that may be called; NULL: none */
    enum qr_call_choice choice;
    bool parallel;                    /* several calls */
    bool starts_inside, may_think;    /* reasoning comes first: begun by the prompt, or the model may begin it */
    int32_t content;                  /* expression of the content; QR_EXPR_NONE: any text */
};

/* The whole answer as an expression, end tokens left out. Markers that are special tokens in v are these tokens. Errors: those of
 * qr_schema_build for a tool's parameters, with the path from "tools". */
int qr_dialect_shape(int32_t *out, struct qr_exprs *x, const struct qr_dialect *d, const struct qr_answer_shape *s, const struct qr_vocab *v,
                     struct qr_err *err);

#endif
