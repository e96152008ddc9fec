/* quantized_tensors.h - matrices that a Hugging Face checkpoint stores quantized, each as several tensors: codes, scales, maybe zeros, an order of inputs.
 *
 * w[o,i] = scale[o,g] (code[o,i] - zero[o,g]), where g is the group of input i (or the block of both). How they lie:
 *     GPTQ       qweight I32 [I bits/32, O], inputs from the low bits up; qzeros I32 [G, O bits/32] (one less than the zero, but in "gptq_v2");
 *                scales [G, O]; g_idx I32 [I], the group of each input
 *     AWQ        qweight I32 [I, O/8], outputs 0 2 4 6 1 3 5 7 of eight from the low bits up; qzeros in the same order [G, O/8]; scales [G, O]
 *     packed     weight_packed I32 [O, I bits/32], 8 or 128 above the code; weight_scale [O, G]; weight_zero_point I32 [O bits/32, G], outputs from the
 *                low bits up; weight_g_idx; weight_shape I64 [2], O and I, which shows the bits, too (compressed-tensors' pack-quantized)
 *     bytes      weight I8 or F8_E4M3 [O, I]; weight_scale (or weight_scale_inv: the same) for all, [O], [O, G], or for blocks of outputs and inputs;
 *                weight_zero_point
 *     MXFP4      stacks of experts' matrices: X_blocks U8 [E, O, I/32, 16], E2M1 codes, inputs from the low bits up; X_scales U8
 *                [E, O, I/32], E8M0; no zeros. The set gets X, [E, O, I], which expert_stacks.h takes apart
 * The set gets a tensor X.weight for each that has none, or has one of bytes.
 * Sources: the layouts as GPTQModel, AutoAWQ, compressed-tensors and transformers write them, as facts; tested against compressed-tensors itself and against
 * files packed by code of its own (tools/golden/quantized.py).
 */
#ifndef QR_LOADER_STORES_QUANTIZED_TENSORS_H
#define QR_LOADER_STORES_QUANTIZED_TENSORS_H

#include "base/json.h"
#include "loader/config/hf_field.h"
#include "loader/model_config.h"
#include "loader/stores/tensor_files.h"

/* Reads quantization_config (or compression_config, as it was called) of a config.json. Errors: QR_E_UNSUPPORTED for what cannot be read here, by name, with
 * what can. */
int qr_hf_quant_read(struct qr_quant_scheme *out, const struct qr_hf_obj *config);

/* The same where config.json says nothing: DIR/quantize_config.json of AutoGPTQ, or quant_config.json of AutoAWQ, from before it had a place for that. Requires
 * a scheme of none; it stays so when there is no such file, or one of something else. */
int qr_hf_quant_read_beside(struct qr_quant_scheme *out, const char *dir, struct qr_err *err);

/* As quant_method has it: "gptq". */
const char *qr_quant_method_name(enum qr_quant_method method);

/* Puts together what the scheme says is quantized. Errors: QR_E_DAMAGED names the tensor, what is missing or has another shape or type, and what was
 * expected. */
int qr_quantized_tensors_find(struct qr_tensor_files *st, const struct qr_quant_scheme *s, struct qr_err *err);

/* The tensors that make one up: codes, scales, and zeros, order and shape or NULL. */
#define QR_QUANTIZED_PARTS 5
const struct qr_stored_tensor *qr_quantized_part(const struct qr_stored_tensor *t, int i);

/* The coded type (kernels.h, linear_pack_coded) that keeps it without loss, without zeros where they are all in the middle of the codes; QR_CODED: none does
 * (inputs out of order in groups of several sizes, scales of f32 or of blocks but for FP8, FP8's with less than 128 inputs, zeros of 8 bits, groups that are
 * no multiple of 32), and it is computed with in bf16. */
enum qr_dtype qr_quantized_coded(const struct qr_stored_tensor *t);

/* In which order the coded type has the inputs (act-order: those of a group side by side): input i of it is input qr_quantized_inputs(t)[i] of the matrix, and
 * what follows counts places there. NULL: in their own. [n_in], owned by the set of tensors. */
const int32_t *qr_quantized_inputs(const struct qr_stored_tensor *t);

/* What qr_quantized_fill's codes of 4 bits stand for; NULL: 8 bits. */
const int8_t *qr_quantized_levels(const struct qr_stored_tensor *t, enum qr_dtype coded);

/* Of matrix e of a stack of them: rows row_first, row_first + row_step, ... as a matrix of its own. Owned by the set. */
const struct qr_quantized *qr_quantized_cut(struct qr_tensor_files *st, const struct qr_stored_tensor *stack, int64_t e,
                                            int64_t row_first, int64_t row_step);

/* How many times 16 rows qr_quantized_fill reads best at once: as many as share a line of memory. */
int32_t qr_quantized_together(const struct qr_stored_tensor *t);

/* Whether it can write words (struct qr_coded_rows) of rows from multiples of 8 on. */
bool qr_quantized_words(const struct qr_tensor_files *st, const struct qr_stored_tensor *t);

/* Rows [first, first + n) and inputs [at, at + n_in) as such; `at` a multiple of its groups. */
void qr_quantized_fill(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, enum qr_dtype as, const struct qr_coded_rows *to, int64_t first,
                       int64_t n, int64_t at, int64_t n_in);

/* Rows [first, first + n) as f32. Any n; 16 at a multiple of 16 are read best. */
void qr_quantized_decode(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, float *dst, int64_t first, int64_t n);

#endif
