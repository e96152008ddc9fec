/* view.h - what an onlooker sees of the engine, at no cost to its steps while there is none.
 *
 * Steps: the engine thread writes a record of each into a ring, without a lock and without waiting. Any thread may read; a reader that the ring has overtaken
 * misses the oldest records, and no record is ever seen half written.
 * A look: where every cache block and every request stands at one moment. One thread asks for it. The engine answers between two steps, at once when it is
 * idle, in memory that was allocated when it was opened. Until the asker is done with a look the engine writes no other.
 */
#ifndef QR_ENGINE_VIEW_H
#define QR_ENGINE_VIEW_H

#include "engine/stats.h"

#define QR_VIEW_STEPS 4096 /* records in the ring */
#define QR_STEP_PARTS QR_PART_REST

/* One turn of the engine thread that ran something. On a device that draws, it launched one step and took what came of the step before, whose tokens these are;
 * a turn that took nothing has none. */
struct qr_step_record {
    int64_t begun_us;                 /* qr_clock_us */
    int32_t us, n_prompt, n_decode, n_waiting;
    int32_t part_us[QR_STEP_PARTS];   /* of those before QR_PART_REST: together at most us */
};

#define QR_LOOK_CELLS_MAX 4096

/* per_cell blocks one after the other: the most important use that one of them has (kvcache/kv_pool.h), and the owner of the first of these. */
struct qr_look_cell {
    uint32_t owner;
    uint8_t use; /* enum qr_kv_use */
};

struct qr_look {
    uint64_t number;                  /* of looks so far. A request that was met has the same number in its own part (engine.h) */
    int64_t taken_us;
    int32_t n_blocks, n_free, n_cached, n_used, n_shared; /* free + cached + used (by one) + shared (by several) = n_blocks */
    int32_t per_cell, n_cells;
    struct qr_look_cell cell[QR_LOOK_CELLS_MAX];
};

struct qr_view; /* opaque */

struct qr_view *qr_view_new(void);
void qr_view_free(struct qr_view *v); /* NULL is fine */
size_t qr_view_bytes(void);

/* ---- the engine's side: one thread ---- */

void qr_view_note(struct qr_view *v, const struct qr_step_record *step);

/* The look that an onlooker waits for, to be filled in and then answered; NULL: none does. */
struct qr_look *qr_view_wanted(struct qr_view *v);
void qr_view_answer(struct qr_view *v);

/* ---- the onlookers' side ---- */

/* Steps that were recorded so far. Any thread. */
uint64_t qr_view_n_steps(const struct qr_view *v);

/* The records of steps number *at and later that are still there, the oldest first; at most n_max, whose number is returned. *at becomes the number behind
 * the last one: it has grown by more than the result where some were overtaken. Any thread. */
int32_t qr_view_steps(const struct qr_view *v, uint64_t *at, struct qr_step_record *out, int32_t n_max);

/* One asking thread. ask: the engine is asked, if it is not yet (qr_engine_look wakes it, too). take: the look, once it is there, else NULL. done: it was
 * read. */
void qr_view_ask(struct qr_view *v);
const struct qr_look *qr_view_take(const struct qr_view *v);
void qr_view_done(struct qr_view *v);

#endif
