/* cmd_lora.c - adapters and the models they belong to. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "cli/cli.h"
#include "train/variants/lora.h"

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

static const struct qr_option table[] = {
    {.name = "quiet", .brief = true, .letter = 'q', .type = QR_OPT_FLAG, .offset = offsetof(struct merge_options, quiet), .builtin = "false",
     .help = "Say nothing when all is well."}};

static const struct qr_command merge_command;

static int merge_main(int argc, char **argv)
{
    struct merge_options o = {0};
    struct qr_option_set *set;
    struct qr_err err;
    const char *const *args;
    int status = qr_command_read(&set, &merge_command, &o, argc, argv);
    if (status >= 0)
        return status;
    const int32_t n = qr_options_args(set, &args);
    int rc = n == 3 ? merge(args[0], args[1], args[2], &err)
                    : qr_err_set(&err, QR_E_USAGE, "%d arguments, expected three: quire lora merge BASE ADAPTER OUT", n);
    if (rc == 0 && !o.quiet)
        printf("the model is in %s: quire serve --model %s\n", args[2], args[2]);
    status = rc ? qr_command_fail("lora merge", &err) : 0;
    qr_options_free(set);
    return status;
}

static const struct qr_command merge_command = {
    .name = "lora merge", .purpose = "a model with adapters added, to be served",
    .usage = "quire lora merge BASE ADAPTER OUT",
    .examples = "quire lora merge qwen runs/my-adapter/final qwen-merged\n"
                "quire serve qwen-merged",
    .text = "Adds LoRA adapters (a directory with adapter_config.json and adapter_model.safetensors, as quire train and PEFT\n"
            "write them, or a GGUF file) to the matrices of the model directory BASE. OUT, which must not exist, becomes an\n"
            "ordinary model directory.",
    .table = table, .n_options = QR_COUNT(table), .main = merge_main,
};

static const struct qr_command *const sub[] = {&merge_command};

static int lora_main(int argc, char **argv)
{
    return qr_cli_group(&qr_cmd_lora, argc, argv);
}

const struct qr_command qr_cmd_lora = {
    .name = "lora", .purpose = "adapters of a training run: merge them into their model",
    .usage = "quire lora COMMAND ...",
    .main = lora_main, .sub = sub, .n_sub = QR_COUNT(sub),
};
