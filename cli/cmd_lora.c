/* cmd_lora.c - adapters and the models they belong to. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "cli/cli.h"
#include "train/lora.h"

struct merge_options {
    bool quiet;
};

/* What is not there is called by its own name, not by that of a file in it. */
static int merge(const char *base, const char *adapter, const char *out, struct qr_err *err)
{
    const struct qr_cli_model model = {.model = base};
    struct stat st;
    int rc = qr_cli_need_model(&model, err);
    if (rc == 0 && stat(adapter, &st) != 0)
        rc = qr_err_set(err, QR_E_NOT_FOUND, "adapter not found: '%s' (%s)", adapter, strerror(errno));
    return rc ? rc : qr_lora_merge(base, adapter, out, err);
}

static int merge_main(int argc, char **argv)
{
    static const struct qr_option table[] = {
        {.name = "quiet", .letter = 'q', .type = QR_OPT_FLAG, .offset = offsetof(struct merge_options, quiet), .builtin = "false",
         .help = "Say nothing when all is well."}};
    struct merge_options o = {0};
    struct qr_option_set *set;
    struct qr_err err;
    const char *const *args;
    int status = qr_cli_read_args(&set, table, QR_COUNT(table), &o, argc, argv,
                                  "quire lora merge BASE ADAPTER OUT\n\nAdds LoRA adapters (a directory with adapter_config.json and\n"
                                  "adapter_model.safetensors, as quire train and PEFT write them, or a GGUF file) to the\n"
                                  "matrices of the model directory BASE. OUT, which must not be there, is an ordinary model\ndirectory.");
    if (status >= 0)
        return status;
    const int32_t n = qr_options_args(set, &args);
    int rc = n == 3 ? merge(args[0], args[1], args[2], &err)
                    : qr_err_set(&err, QR_E_USAGE, "%d arguments, expected three: quire lora merge BASE ADAPTER OUT", n);
    if (rc == 0 && !o.quiet)
        printf("the model is in %s: quire serve --model %s\n", args[2], args[2]);
    status = rc ? qr_cli_fail("lora merge", &err) : 0;
    qr_options_free(set);
    return status;
}

int qr_cmd_lora(int argc, char **argv)
{
    static const struct qr_cli_command table[] = {{"merge", merge_main, "a model with adapters added, to be served"}};
    return qr_cli_group(table, QR_COUNT(table), argc, argv);
}
