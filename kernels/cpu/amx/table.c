/* table.c - the entries of kernels.h at amx: its own, and avx512's where tiles have nothing to add. */
#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/isa.h"

const struct qr_kernels qr_amx_kernels = {
    .name = "amx",
    .row_tiles = true,
    .passing_bytes = qr_amx_passing_bytes,
    .linear = qr_amx_linear,
    .rms_norm = qr_avx512_rms_norm,
    .head_norm = qr_avx512_head_norm,
    .residual_add = qr_avx512_residual_add,
    .embed = qr_amx_embed,
    .rope_table = qr_avx512_rope_table,
    .rope = qr_avx512_rope,
    .kv_write = qr_amx_kv_write,
    .qkv = qr_amx_qkv,
    .chain = qr_amx_chain,
    .kv_copy = qr_amx_kv_copy,
    .attention = qr_amx_attention,
    .glu = qr_avx512_glu,
    .gather_rows = qr_avx512_gather_rows,
    .pick_columns = qr_cpu_pick_columns,
    .adapt = qr_avx512_adapt,
    .route = qr_avx512_route,
    .experts = qr_amx_experts,
    .layer_norm = qr_avx512_layer_norm,
    .unit = qr_avx512_unit,
    .softcap = qr_avx512_softcap,
    .linear_packed_bytes = qr_amx_linear_packed_bytes,
    .linear_pack = qr_amx_linear_pack,
    .linear_pack_coded = qr_amx_linear_pack_coded,
    .stored = &qr_avx512_stored_ops,
};
