/* follow.h - the engine's other ranks (tensor parallel): a process that computes its share of what the engine of rank 0 plans, and decides nothing. */
#ifndef QR_ENGINE_FOLLOW_H
#define QR_ENGINE_FOLLOW_H

#include "engine/engine.h"

/* What ranks agree on when all have their share of the weights; it is rank 0's. First of adapters' slots, which all
 * ranks take before free memory is measured, and of how many rows a step may have. Then all of it: the caches of all
 * have the same blocks, and the same numbers name them. */
struct qr_engine_agreed {
    int64_t lora_slots, lora_rank_max, step_tokens;
    int64_t n_blocks, n_host_blocks, block_tokens, logit_rows;
};
int qr_engine_agree(struct qr_comm *comm, struct qr_engine_agreed *a, struct qr_err *err);

/* Ranks of this one's machine: they share its memory. comm NULL: one. */
int32_t qr_engine_local_ranks(const struct qr_comm *comm);

/* On the calling thread, with the options of rank 0's engine (adapters' slots are what that says), until it is closed. Errors: those of qr_engine_open, and
 * QR_E_CLOSED when a rank is lost. Rank 0 and the others hear of them. */
int qr_engine_follow(const char *dir, const struct qr_engine_config *config, const struct qr_backend_options *backend,
                     const struct qr_model_options *model_options, struct qr_err *err);

#endif
