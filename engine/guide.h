/* guide.h - what one choice may say next: how far it has come in its request's grammar and in its thinking.
 *
 * Tokens go in once, when they are drawn, also those that were forced: a sequence that is computed again draws none. Inside engine/ only. A guide is the engine
 * thread's; while masks are filled (masks.h) that of the worker that fills its row.
 */
#ifndef QR_ENGINE_GUIDE_H
#define QR_ENGINE_GUIDE_H

#include "answers/grammar/matcher.h"
#include "engine/engine.h"

struct qr_guide {
    struct qr_matcher matcher; /* without a grammar: free text */
    int32_t n_thought;         /* tokens of thinking so far, markers included */
    int32_t n_inside;          /* behind the start of the thinking that goes on */
    bool thinking;
};

/* The guide must not move in memory until released. */
void qr_guide_init(struct qr_guide *g, const struct qr_request *r);
void qr_guide_copy(struct qr_guide *g, const struct qr_guide *from); /* as init */
void qr_guide_release(struct qr_guide *g); /* also of a zeroed one */

/* The id that ends a thinking whose budget is spent, or goes on ending it; -1: nothing is forced. output [n_output]: what the choice has said. */
int32_t qr_guide_forced(const struct qr_guide *g, const struct qr_thinking *t, const int32_t *output, int32_t n_output);

/* Whether anything may be forced when one more token has come than the guide knows of. */
bool qr_guide_may_force(const struct qr_guide *g, const struct qr_thinking *t);

/* The last of output [n_output] has come; ends: it is an end token of the model. QR_E_TOO_LARGE: the grammar has no room for what would follow. */
int qr_guide_take(struct qr_guide *g, const struct qr_thinking *t, const int32_t *output, int32_t n_output, bool ends, struct qr_err *err);

#endif
