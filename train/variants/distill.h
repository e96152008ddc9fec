/* distill.h - knowledge distillation: besides the text's next token the model learns a teacher's whole distribution over it.
 *
 *     loss = (1 - weight) CE(student, next token) + weight T^2 KL(teacher's softmax(z / T) || student's softmax(z / T))
 *
 * T^2 keeps the size of the second part's gradient when T changes. The teacher is a model directory, computed by the kernels that serve it on the same
 * micro-batch; it learns nothing. Both have one vocabulary. Of both models' logits a chunk of rows is in memory at a time (tape.h, qr_tape_set_loss).
 * The loss on the screen is the sum above; that of held-out data is cross-entropy alone.
 * One owning thread, the trainer's.
 * Source: Hinton et al. 2015 (arXiv:1503.02531).
 */
#ifndef QR_TRAIN_VARIANTS_DISTILL_H
#define QR_TRAIN_VARIANTS_DISTILL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "train/config.h"
#include "train/trainer.h"

bool qr_distill_wanted(const struct qr_train_config *c);

/* Never fails by itself. Errors when planning: those of qr_model_plan; QR_E_INVALID when the teacher has another vocabulary or tokenizer, QR_E_USAGE when its
 * context is shorter than data.sequence. */
int qr_distill_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err);

/* The loss of one row; grad [n], which may be student, becomes scale times its gradient with respect to the student's logits.  student, teacher [n] f32; what
 * is not finite gives a loss that is not.  Sums, exponentials and the difference of logarithms in f64. */
struct qr_distill_row {
    float *grad;
    const float *student, *teacher;
    int32_t n, target;
    double weight, temperature, scale;
};
double qr_distill_row(const struct qr_distill_row *r);

#endif
