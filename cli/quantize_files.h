/* quantize_files.h - what stands beside the weights of a quantized model: its configuration, its tokenizer, and what else the model's directory has for
 * programs that compute with it. Only files of known names are copied, none that could be run.
 */
#ifndef QR_CLI_QUANTIZE_FILES_H
#define QR_CLI_QUANTIZE_FILES_H

#include "base/buf.h"
#include "base/files/source.h"
#include "loader/write/quantize.h"

struct qr_quantize_files {
    struct qr_buf names; /* ", "-separated: what was written */
    const char *dir;     /* borrowed while writing */
};
void qr_quantize_files_release(struct qr_quantize_files *f);

/* Whether all of it can be written, before anything is computed: a GGUF file's vocabulary has to be one that a tokenizer.json can say. */
int qr_quantize_files_check(const struct qr_source *source, struct qr_err *err);

/* config.json with its quantization_config, the tokenizer's files (of a GGUF file: told anew), and the rest. */
int qr_quantize_files_write(struct qr_quantize_files *f, const char *dir, const struct qr_source *source, const struct qr_model_config *c,
                            const struct qr_quantize_options *how, struct qr_err *err);

/* Whether `dir` may be replaced: nothing is there, or a directory that is empty or holds a quantized model and nothing that these do not write. Anything else
 * may be the user's work. Errors: QR_E_USAGE with what is there; those of reading. */
int qr_quantize_files_replaceable(const char *dir, struct qr_err *err);

/* Removes `dir`, which was written by these, perhaps not to its end, or by an earlier run: its files, and what it has of the stages that its modules.json
 * names. Errors: those of qr_dir_remove, where another directory is in it, which stays. */
int qr_quantize_files_remove(const char *dir, struct qr_err *err);

/* Marks `dir` as in use, also for processes to which this one's number means nothing: for as long as the file that is
 * returned is open. -1: another one says so, or the file system has no locks. */
int qr_quantize_files_hold(const char *dir);

/* Removes what runs that were killed have left beside OUT: directories named as `spare` (".saving-OUT.PID") of
 * processes that are no more, which no process holds, which are the user's own and hold nothing that these do not
 * write. What is removed, and what stays, is a line in the log each. */
void qr_quantize_files_clean(const char *spare);

#endif
