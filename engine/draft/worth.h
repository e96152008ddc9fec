/* worth.h - what a step of so many rows takes, and how many guesses it is worth to check. From measured times alone: a pure function of what it is told.
 *
 * Times are kept by rows, and more rows never take less: a new measurement corrects the older ones that contradict it. Between two measurements a time is on
 * the line between them; beyond them rows are taken to cost little, so they are tried. What was measured long ago and stopped the guesses fades towards
 * that, the sooner the fewer measurements say so: one slow step, or a load that is gone, does not stop them for long. Engine thread.
 */
#ifndef QR_ENGINE_DRAFT_WORTH_H
#define QR_ENGINE_DRAFT_WORTH_H

#include <stdint.h>

#define QR_WORTH_NODES 80 /* row counts 1 to 32, then eight to each doubling */

struct qr_worth {
    struct {
        double us;            /* 0: not measured */
        int32_t rows, n;      /* of the latest measurement; how many there were, at most 5 */
        int64_t step;         /* and when */
    } node[QR_WORTH_NODES];
    int64_t n_steps;
};

/* A step of n_rows rows took us. */
void qr_worth_note(struct qr_worth *w, int32_t n_rows, double us);

/* What a step of n_rows takes, in us; relative to an unknown unit before anything was measured. */
double qr_worth_us(const struct qr_worth *w, int32_t n_rows);

/* Of guesses with these chances to be used, the largest first, the number with which a step of n_base rows has most tokens per time; 0: none is worth it. */
int32_t qr_worth_choose(const struct qr_worth *w, const float *chance, int32_t n, int32_t n_base);

#endif
