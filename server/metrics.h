/* metrics.h - everything that is counted, as Prometheus text (format 0.0.4). Engine figures carry vLLM's names, so that existing
 * dashboards read them, and finer ones of our own (quire_*).
 */
#ifndef QR_SERVER_METRICS_H
#define QR_SERVER_METRICS_H

#include "server/state.h"

void qr_metrics_put(struct qr_buf *out, struct qr_server *s);

#endif
