/* lower.h - the only translator between a plan (which sequences run) and a batch (flat arrays that kernels read). */
#ifndef QR_ENGINE_LOWER_H
#define QR_ENGINE_LOWER_H

#include "kernels/batch.h"
#include "kvcache/kv_twin.h"
#include "scheduler/sched.h"

/* A row of the block table. */
struct qr_lower_row {
    uint64_t tenure;              /* whose blocks (qr_seq.tenure); 0: none */
    int32_t n_blocks, last;       /* how many, and the last of them */
};

/* Arrays for the largest step; allocated once. */
struct qr_lower {
    struct qr_batch batch;
    int32_t *ids, *pos;           /* owned [tokens_max] */
    int32_t *slot;                /* owned [1 + twins.n][tokens_max] */
    int32_t *row_start;           /* owned [seqs_max + 1] */
    int32_t *ctx_len;             /* owned [seqs_max] */
    int32_t *block_table;         /* owned [1 + twins.n][seqs_max][table_stride] */
    struct qr_kv_twins twins;     /* of sequences' tables */
    int64_t table_part;           /* from the block table of a part, the blocks or their twins k, to the next's. slot's are tokens_max apart */
    struct qr_lower_row *known;   /* owned [seqs_max] what lies in each of its rows: a sequence that decodes is the same for many steps */
    int32_t *logit_row, *hidden_row; /* owned [logits_max], together at most as many */
    struct qr_row_group *group;   /* owned [adapters_max] */
    int32_t *group_row;           /* owned [tokens_max]; NULL without adapters */
    int32_t *group_of;            /* owned [adapters_max]: a slot's rows, then its group */
    int32_t adapters_max;
    int32_t tokens_max, seqs_max, logits_max;
};

void qr_lower_init(struct qr_lower *l, int32_t tokens_max, int32_t seqs_max, int32_t logits_max, int32_t ctx_max, int32_t block_tokens,
                   int32_t adapters_max, const struct qr_kv_twins *twins);
void qr_lower_release(struct qr_lower *l);

/* Fills l->batch from the plan: items in the plan's order (those with several rows first, as prefill sequences), rows of an item in order, its last n_logits
 * rows as logit rows, or as hidden rows; rows of sequences with an adapter by its slot. */
const struct qr_batch *qr_lower(struct qr_lower *l, const struct qr_plan *plan, const struct qr_sched *sched);

/* Adds idle rows (kernels/batch.h) to a batch of one row a sequence, until it is of one of few sizes: powers of two to 8, multiples of 8 to 64, then of 32, as
 * far as the arrays reach. */
void qr_lower_fill_up(struct qr_lower *l);

#endif
