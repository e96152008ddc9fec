/* template.h - a Jinja interpreter for chat templates: what real templates use, and no way out of it.
 *
 * Strings, integers, floats, booleans, none, lists, dicts, macros and namespaces; no attribute of a host object, no include, no
 * import. Semantics are Jinja2's as Hugging Face sets it up (trim_blocks, lstrip_blocks, loop controls, `generation`
 * block, raise_exception, strftime_now, tojson that keeps non-ASCII). A compiled template is immutable and may be rendered by
 * several threads at once; a rendering owns one arena.
 *
 * Every output byte knows where it came from: literal text of the template is trusted, text that came from the context is
 * not, except the values named as trusted (bos_token, eos_token, ...) and a message's role when it is one of the known words: templates build
 * special tokens of it. Concatenation, filters and slices keep provenance; a filter that computes new text from untrusted text gives untrusted text.
 */
#ifndef QR_TOKENIZER_TEMPLATE_H
#define QR_TOKENIZER_TEMPLATE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

struct qr_template; /* opaque */

enum qr_template_kind {
    QR_TEMPLATE_RAISED,  /* the template called raise_exception: err->msg is its message, for the client */
    QR_TEMPLATE_RUNTIME, /* an undefined value used, a wrong type, an unknown filter */
    QR_TEMPLATE_LIMIT,   /* a limit on steps, output, depth or memory was passed */
};
const char *qr_template_kind_name(enum qr_template_kind kind); /* "raised", "runtime", "limit" */

struct qr_template_limits {
    int64_t steps_max;     /* evaluated nodes and loop rounds: 1,000,000 */
    size_t output_max;     /* bytes: 4 MiB */
    int32_t depth_max;     /* nesting of loops, macros and expressions: 64 (expressions: 200) */
    size_t memory_max;     /* bytes of values: 64 MiB */
    int64_t range_max;     /* elements of range(): 100,000 */
};
extern const struct qr_template_limits qr_template_limits_default;

/* Empty when zeroed. */
struct qr_rendered {
    struct qr_buf text;
    struct qr_segment *segment; /* owned; neighbours differ in `trusted` */
    int32_t n_segments;
};
void qr_rendered_release(struct qr_rendered *r);

/* Compiles. Errors (QR_E_INVALID) name line, column and what was found. */
int qr_template_compile(struct qr_template **out, const char *text, size_t len, struct qr_err *err);
void qr_template_free(struct qr_template *t); /* NULL is fine */

/* Renders with `context` (an object: its members are the template's globals). Members named in trusted_names (terminated by NULL;
 * may be NULL) give trusted text. now_s: local broken-down time for strftime_now, seconds since 1970 read as UTC. On failure
 * returns a negative code, fills err and *kind. */
int qr_template_render(const struct qr_template *t, struct qr_rendered *out, const struct qr_json *context,
                       const char *const *trusted_names, int64_t now_s, const struct qr_template_limits *limits,
                       enum qr_template_kind *kind, struct qr_err *err);

#endif
