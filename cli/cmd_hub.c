/* cmd_hub.c - pull, list, rm: models of the hub in the cache that huggingface_hub keeps. The work is hub/'s. */
#include "base/assert.h"
#include "cli/cli.h"
#include "hub/hub.h"

struct hub_options {
    const char *model;
    struct qr_hub_options hub;
    bool yes, json;
};

/* Where it is goes to stdout, for scripts: quire serve "$(quire pull ORG/NAME)". */
static int pull(struct qr_command_run *r, struct qr_err *err)
{
    const struct hub_options *o = r->options;
    char path[QR_PATH_MAX];
    if (!o->model)
        return qr_err_set(err, QR_E_USAGE, "name a model: quire pull ORG/NAME, or ORG/NAME:FILE for one GGUF file of several");
    const int rc = qr_hub_pull(path, o->model, &o->hub, "pull", &r->status, err);
    if (rc == 0)
        printf("%s\n", path);
    return rc;
}

static const struct qr_option pull_table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct hub_options, model), .arg = "NAME",
     .help = "ORG/NAME, or ORG/NAME:FILE, where FILE is a GGUF file or the part of its name that no other has; may be given without the flag."},
    QR_HUB_ROWS(struct hub_options, hub, NULL)};

const struct qr_command qr_cmd_pull = {
    .name = "pull", .purpose = "fetch a model of the hub",
    .usage = "quire pull ORG/NAME[:FILE] [--revision REV]",
    .examples = "quire pull Qwen/Qwen3-0.6B\n"
                "quire pull Qwen/Qwen3-8B-GGUF:Q4_K_M\n"
                "quire serve Qwen/Qwen3-0.6B",
    .text = "Fetches what is needed to serve a model, and nothing else, into the cache that huggingface_hub uses; prints where it is.\n"
            "An interrupted fetch goes on where it ended. HF_TOKEN opens models that need a login, HF_HOME or HF_HUB_CACHE move the\n"
            "cache, HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 forbids the network.",
    .args = "model",
    .table = pull_table, .n_options = QR_COUNT(pull_table), .options_bytes = sizeof(struct hub_options), .run = pull,
};

static int list(struct qr_command_run *r, struct qr_err *err)
{
    const struct hub_options *o = r->options;
    QR_ASSERT(err != NULL);
    return r->n_args ? qr_err_set(err, QR_E_USAGE, "unexpected argument '%.100s': quire list has none", r->args[0]) : qr_hub_list(o->json, err);
}

static const struct qr_option list_table[] = {
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct hub_options, json), .builtin = "false",
     .help = "A JSON object a line: name, revision, bytes, used (seconds since 1970), format."}};

static const struct qr_option rm_table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct hub_options, model), .arg = "NAME",
     .help = "ORG/NAME, or ORG/NAME:FILE for one GGUF file of it; may be given without the flag."},
    {.name = "revision", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct hub_options, hub.revision), .arg = "REV",
     .help = "Remove this branch, tag or commit only; all otherwise."},
    {.name = "yes", .brief = true, .letter = 'y', .type = QR_OPT_FLAG, .offset = offsetof(struct hub_options, yes), .builtin = "false",
     .help = "Do not ask."}};

const struct qr_command qr_cmd_list = {
    .name = "list", .purpose = "models in the hub's cache, with their sizes",
    .usage = "quire list [--json]",
    .examples = "quire list",
    .text = "A line for each model, revision and GGUF file of the cache: name, revision, size, the day of its last use, format. Names are\n"
            "as serve and rm take them. An unfinished one goes on with quire pull.",
    .table = list_table, .n_options = QR_COUNT(list_table), .options_bytes = sizeof(struct hub_options), .run = list,
};

static int rm(struct qr_command_run *r, struct qr_err *err)
{
    const struct hub_options *o = r->options;
    QR_ASSERT(err != NULL);
    return o->model ? qr_hub_remove(o->model, &o->hub, o->yes, err) : qr_err_set(err, QR_E_USAGE, "name a model: quire rm ORG/NAME ('quire list' shows them)");
}

const struct qr_command qr_cmd_rm = {
    .name = "rm", .purpose = "remove a model from the hub's cache",
    .usage = "quire rm ORG/NAME[:FILE] [--revision REV] [--yes]",
    .examples = "quire rm Qwen/Qwen3-0.6B\n"
                "quire rm Qwen/Qwen3-8B-GGUF:Q8_0 --yes",
    .text = "Removes a model from the cache: all of it, one file, or one revision. Bytes that another revision uses stay. Asks before on a\n"
            "terminal, and wants --yes elsewhere. Directories of other places are never touched.",
    .args = "model",
    .table = rm_table, .n_options = QR_COUNT(rm_table), .options_bytes = sizeof(struct hub_options), .run = rm,
};
