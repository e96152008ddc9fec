/* cmd_check.c - check: explain a model file without loading it. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "loader/check.h"

struct check_options {
    const char *model;
    bool json;
};

int qr_cmd_check(int argc, char **argv)
{
    static const struct qr_option table[] = {
        {.name = "model", .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct check_options, model), .arg = "PATH",
         .help = "Model directory, *.safetensors or GGUF file; may also be given without the flag."},
        {.name = "json", .type = QR_OPT_FLAG, .offset = offsetof(struct check_options, json), .builtin = "false", .help = "One JSON object."}};
    struct check_options o = {0};
    struct qr_option_set *set;
    int status = qr_cli_read(&set, table, QR_COUNT(table), &o, argc, argv,
                             "quire check PATH\n\nExplains a model directory or file without loading it: configuration, tensors, problems with byte offsets,\n"
                             "whether and how it would run. Exit status 0 when it would run, 4 when it would not.");
    if (status >= 0)
        return status;
    const char *const *args;
    int32_t n = qr_options_args(set, &args);
    const char *path = o.model ? o.model : n == 1 ? args[0] : NULL;
    struct qr_err err;
    struct qr_buf out;
    qr_buf_init(&out);
    int rc = path ? qr_model_check(&out, path, o.json, &err) : qr_err_set(&err, QR_E_USAGE, "name one model directory or file: quire check PATH");
    if (out.len > 0)
        fwrite(out.data, 1, out.len, stdout);
    status = rc == 0 ? 0 : qr_cli_fail(argv[0], &err);
    qr_buf_release(&out);
    qr_options_free(set);
    return status;
}
