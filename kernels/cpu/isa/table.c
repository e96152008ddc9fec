/* table.c - the entries of kernels.h at avx2 and avx512. */
#include "kernels/cpu/isa/coded/coded.h"
#include "kernels/cpu/isa/isa.h"

const struct qr_kernels QR_ISA_NAME(kernels) = {
    .name = QR_ISA_TEXT(QR_ISA),
    .linear = QR_ISA_NAME(linear),
    .rms_norm = QR_ISA_NAME(rms_norm),
    .head_norm = QR_ISA_NAME(head_norm),
    .residual_add = QR_ISA_NAME(residual_add),
    .embed = QR_ISA_NAME(embed),
    .rope_table = QR_ISA_NAME(rope_table),
    .rope = QR_ISA_NAME(rope),
    .kv_write = QR_ISA_NAME(kv_write),
    .qkv = QR_ISA_NAME(qkv),
    .chain = QR_ISA_NAME(chain),
    .kv_copy = QR_ISA_NAME(kv_copy),
    .attention = QR_ISA_NAME(attention),
    .glu = QR_ISA_NAME(glu),
    .gather_rows = QR_ISA_NAME(gather_rows),
    .pick_columns = qr_cpu_pick_columns,
    .adapt = QR_ISA_NAME(adapt),
    .route = QR_ISA_NAME(route),
    .experts = QR_ISA_NAME(experts),
    .layer_norm = QR_ISA_NAME(layer_norm),
    .unit = QR_ISA_NAME(unit),
    .softcap = QR_ISA_NAME(softcap),
    .linear_packed_bytes = QR_ISA_NAME(linear_packed_bytes),
    .linear_pack = QR_ISA_NAME(linear_pack),
    .linear_pack_coded = QR_CODED_NAME(linear_pack_coded),
    .stored = &QR_ISA_NAME(stored_ops),
};
