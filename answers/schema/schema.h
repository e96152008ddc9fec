/* schema.h - JSON Schema (drafts 4 to 2020-12) to an expression: the JSON texts that are valid.
 *
 * What is accepted is enforced: a keyword that cannot be is refused with its path, whether `strict` or not. Annotations, unknown
 * keywords and unknown formats are not refused. Texts are those that Python's json.dumps writes, compact or with its usual separators or
 * indented (bounded), with or without ensure_ascii; numbers to 20 digits on each side and 3 of exponent; 1.0 is an integer, but
 * for schemas that say they are of draft 4, which has it otherwise.
 * Members come in the order of `properties`, those of several lists (allOf, $ref, options) mixed in any way, members of other names last; of
 * these one name may come twice, which a reader of JSON takes for the last one. Members of const and enum keep the schema's order.
 * Not enforced, so refused: uniqueItems but for items of at most 8 values; several contains of one array; contains within unevaluatedItems; a
 * multipleOf whose last 4 digits do not tell, above 100; the opposites of uniqueItems, propertyNames, unevaluated keywords, and of a given
 * object or array; references that lead outside.
 * Bounds: 24 MiB and 200,000 steps (some tens of milliseconds), 1,024 alternatives for one value, depth 400, 1,500 optional members.
 * Pure.
 */
#ifndef QR_ANSWERS_SCHEMA_SCHEMA_H
#define QR_ANSWERS_SCHEMA_SCHEMA_H

#include "answers/grammar/expr.h"
#include "base/json.h"

struct qr_schema_options {
    bool strict;       /* OpenAI's rules for strict schemas are checked as well */
    bool compact;      /* no blanks between tokens */
    bool usual;        /* exactly ", " and ": " between tokens, as json.dumps writes; compact is left out of account */
    bool plain_integers; /* an integer is written with digits alone: readers that are strict take 2.0 for none */
    bool object_only;  /* the root is an object: response_format json_object */
};

/* *out: the value, without blanks around it. schema: true, false or an object. Errors: QR_E_UNSUPPORTED, QR_E_INVALID or QR_E_TOO_LARGE; err's
 * param is the path in the schema ("$.properties.a.not"). */
int qr_schema_build(int32_t *out, struct qr_exprs *x, const struct qr_json *schema, const struct qr_schema_options *options, struct qr_err *err);

#endif
