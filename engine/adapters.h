/* adapters.h - the adapters that an engine holds: loaded and unloaded by name while it runs. Part of what engine.h shows; all of it may be called by any
 * thread.
 *
 * Memory for `lora_slots` of them was allocated when the engine opened. A load reads its files on the calling thread, into a slot that no request uses, so
 * that the engine thread neither waits nor allocates; a load that fails leaves no trace. An unloaded adapter is not found any more at once, while requests
 * that were accepted before go on with it; its slot is free when the last of them has ended. An id is never used twice, so a request made for an
 * adapter that is gone is refused, not given another one's answers.
 *
 * With several ranks (follow.h) the calling thread packs the others' slots, too, one after the other, and the engine thread sends them between steps, a piece
 * (QR_LORA_PIECE_MAX) at a time; a load is done when the last one has been sent. Others neither read files nor refuse anything, so that an adapter is there on
 * all ranks or on none.
 */
#ifndef QR_ENGINE_ADAPTERS_H
#define QR_ENGINE_ADAPTERS_H

#include "engine/engine.h"

#define QR_ADAPTER_NAME_MAX 128 /* with its end */
#define QR_ADAPTERS_MAX 256

struct qr_adapter_source {
    const char *name;    /* 1 to 127 bytes, none of them a control character */
    const char *dir;     /* adapter_config.json and adapter_model.safetensors (loader/adapters/lora.h) */
    const char *root;    /* both must lie below this directory; NULL: anywhere */
    bool replace;        /* an adapter of that name gives way; else that is an error */
};

/* Errors: QR_E_USAGE (no slots), QR_E_INVALID with param "lora_name" (no name, or one that is taken), QR_E_BUSY (all slots in use), and
 * those of qr_lora_file_open and qr_lora_fill; QR_E_CLOSED while the engine ends or after it has lost a rank. */
int qr_engine_load_adapter(struct qr_engine *e, const struct qr_adapter_source *source, struct qr_err *err);

/* QR_E_NOT_FOUND with param "lora_name". */
int qr_engine_unload_adapter(struct qr_engine *e, const char *name, struct qr_err *err);

/* The id for qr_request.adapter, 0: none of that name. */
uint64_t qr_engine_find_adapter(const struct qr_engine *e, const char *name);

struct qr_adapter_info {
    char name[QR_ADAPTER_NAME_MAX];
    uint64_t id;
    int32_t rank;                /* the largest */
    bool leaving;                /* unloaded, and waits for the requests inside */
    int64_t loaded_s;            /* wall clock */
    uint64_t n_inside;           /* requests that have not ended */
    uint64_t n_requests, prompt_tokens, output_tokens; /* since it was loaded */
};

/* Those that are loaded or leaving, in the order of ids; returns how many there are, at most the slots. */
int32_t qr_engine_adapters(const struct qr_engine *e, struct qr_adapter_info *out, int32_t n_max);

/* Bytes that slots and what they share take on rank 0 of n_ranks, whose own share of the model that is; 0 without slots. */
int64_t qr_engine_lora_bytes(const struct qr_engine_config *c, const struct qr_model_config *own, int32_t n_ranks, enum qr_dtype weights);

#endif
