/* model_internal.h - the inside of a draft model, shared by model.c and model_fill.c. Engine thread. */
#ifndef QR_ENGINE_DRAFT_MODEL_INTERNAL_H
#define QR_ENGINE_DRAFT_MODEL_INTERNAL_H

#include "base/arena.h"
#include "base/assert.h"
#include "engine/draft/model.h"
#include "engine/draft/worth.h"

/* What is known of the sequence at an index. Rows [0, n_done) of it lie in its blocks; the rows of its last guesses lie behind them. */
struct qr_draft_track {
    uint64_t tenure;              /* of its blocks (qr_seq.tenure); of another one nothing is known */
    int32_t n_done, n_blocks;     /* n_blocks: of its table, as far as plans were followed */
    bool joined;                  /* it is an entry of this call */
    int32_t base, n_guess;        /* guess[i] was one for position base + i; n_guess 0: there are none */
    int32_t n_rows;               /* rows of the first n_rows guesses lie in its blocks, behind row base - 1 */
    int32_t guess[QR_DRAFT_MAX];
    float p[QR_DRAFT_MAX];        /* as the draft model had it */
};

/* A sequence that is guessed of in this call. Its block table is the row of the same index. */
struct qr_draft_entry {
    struct qr_draft_ask *ask;
    struct qr_draft_track *track;
    int32_t pos;                  /* of the row that is computed next */
    int32_t n_rows;               /* how many of it */
    int32_t room;                 /* guesses that it may get */
    bool guesses;                 /* the last of the rows has logits: all that is known will have been computed */
    double chance;                /* that all of its guesses so far are right */
};

#define QR_DRAFT_RIGHT 0.7    /* guesses that are right, before anything was learnt */

struct qr_draft_model {
    struct qr_backend *be;        /* borrowed */
    struct qr_model *model;       /* owned */
    struct qr_kv_view kv;
    void *kv_mem, *act_mem;       /* owned */
    struct qr_arena act;
    struct qr_exec exec;
    int32_t ctx_max, n_vocab;     /* n_vocab: ids that both models have */
    int32_t rows_max, seqs_max, block_tokens;
    int32_t n_blocks, n_tail;     /* blocks of the shared tables; behind these each entry has n_tail of its own */
    uint16_t *have;               /* owned [n_blocks] rows of a block, from its first, that hold what the block is for */
    struct qr_draft_track *track; /* owned [n_slots] */
    int32_t n_slots;
    struct qr_draft_entry *entry; /* owned [seqs_max] */
    int32_t n_entries, n_rows;    /* n_rows: of the batch that is made */
    struct qr_batch batch;
    int32_t *ids, *pos, *slot;    /* owned [rows_max] */
    int32_t *row_start, *ctx_len, *logit_row; /* owned [seqs_max + 1], [seqs_max], [seqs_max] */
    int32_t *table, stride;       /* owned [seqs_max][stride] */
    float *scale;                 /* owned [seqs_max] 1 */
    struct qr_worth worth;        /* what its own forwards take */
    double right, trust;          /* of guesses whose forerunners were right: how many are; and that beside what the draft model thinks of them */
    struct qr_draft_model_stats stats;
};

static inline int32_t *qr_draft_table_of(const struct qr_draft_model *m, int32_t entry)
{
    QR_ASSERT(entry >= 0);
    QR_ASSERT(entry < m->seqs_max);
    return m->table + (size_t)entry * (size_t)m->stride;
}

#endif
