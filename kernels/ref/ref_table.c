#include "kernels/ref/ref.h"

const struct qr_kernels QR_REF(kernels) = {
    .name = QR_REF_TABLE_NAME,
    .linear = QR_REF(linear),
    .rms_norm = QR_REF(rms_norm),
    .head_norm = QR_REF(head_norm),
    .residual_add = QR_REF(residual_add),
    .embed = QR_REF(embed),
    .rope_table = QR_REF(rope_table),
    .rope = QR_REF(rope),
    .kv_write = QR_REF(kv_write),
    .qkv = QR_REF(qkv),
    .chain = QR_REF(chain),
    .kv_copy = QR_REF(kv_copy),
    .attention = QR_REF(attention),
    .glu = QR_REF(glu),
    .gather_rows = QR_REF(gather_rows),
    .adapt = QR_REF(adapt),
    .linear_packed_bytes = QR_REF(linear_packed_bytes),
    .linear_pack = QR_REF(linear_pack),
    .linear_pack_coded = QR_REF(linear_pack_coded),
};
