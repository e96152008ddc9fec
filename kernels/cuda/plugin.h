/* plugin.h - the border between the program and libquire_cuda.so: what the library exports, and how the two tell that they fit together.
 *
 * The program links nothing of CUDA. Where a driver is installed it opens the library, reads the one symbol QR_CUDA_SYMBOL and uses the tables behind it as
 * it uses those of the processor; arguments and meanings are kernels.h's and backward.h's. The number QR_CUDA_ABI is raised by hand when a meaning
 * changes; qr_cuda_layout() changes by itself with the size of what both sides read. Both must be equal, or the library is refused.
 * Plain C in both languages. An entry of a table that is NULL is not there: qr_backend_supports says so before anything would call it.
 *
 * kernels/backend_cuda.c is the program's side, device.c the library's. No CUDA type may appear here.
 */
#ifndef QR_KERNELS_CUDA_PLUGIN_H
#define QR_KERNELS_CUDA_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

#define QR_CUDA_ABI 3u
#define QR_CUDA_SYMBOL "qr_cuda_plugin"

#define QR_CUDA_MESSAGE 400

struct qr_cuda_options {
    int32_t index;         /* of the device, as the driver counts those that are visible */
    int32_t step_rows_max; /* rows of the largest step: sizes the scratch memory */
    bool deterministic;    /* backend.h */
    bool keep_plans;       /* choices of products are kept in a file */
    bool plain;            /* backend.h */
    int32_t n_devices;     /* this many ranks of this machine take one each; fewer than 2: nothing is asked */
};

struct qr_cuda_facts {
    char name[128];            /* "NVIDIA H200" */
    int32_t major, minor;      /* compute capability */
    int32_t n_sms;
    int64_t memory_bytes;
    int64_t scratch_bytes;     /* held by the queue: workspaces, staging on the device */
    double bytes_s;            /* of its memory, by its clock and width; 0: not known */
};

struct qr_cuda_plugin {
    uint32_t abi;              /* first, and never moved */
    uint64_t (*layout)(void);  /* qr_cuda_layout as the library was compiled */
    const char *version;       /* QUIRE_VERSION of the build */
    const char *built_for;     /* "80 86 89 90a 120" */
    const struct qr_kernels *kernels;
    const struct qr_backward *backward;
    const struct qr_mem_ops *mem;
    const struct qr_peer_ops *peers;
    bool needs_driver;         /* false: an emulation, which libcuda.so.1 need not be there for */

    /* Opens a device for the calling thread, which becomes the only one to launch. False: `message` says what is missing. */
    bool (*open)(struct qr_queue **out, const struct qr_cuda_options *o, char message[QR_CUDA_MESSAGE]);
    void (*close)(struct qr_queue *q);
    void (*facts)(const struct qr_queue *q, struct qr_cuda_facts *out);

    /* Whether a model with these properties can be computed (arguments: qr_backend_supports); prepares for it. False: `message` says what cannot. */
    bool (*supports)(struct qr_queue *q, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim, int32_t block_tokens,
                     char message[QR_CUDA_MESSAGE]);

    /* qr_backend_prepare and qr_backend_plans; NULL: nothing is chosen. */
    void (*prepare)(struct qr_queue *q, const struct qr_linear_args *a, int32_t rows_max);
    void (*plans)(const struct qr_queue *q, char *out, size_t size);

    /* qr_backend_export_choices, _adopt_choices; NULL: nothing is chosen. */
    size_t (*export_choices)(struct qr_queue *q, char *out, size_t size);
    void (*adopt_choices)(struct qr_queue *q, const char *text);

    struct qr_backend_ways (*ways)(const struct qr_queue *q); /* NULL: there is one way */
};

/* A number that differs when the size of a struct does that both sides read. */
static inline uint64_t qr_cuda_layout(void)
{
    const size_t size[] = {QR_DTYPE_COUNT, sizeof(struct qr_cuda_plugin), sizeof(struct qr_cuda_options), sizeof(struct qr_cuda_facts),
        sizeof(struct qr_backend_ways), sizeof(struct qr_mem_ops), sizeof(struct qr_peer_ops), sizeof(struct qr_peers_options),
        sizeof(struct qr_kernels), sizeof(struct qr_backward), sizeof(struct qr_batch), sizeof(struct qr_kv_view),
        sizeof(struct qr_weight), sizeof(struct qr_linear_args), sizeof(struct qr_norm_args), sizeof(struct qr_head_norm_args), sizeof(struct qr_add_args),
        sizeof(struct qr_embed_args), sizeof(struct qr_rope_table_args), sizeof(struct qr_rope_args), sizeof(struct qr_kv_write_args),
        sizeof(struct qr_qkv_args), sizeof(struct qr_chain_args), sizeof(struct qr_kv_copy_args), sizeof(struct qr_attention_args), sizeof(struct qr_glu_args),
        sizeof(struct qr_gather_args), sizeof(struct qr_layer_norm_args), sizeof(struct qr_unit_args), sizeof(struct qr_softcap_args),
        sizeof(struct qr_route_args), sizeof(struct qr_experts_args), sizeof(struct qr_adapt_args), sizeof(struct qr_coded_source),
        sizeof(struct qr_sample_args), sizeof(struct qr_draw_row), sizeof(struct qr_logit_change),
        sizeof(struct qr_drawn_detail), sizeof(struct qr_linear_dx_args), sizeof(struct qr_linear_dw_args), sizeof(struct qr_norm_back_args),
        sizeof(struct qr_head_norm_back_args), sizeof(struct qr_attention_back_args), sizeof(struct qr_glu_back_args), sizeof(struct qr_embed_back_args),
        sizeof(struct qr_scatter_args), sizeof(struct qr_cross_entropy_args), sizeof(struct qr_adamw_args), sizeof(struct qr_momentum_args),
        sizeof(struct qr_scale_args), sizeof(struct qr_turn_args), sizeof(struct qr_move_args), sizeof(struct qr_sum_squares_args)};
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a over the sizes */
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        h = (h ^ size[i]) * UINT64_C(0x100000001b3);
    return h;
}

#endif
