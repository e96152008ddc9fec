/* model.h - a model directory opened for computing: configuration, packed weights, one forward.
 * Immutable once open; any thread may read it. The forward runs on the thread that owns the exec.
 */
#ifndef QR_MODEL_MODEL_H
#define QR_MODEL_MODEL_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "comm/comm.h"
#include "kernels/backend.h"
#include "kernels/batch.h"
#include "loader/model_config.h"
#include "model/kv_split.h"
#include "model/ops.h"

enum qr_compute { QR_COMPUTE_AUTO, QR_COMPUTE_F32, QR_COMPUTE_BF16 };
enum qr_kv_cache { QR_KV_CACHE_AUTO, QR_KV_CACHE_F32, QR_KV_CACHE_BF16, QR_KV_CACHE_INT8, QR_KV_CACHE_FP8 /* on GPUs */ };

/* Formats of rounded weights, and their names for an option table. int8, int4 and fp8 round activations, too (kernels.h, linear); the others stand for coded
 * types (qr_quantize_dtype), whose weights alone are rounded (kernels/code_numbers.h). */
enum qr_quantize {
    QR_QUANTIZE_NONE,
    QR_QUANTIZE_INT8, QR_QUANTIZE_INT8_G32, QR_QUANTIZE_INT8_G64, QR_QUANTIZE_INT8_G128,
    QR_QUANTIZE_INT4, QR_QUANTIZE_INT4_G64, QR_QUANTIZE_INT4_G128,
    QR_QUANTIZE_W8A16, QR_QUANTIZE_W4A16, QR_QUANTIZE_W4A16_G64, QR_QUANTIZE_W4A16_G128,
    QR_QUANTIZE_COUNT,               /* of those that every device has */
    QR_QUANTIZE_FP8 = QR_QUANTIZE_COUNT, /* GPUs only */
};
#define QR_QUANTIZE_CHOICES "none|int8|int8-g32|int8-g64|int8-g128|int4|int4-g64|int4-g128|w8a16|w4a16|w4a16-g64|w4a16-g128"
#define QR_QUANTIZE_ALL_CHOICES QR_QUANTIZE_CHOICES "|fp8"

/* The type of a format. Requires t != QR_QUANTIZE_NONE. */
enum qr_dtype qr_quantize_dtype(enum qr_quantize t);

/* Memory before anything is loaded: reads the configuration and the headers of the weight files only. */
struct qr_model_plan {
    struct qr_model_config config;     /* ctx_max as it would be opened, n_kv_heads as this rank has them */
    struct qr_model_config own;        /* what of it is this rank's (loader/pack/share.h) */
    int32_t n_ranks;
    enum qr_dtype weight_dtype, kv_dtype;
    size_t weight_bytes, table_bytes;  /* packed weights; the embedding's rows, mapped from the file */
    size_t file_bytes;                 /* of its files, which are mapped until weights are packed */
    size_t kv_token_bytes;             /* keys and values of one token, all layers */
    size_t int8_bytes, int4_bytes;     /* weights and rows were they rounded to that; then a tied head shares no rows with the embedding */
    size_t act_bytes, adapted_act_bytes; /* the step arena; where rows may have adapters, the larger of the two */
};

struct qr_source;
struct qr_model_options {
    enum qr_compute compute; /* type of unquantized weights; AUTO: as stored, f16 as bf16 when that loses nothing, else f32 */
    enum qr_quantize quantize; /* rounds the matrices to integers while loading, straight from what is stored (4 bits: the head to 8);
                                * `compute` then says nothing */
    enum qr_kv_cache kv_cache; /* type of keys and values; AUTO: f32 when computing in f32, bf16 otherwise */
    struct qr_source *source; /* borrowed: the model, opened already (its vocabulary is read by others); NULL: opened here */
    /* Called before weights are loaded, or NULL; what it returns but 0 ends the opening. The plan's step: plan_tokens rows, plan_logits of logits. */
    int (*admit)(void *user, const struct qr_model_plan *plan, struct qr_err *err);
    void *admit_user;        /* borrowed */
    int32_t plan_tokens, plan_logits;
    void (*progress)(void *user, uint64_t done, uint64_t total); /* of loading: bytes of files packed so far; or NULL */
    void *progress_user;     /* borrowed */
    const char *cache_packed; /* a directory for packed copies of weights, so that the next opening need not pack (borrowed); NULL: none */
    bool embeds;             /* rows are wanted as embeddings, so that a model without a head will do (model_config.h, headless) */
    int32_t ctx_max;         /* 0: the configuration's maximum; more than that only as far as rope scaling stretches it */
    struct qr_comm *comm;    /* borrowed: the ranks that the model is shared out to (ranks.h); all open it alike. NULL: none */
    int32_t n_ranks;         /* for a plan, which then is rank 0's: as many ranks; 0: as many as comm has, or one */
};

