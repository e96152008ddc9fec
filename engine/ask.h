/* ask.h - what the end of a step is about to read and write is asked for some rows ahead. It lies in many places, a step's products have been through the
 * caches since it was used last, and to wait for each line in turn takes longer than the work itself. Nothing is changed. Inside engine/ only.
 */
#ifndef QR_ENGINE_ASK_H
#define QR_ENGINE_ASK_H

#include "engine/internal.h"

/* Before the first of e->rows is used; and while row i is: what some row behind it needs. */
void qr_ask_first(const struct qr_engine *e);
void qr_ask_ahead(const struct qr_engine *e, int32_t i);

/* The event that is written next, when the list has one. The receiver had it last: its lines are in another processor's caches. */
void qr_ask_for_event(const struct qr_node *free_events);

#endif
