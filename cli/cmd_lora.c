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
    struct qr_progress progress = {0};
    int rc = qr_cli_need_model(&model, err);
    if (rc == 0 && stat(adapter, &st) != 0)
        rc = qr_err_set(err, QR_E_NOT_FOUND, "adapter not found: '%s' (%s)", adapter, strerror(errno));
    if (rc)
        return rc;
    rc = qr_lora_merge(base, adapter, out, &progress, err);
    qr_progress_end(&progress);
    return rc;
}

static const struct qr_option table[] = {
    {.name = "quiet", .brief = true, .letter = 'q', .type = QR_OPT_FLAG, .offset = offsetof(struct merge_options, quiet), .builtin = "false",
     .help = "Say nothing when all is well."}};

static int run_merge(struct qr_command_run *r, struct qr_err *err)
{
    const struct merge_options *o = r->options;
    if (r->n_args != 3)
        return qr_err_set(err, QR_E_USAGE, "%d arguments, expected three: quire lora merge BASE ADAPTER OUT", r->n_args);
    const int rc = merge(r->args[0], r->args[1], r->args[2], err);
    if (rc == 0 && !o->quiet)
        printf("the model is in %s: quire serve --model %s\n", r->args[2], r->args[2]);
    return rc;
}

static const struct qr_command merge_command = {
    .name = "lora merge", .purpose = "a model with adapters added, to be served",
    .usage = "quire lora merge BASE ADAPTER OUT",
    .examples = "quire lora merge qwen runs/my-adapter/final qwen-merged\n"
                "quire serve qwen-merged",
    .text = "Adds LoRA adapters (a directory with adapter_config.json and adapter_model.safetensors, as quire train and PEFT\n"
            "write them, or a GGUF file) to the matrices of the model directory BASE. OUT, which must not exist, becomes an\n"
            "ordinary model directory.",
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct merge_options), .run = run_merge,
};

static const struct qr_command *const sub[] = {&merge_command};

const struct qr_command qr_cmd_lora = {
    .name = "lora", .purpose = "adapters of a training run: merge them into their model",
    .usage = "quire lora COMMAND ...",
    .sub = sub, .n_sub = QR_COUNT(sub),
};
