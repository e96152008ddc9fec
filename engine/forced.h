/* forced.h - what a choice says next whatever its logits are, and guesses where its grammar leaves no choice of bytes.
 *
 * A token is forced where it is the only one that may come: by the grammar, or by the end of a thinking whose budget is spent. A mask with that one id draws
 * it from any logits, so it is said without them. Bytes that must come can mostly be written with several tokens: these are guesses (draft/draft.h).
 * Inside engine/ only. Engine thread, while no mask is filled.
 */
#ifndef QR_ENGINE_FORCED_H
#define QR_ENGINE_FORCED_H

#include "engine/draft/draft.h"
#include "engine/draft/odds.h"
#include "engine/guide.h"

#define QR_FORCED_MAX 16 /* tokens that one choice says without logits between two steps */

/* How guesses for one choice fare. All zero: there were none. */
struct qr_forced {
    struct qr_luck luck[2];  /* of tokens that are not sure, and of those that are */
    int32_t n;               /* of the last guesses, */
    bool sure[QR_DRAFT_MAX]; /* which of them are */
};

/* The only id that may come behind output [n_output]; -1: there are more, or the request wants to know how likely it is. */
int32_t qr_forced_id(const struct qr_request *r, struct qr_guide *g, const int32_t *output, int32_t n_output);

/* Puts its guesses in place of those of a, where more of them are expected to be right. */
void qr_forced_guess(struct qr_forced *f, struct qr_draft_ask *a, struct qr_guide *g);

/* Of n_drafted guesses the first n_accepted were right. False: they are not from here. */
bool qr_forced_judge(struct qr_forced *f, int32_t n_drafted, int32_t n_accepted);

#endif
