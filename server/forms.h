/* forms.h - what gives a model's answers their form: the dialect that it writes, its vocabulary as a tree, and the grammars that were compiled before.
 *
 * One for a server, used by any thread. The tree is made with the first grammar. Tree and grammars together take at most bytes_max, but for what is at
 * work while one is compiled: its expressions and the JSON that it is made of, on each of the pool's threads.
 */
#ifndef QR_SERVER_FORMS_H
#define QR_SERVER_FORMS_H

#include "answers/constraint.h"
#include "answers/dialect/dialect.h"
#include "engine/engine.h"
#include "server/openai.h"
#include "tokenizer/chat.h"

struct qr_forms; /* opaque */

struct qr_forms_config {
    const struct qr_tokenizer *tokenizer;  /* borrowed, like all of these */
    const struct qr_chat *chat;            /* NULL: there is none */
    const struct qr_model_config *model;
    int32_t vocab;                         /* of the model's logits */
    const char *tool_format;               /* the dialect's name; NULL: as the template tells */
    int64_t bytes_max;
};

/* tool_format is NULL or a name that there is. */
struct qr_forms *qr_forms_new(const struct qr_forms_config *c);
void qr_forms_free(struct qr_forms *f); /* NULL is fine */

/* Errors: QR_E_USAGE with the names that there are. NULL is fine. */
int qr_forms_check_name(const char *tool_format, struct qr_err *err);

/* NULL: the model has no chat template. */
const struct qr_dialect *qr_forms_dialect(const struct qr_forms *f);
bool qr_forms_shows_tools(const struct qr_forms *f); /* the template does; else a message has to */

/* The markers of thinking as ids, without a budget. n_end 0: there are none. */
const struct qr_thinking *qr_forms_thinking(const struct qr_forms *f);

int64_t qr_forms_bytes(struct qr_forms *f); /* that tree and grammars hold now */

/* What one answer must be. */
struct qr_form {
    const struct qr_demand *demand;        /* borrowed */
    const struct qr_tool_params *tools;    /* borrowed; NULL: none, as in completions */
    bool thinks;                           /* thinking may come first: the prompt has begun it, or the model may */
    bool starts_inside;                    /* the prompt has begun it */
};

/* *out: a counted reference, or NULL where nothing is demanded. On a pool thread, in a run of an account (base/account.h), which ends early where the
 * system's memory is missing. Errors: what cannot be compiled, with the path in the request; QR_E_BUSY where other grammars leave no room. */
int qr_forms_compile(struct qr_forms *f, struct qr_grammar **out, const struct qr_form *form, struct qr_err *err);

#endif
