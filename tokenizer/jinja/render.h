/* render.h - rendering with variables that are no JSON object yet: what chat.c puts beside the request's values. Internal to
 * tokenizer/.
 */
#ifndef QR_TOKENIZER_JINJA_RENDER_H
#define QR_TOKENIZER_JINJA_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "tokenizer/template.h"

enum qr_template_var_type { QR_VAR_NONE, QR_VAR_BOOL, QR_VAR_TEXT, QR_VAR_JSON };

struct qr_template_var {
    const char *name;        /* borrowed */
    enum qr_template_var_type type;
    bool trusted;
    bool b;                  /* BOOL */
    const char *text;        /* TEXT; borrowed, terminated */
    const struct qr_json *json; /* JSON; borrowed */
};

/* As qr_template_render; a later variable of the same name wins. */
int qr_template_render_vars(const struct qr_template *t, struct qr_rendered *out, const struct qr_template_var *var, int32_t n_vars,
                            int64_t now_s, const struct qr_template_limits *limits, enum qr_template_kind *kind,
                            struct qr_err *err);

/* Whether a loop of the template goes through the parts of a message's content. */
bool qr_template_loops_content(const struct qr_template *t);

#endif
