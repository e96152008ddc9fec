/* trainer_parts.h - inside train/ only: what the trainer's files share (trainer_open.c reads and plans, trainer_step.c takes steps, trainer.c the rest). */
#ifndef QR_TRAIN_TRAINER_PARTS_H
#define QR_TRAIN_TRAINER_PARTS_H

#include "train/trainer.h"

enum qr_dtype qr_trainer_compute(const struct qr_train_config *c);

/* Puts the setting that led to an error in front of it. */
int qr_trainer_blame(const struct qr_train_config *c, const char *name, struct qr_err *err);

/* The sum goes on from target to target, so that it does not show how they were cut into micro-batches. */
double qr_trainer_add_losses(double sum, const double *losses, int32_t n);

/* An error of this rank is every rank's. Returns rc. */
int qr_trainer_give_up(struct qr_trainer *t, int rc, const struct qr_err *err);

#endif
