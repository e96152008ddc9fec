/* quantized_dir.h - a model's directory with its matrices rounded, as `quire quantize` writes it: for tests. */
#ifndef TESTS_LOADER_QUANTIZED_DIR_H
#define TESTS_LOADER_QUANTIZED_DIR_H

#include <criterion/criterion.h>

#include "base/buf.h"
#include "base/file.h"
#include "loader/config/hf_config.h"
#include "loader/write/quantize.h"

static inline void quantized_dir_write(const char *dir, const struct qr_tensor_files *st, const struct qr_model_config *c,
                                       const struct qr_quantize_options *o, struct qr_quantize_report *report)
{
    char path[QR_PATH_MAX];
    struct qr_buf config = {0}, text = {0};
    struct qr_err err;
    qr_hf_config_write(&config, c);
    cr_assert_eq(qr_quantize_config(&text, config.data, config.len, c, o, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_path_join(path, dir, "config.json", &err), 0);
    cr_assert_eq(qr_file_write(path, text.data, text.len, false, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_path_join(path, dir, "model.safetensors", &err), 0);
    cr_assert_eq(qr_quantize_write(path, st, c, o, report, &err), 0, "%s", err.msg);
    qr_buf_release(&config);
    qr_buf_release(&text);
}

#endif
