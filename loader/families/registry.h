/* registry.h - the model families that there are, a line each: the number that a configuration has of one, and the row
 * (family.h) in the file of that name.
 *
 * Numbers stay inside a process: files know families by their names. Nothing outside loader/families/ asks which
 * family a model is of; what a family does otherwise than others are flags and numbers of struct qr_model_config.
 */
#ifndef QR_LOADER_FAMILIES_REGISTRY_H
#define QR_LOADER_FAMILIES_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

struct qr_err;

#define QR_FAMILIES(ROW) \
    ROW(LLAMA, llama) \
    ROW(MISTRAL, mistral) \
    ROW(QWEN2, qwen2) \
    ROW(QWEN3, qwen3) \
    ROW(PHI3, phi3) \
    ROW(SMOLLM3, smollm3) \
    ROW(GRANITE, granite) \
    ROW(GEMMA, gemma) \
    ROW(MIXTRAL, mixtral) \
    ROW(QWEN2_MOE, qwen2_moe) \
    ROW(QWEN3_MOE, qwen3_moe) \
    ROW(GEMMA2, gemma2) \
    ROW(GEMMA3, gemma3) \
    ROW(STABLELM, stablelm) \
    ROW(GPT2, gpt2) \
    ROW(OLMO2, olmo2) \
    ROW(OLMO3, olmo3) \
    ROW(SEED_OSS, seed_oss) \
    ROW(GPT_OSS, gpt_oss)

#define QR_FAMILY_NUMBER(NUMBER, file) QR_ARCH_##NUMBER,
enum qr_arch { QR_FAMILIES(QR_FAMILY_NUMBER) QR_ARCH_COUNT };

/* The row of a number, and the number of a model_type ("qwen3_moe"), which must be a family's. */
const struct qr_family *qr_family_of(enum qr_arch arch);
enum qr_arch qr_arch_of_type(const char *model_type);

/* What a model is published with behind its last norm: a head, nothing (embedding models), or a classifier. */
enum qr_published { QR_WITH_HEAD, QR_WITHOUT_HEAD, QR_WITH_CLASSIFIER, QR_PUBLISHED_COUNT };

/* Finds the family that config.json calls `name` (an entry of architectures, or a model_type where by_type); false:
 * there is none. *model, when not NULL, is what the family calls the model. */
bool qr_arch_find(enum qr_arch *out, const char *name, bool by_type, enum qr_published *as, char model[64]);

/* Finds the family of a GGUF file's general.architecture; false: there is none. Several families share one name:
 * files of Mistral and Mixtral are called llama, and `experts` chooses between them where it can. */
bool qr_arch_find_gguf(enum qr_arch *out, const char *name, bool experts);

/* The row of the one whose names of tensors include those of the others, NULL: none. */
const struct qr_family *qr_family_in_gguf(const char *name);

/* "LlamaForCausalLM" */
void qr_arch_name(enum qr_arch arch, char text[64]);

/* Fills err where `found`, which `where` names in a file, is no family's: with the name that is most like it (spelt nearly
 * so, or its beginning) and all there are, of config.json or of GGUF files. `more` stands behind `found`. */
int qr_arch_refuse(struct qr_err *err, const char *where, const char *found, const char *more, bool gguf);

#endif
