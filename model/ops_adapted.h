/* ops_adapted.h - inside model/ only: those verbs of qr_ops_adapted that are not serving's own. As in ops.h. */
#ifndef QR_MODEL_OPS_ADAPTED_H
#define QR_MODEL_OPS_ADAPTED_H

#include "model/ops.h"

struct qr_tensor qr_adapted_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w, const struct qr_weight *bias);
struct qr_tensor qr_adapted_attend(struct qr_exec *x, const struct qr_tensor *h, const struct qr_attend_weights *w, float eps,
                                   const struct qr_attn_spec *spec);
void qr_adapted_feed(struct qr_exec *x, struct qr_tensor *h, const struct qr_tensor *mixed, const struct qr_feed_weights *w, float eps, enum qr_act act);

#endif