#define QR_HIDDEN_SPARE 128 /* floats: what aligning a few more tensors to 64 bytes can take */

struct qr_device_comm; /* comm/device_comm.h */
struct qr_model; /* opaque */
struct qr_ranks; /* ranks.h */
struct qr_share; /* loader/pack/share.h */
struct qr_weights;
struct qr_lora;

/* All that an op may reach; one per rank. Made by qr_exec_init, used by one thread, released before its backend. */
struct qr_exec {
    const struct qr_ops *ops;
    struct qr_backend *be;         /* borrowed */
    struct qr_arena *act;          /* borrowed: the step arena */
    const struct qr_batch *batch;  /* set for each step: arrays where kernels read them */
    const struct qr_kv_view *kv;   /* borrowed */
    const struct qr_kv_split *split; /* borrowed: batches have tables and slots of all its parts, kv blocks of its layers; NULL: blocks have all layers */
    const struct qr_model *model;  /* borrowed */
    struct qr_ranks *ranks;        /* owned; NULL: this is the only one */
    const struct qr_lora *lora;    /* borrowed, or NULL: no row has an adapter */
    uint8_t *kv_host;              /* borrowed, the host's, or NULL: the cache's second tier, whose blocks follow those of kv by their numbers */
    struct qr_tensor cos_sin, local_cos_sin; /* this step's rotary tables; the second where the model has one */
    struct qr_stretches stretches; /* of this step's logits, in the arena; largest NULL: the verbs say nothing of them */
    struct qr_tensor hidden;       /* [n_hidden, D] f32, in the arena: this step's rows as they left the last norm (qr_batch.hidden_row) */
    bool unfused;                  /* products one by one, norms and gates apart: something reads or adds between them (adapters, watch) */
    void (*watch)(void *user, const struct qr_tensor *in, const struct qr_weight *w); /* sees the input of each product in the layers; or NULL */
    void *watch_user;              /* borrowed */
    _Atomic int64_t *beat_us;      /* borrowed, or NULL: gets the time (qr_clock_us) as each layer ends: a step of a large model may take minutes */
    enum qr_dtype real;            /* what activations are: f32; f64 where the reference kernels are compiled in double */
    struct qr_batch placed;        /* the batch, when its arrays had to be copied to a device */
    struct qr_repeat *repeat;      /* owned [QR_REPEATS_MAX]: steps that a device repeats (repeat.h); NULL before the first */
    int32_t n_repeats;
    void *arrays;                  /* owned: these copies; NULL on the processor */
    size_t arrays_bytes;
};

/* Reads DIR/config.json, generation_config.json and *.safetensors, checks them, packs the weights for `be` (borrowed). Errors name
 * the file, the offset or field, what was found and what was expected. */
int qr_model_open(struct qr_model **out, const char *dir, struct qr_backend *be, const struct qr_model_options *options,
                  struct qr_err *err);

/* A model over weights that the caller owns and may change between steps (the trainer): nothing is read or loaded. `w` and what it points to
 * must outlive the model; its layers' vectors are f32 (f64 with f64 matrices). Errors: those of
 * qr_backend_supports. */
int qr_model_over(struct qr_model **out, const struct qr_model_config *c, const struct qr_weights *w, struct qr_backend *be, struct qr_err *err);
void qr_model_close(struct qr_model *m); /* NULL is fine */

/* ctx_max in it is the context that the model was opened with. Of the whole model, whatever of it is this rank's. */
const struct qr_model_config *qr_model_config(const struct qr_model *m);

