/* lora.h - low-rank adapters beside a model's matrices while it serves: room for n_slots of them, all of it allocated at the start, and what a product
 * of adapted rows adds (ops_serve.c). A row of a batch with an adapter in slot s computes W x + scale B A x for each matrix W that the adapter names;
 * the others compute what they would without it, bit for bit.
 *
 * A slot belongs to the thread that fills it until a batch names it; then it must stay as it is. Everything else is immutable. Adapters may be of any
 * matrix of the layers that the weight table knows but for experts'; embeddings and the head have none. Devices without `adapt` (kernels.h) refuse
 * them; on others slots are there twice, where the host writes and where kernels read.
 *
 * With several ranks a slot holds what of an adapter belongs to the rank's share (share.h): where a matrix is cut by its outputs, all of A
 * and those rows of B; where it is cut by its inputs, those columns of A and all of B, so that B A x of its own inputs is a term of the sum over ranks
 * that the product is. The rank that has the files fills its own slot, and packs those of other ranks, which need no files and refuse nothing
 * (ranks.h, qr_exec_send_piece).
 */
#ifndef QR_MODEL_LORA_H
#define QR_MODEL_LORA_H

#include "loader/adapters/lora.h"
#include "model/model.h"

#define QR_LORA_SLOTS_MAX 256

struct qr_lora; /* opaque */

/* What adapters are kept as beside matrices of that type: f32 where these are f32, else bf16. */
enum qr_dtype qr_lora_dtype(enum qr_dtype weights);

/* Memory of one slot that takes ranks up to rank_max for every matrix of the layers, and what all slots share: tables, and room for a step of n_tokens. c: of
 * a share its own. */
int64_t qr_lora_slot_bytes(const struct qr_model_config *c, enum qr_dtype weights, int32_t rank_max);
int64_t qr_lora_shared_bytes(const struct qr_model_config *c, int32_t n_slots, int32_t rank_max, int32_t n_tokens);
/* And what rank 0 of several takes beside that: a slot that is packed for another one, and the piece of it that is on its way. */
int64_t qr_lora_stage_bytes(const struct qr_model_config *c, enum qr_dtype weights, int32_t rank_max);

/* QR_E_UNSUPPORTED where `be` computes no adapters. */
int qr_lora_supports(const struct qr_backend *be, struct qr_err *err);

/* Allocates everything for steps of n_tokens rows. 1 <= n_slots <= QR_LORA_SLOTS_MAX, 1 <= rank_max <= QR_LORA_RANK_MAX. Errors: those of
 * qr_lora_supports, of a lost rank. `m` is borrowed and its own, not a trainer's. All its ranks call this alike. */
int qr_lora_new(struct qr_lora **out, const struct qr_model *m, struct qr_backend *be, int32_t n_slots, int32_t rank_max, int32_t n_tokens,
                struct qr_err *err);
void qr_lora_free(struct qr_lora *l); /* NULL is fine */

/* The same with a slot for each of n directories, filled, for the largest of their ranks. Errors: those of all that takes, with the directory's name;
 * QR_E_INVALID on a rank whose files are not those of rank 0. */
int qr_lora_open(struct qr_lora **out, const struct qr_model *m, struct qr_backend *be, const char *const *dir, int32_t n, int32_t n_tokens,
                 struct qr_err *err);

/* Bytes of a weights file that could fit a slot, and some more for its header. */
size_t qr_lora_file_max(const struct qr_lora *l);

/* Whether f is adapters of such a model, of ranks up to rank_max: names, shapes and types, before anything of either is loaded. Errors: QR_E_TOO_LARGE for
 * ranks, those of qr_lora_file_find and _check_used. */
int qr_lora_check(const struct qr_model_config *c, struct qr_lora_file *f, int32_t rank_max, struct qr_err *err);

/* Reads all of f, or the rank's share of it, into the slot; after an error it holds nothing of use. Errors: those of qr_lora_check. */
int qr_lora_fill(struct qr_lora *l, int32_t slot, struct qr_lora_file *f, struct qr_err *err);

/* A stretch of what another rank's slot will hold: bytes [first, first + n) of `total`. */
#define QR_LORA_PIECE_MAX ((int64_t)4 << 20)
struct qr_lora_piece {
    int32_t rank, slot;
    int64_t first, n, total;
};

/* Rank 0: packs what rank `rank`'s slot will hold of f, which qr_lora_fill has taken, where it stays until the next call. Returns its bytes. */
int64_t qr_lora_pack(struct qr_lora *l, int32_t rank, struct qr_lora_file *f);
const uint8_t *qr_lora_packed(const struct qr_lora *l);

/* On that rank: the piece takes its place; with the last one the slot is filled. Pieces come in their order. */
void qr_lora_receive(const struct qr_lora *l, const struct qr_lora_piece *p, const uint8_t *bytes);

/* Before a batch is computed: what its adapters are and a device does not have yet goes there. The host does not wait. */
void qr_lora_bring(struct qr_exec *x);

/* out += what the batch's rows have for w, from the product's input. */
void qr_lora_apply(struct qr_exec *x, struct qr_tensor *out, const struct qr_tensor *in, const struct qr_weight *w);

#endif
