/* cmd_check.c - check: explain a model file without loading it. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/files/source.h"
#include "cli/cli.h"
#include "loader/check/check.h"
#include "tokenizer/chat.h"

struct check_options {
    const char *model;
    struct qr_hub_options hub;
    bool json, all, hash;
};

/* The tokenizer and the template, opened as a server would. Nothing where the model itself cannot be opened. */
static void look_at_tokenizer(struct qr_check_tokenizer *t, const char *path)
{
    struct qr_source *source;
    struct qr_tokenizer *tokenizer = NULL;
    struct qr_chat *chat = NULL;
    struct qr_err said_elsewhere;
    if (qr_source_open(&source, path, &said_elsewhere) != 0)
        return;
    if (qr_tokenizer_open_from(&tokenizer, source, &t->err) == 0) {
        t->n_ids = qr_tokenizer_vocab_size(tokenizer);
        t->chat = qr_chat_open_from(&chat, source, &t->err) == 0 && chat;
    }
    qr_chat_close(chat);
    if (tokenizer)
        qr_tokenizer_close(tokenizer);
    qr_source_unref(source);
}

static const struct qr_option table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct check_options, model), .arg = "PATH",
     .help = "Model or adapter: directory, *.safetensors or GGUF file, or ORG/NAME[:FILE] of the hub; may also be given without the flag."},
    QR_HUB_ROWS(struct check_options, hub, NULL),
    {.name = "all", .brief = true, .letter = 'a', .type = QR_OPT_FLAG, .offset = offsetof(struct check_options, all), .builtin = "false",
     .help = "Every tensor with its place in the file, and the keys of a GGUF file."},
    {.name = "hash", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct check_options, hash), .builtin = "false",
     .help = "Hashes (XXH3, 64 bits) of the files, and of each tensor with --all or --json; reads all of them."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct check_options, json), .builtin = "false", .help = "One JSON object."}};

/* The report names its problems, so they are not printed once more. A wrong path is no wrong usage. */
static int check(struct qr_command_run *r, struct qr_err *err)
{
    const struct check_options *o = r->options;
    struct qr_check_options co = {.json = o->json, .all = o->all, .hash = o->hash};
    struct qr_buf out = {0};
    if (!o->model)
        return qr_err_set(err, QR_E_USAGE, "name one model directory or file: quire check PATH");
    look_at_tokenizer(&co.tokenizer, o->model);
    const int rc = qr_model_check(&out, o->model, &co, err);
    const bool told = out.len > 0;
    if (told && o->json)
        fwrite(out.data, 1, out.len, stdout);
    else if (told)
        qr_command_print(out.data, out.len);
    qr_buf_release(&out);
    r->status = rc ? qr_err_exit_status(err->code) : 0;
    if (r->status == qr_err_exit_status(QR_E_USAGE))
        r->status = qr_err_exit_status(QR_E_NOT_FOUND);
    return told ? 0 : rc;
}

const struct qr_command qr_cmd_check = {
    .name = "check", .purpose = "explain a model file or directory",
    .usage = "quire check PATH [--all] [--hash] [--json]",
    .examples = "quire check models/quire-tiny\n"
                "quire check model.gguf --all",
    .text = "Explains a model or an adapter, a directory or a file, without loading it: configuration, tensors,\n"
            "problems with byte offsets, what is never read or run, whether and how it would run. Exit status 0\n"
            "when it would run, 4 when it would not.",
    .args = "model", .settle = qr_hub_settle,
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct check_options), .run = check,
};