/* What of it is this rank's (loader/pack/share.h), and the ranks that have the rest, or NULL. */
const struct qr_share *qr_model_share(const struct qr_model *m);
struct qr_comm *qr_model_comm(const struct qr_model *m);
struct qr_device_comm *qr_model_device_comm(const struct qr_model *m); /* NULL: on the processor, or one rank */
bool qr_model_on_device(const struct qr_model *m);                     /* its backend's memory is not the host's */

/* Where neither config.json nor generation_config.json names an end token: the tokenizer's (-1: it has none either). Before the model is used. */
void qr_model_default_eos(struct qr_model *m, int32_t id);
const struct qr_weights *qr_model_weights(const struct qr_model *m);
enum qr_dtype qr_model_weight_dtype(const struct qr_model *m); /* what matrices were packed as: f32, bf16, or quantized */
enum qr_dtype qr_model_kv_dtype(const struct qr_model *m);  /* f32, bf16, int8 (QR_I8) or fp8 (QR_E4M3) */
int64_t qr_model_weight_bytes(const struct qr_model *m);    /* memory held for packed weights and embeddings */

/* Bytes of step arena that a step of n_tokens rows and n_logits rows of logits takes, exactly, and the most that any smaller step
 * takes. The arena's memory must be 64-byte aligned. */
size_t qr_model_act_bytes(const struct qr_model *m, int32_t n_tokens, int32_t n_logits);

/* The same where x->unfused: of steps in which rows have adapters, or whose inputs are watched. */
size_t qr_model_unfused_act_bytes(const struct qr_model *m, int32_t n_tokens, int32_t n_logits);

/* Memory for a step arena: be's, or where several ranks compute, such that all reach. Freed before the model is closed, and before its comm. */
void *qr_model_act_alloc(const struct qr_model *m, struct qr_backend *be, size_t n_bytes);
void qr_model_act_free(const struct qr_model *m, struct qr_backend *be, void *p); /* NULL is fine */

/* A view of `base` as this model's cache with n_blocks blocks; base holds n_blocks * qr_kv_block_bytes(). */
struct qr_kv_view qr_model_kv_view(const struct qr_model *m, void *base, int32_t n_blocks, int32_t block_tokens);

void qr_exec_init(struct qr_exec *x, const struct qr_model *m, struct qr_backend *be, struct qr_arena *act, const struct qr_kv_view *kv);
void qr_exec_release(struct qr_exec *x); /* also of a zeroed one */

/* b becomes x->batch, as qr_model_forward has it: itself on the processor; else a copy of its arrays in one transfer, b as its `host`. b is borrowed until the
 * next one. Allocates only for a batch larger than any before. */
void qr_exec_set_batch(struct qr_exec *x, const struct qr_batch *b);

/* What qr_model_open would take, and nothing else. */
int qr_model_plan(struct qr_model_plan *out, const char *dir, struct qr_backend *be, const struct qr_model_options *options,
                  int32_t n_tokens, int32_t n_logits, struct qr_err *err);

/* The step: rewinds the arena, computes the batch, returns logits [n_logits, V] f32 in the arena, and what x->stretches says of them (valid until the
 * next call; kernels' memory: see qr_backend_read), and hidden rows in x->hidden, valid as long; n_logits + n_hidden rows fit into
 * an arena for as many rows of logits where the vocabulary is larger than D by QR_HIDDEN_SPARE. With several ranks rank 0 calls it, and the others follow
 * (ranks.h); when one of them is lost the numbers mean nothing, and qr_exec_lost says so. */
struct qr_tensor qr_model_forward(struct qr_exec *x, const struct qr_batch *batch);

/* Before the first step, on the thread that owns the backend: whatever a device chooses for this model's matrices, for steps of up to rows_max rows of which
 * up to logits_max want logits (qr_backend_prepare). */
void qr_model_prepare(const struct qr_model *m, struct qr_backend *be, int32_t rows_max, int32_t logits_max);

/* Block dst of the cache becomes a copy of block src before the next step, on every rank. */
void qr_model_kv_copy(struct qr_exec *x, int32_t src, int32_t dst);

/* The same between the tiers, of which each of the two is one: the copy is enqueued, and the host does not wait.
 * Copies and moves are done in the order of these calls. */
void qr_model_kv_move(struct qr_exec *x, int32_t from, int32_t to);

#endif
