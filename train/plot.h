/* plot.h - a run's curves as a page that needs nothing but itself: loss of training and held-out data, rate, norm, speed. A function of log.csv. */
#ifndef QR_TRAIN_PLOT_H
#define QR_TRAIN_PLOT_H

#include <stdbool.h>

#include "base/err.h"

/* Reads DIR/log.csv and writes DIR/loss.html anew. title: the run's name. log_loss: the loss axis is logarithmic. Errors: QR_E_IO, QR_E_DAMAGED. */
int qr_train_plot(const char *dir, const char *title, bool log_loss, struct qr_err *err);

#endif
