#include "tests/device/check/check.h"

#include "base/assert.h"

#define EXIT_WRONG 7
#define EXIT_NOTHING 77 /* as tests say that they were skipped */

#define AT(field) offsetof(struct check_options, field)

static const struct qr_option table[] = {
    {.name = "device", .brief = true, .type = QR_OPT_STR, .offset = AT(device), .builtin = "cuda", .arg = "NAME",
     .help = "Device whose kernels are compared: cuda, cuda:N."},
    {.name = "only", .brief = true, .type = QR_OPT_STR, .offset = AT(only), .arg = "NAME", .help = "Only linear, attention or rows (all others)."},
    {.name = "large", .brief = true, .type = QR_OPT_FLAG, .offset = AT(large), .builtin = "false",
     .help = "At the shapes of models, a GPU's own ways (wgmma, cuBLASLt) with the plain ones (--only linear or attention)."},
    {.name = "scale", .type = QR_OPT_INT, .offset = AT(scale), .builtin = "1", .min = 1, .max = 4096, .arg = "N",
     .help = "With --large: numbers of sequences, rows, tokens, heads and widths are divided by this, for a slow device."},
    {.name = "json", .type = QR_OPT_STR, .offset = AT(json), .arg = "FILE",
     .help = "With --large: also a JSON object a line and case; -: to standard output, and no text."}};

static int run(struct qr_command_run *r, struct qr_err *err)
{
    const struct check_options *o = r->options;
    int32_t n_wrong = 0, n_compared = 0;
    if (!check_wanted(o, "linear") && !check_wanted(o, "attention") && (o->large || !check_wanted(o, "rows")))
        return qr_err_set(err, QR_E_USAGE, "--only: '%.60s' is no part of a comparison; use %s", o->only,
                          o->large ? "linear or attention" : "linear, attention or rows");
    const int rc = o->large ? check_large(o, &n_wrong, &n_compared, err) : check_small(o, &n_wrong, &n_compared, err);
    r->status = rc != 0 ? 0 : n_wrong > 0 ? EXIT_WRONG : n_compared == 0 ? EXIT_NOTHING : 0;
    return rc;
}

const struct qr_command device_check_command = {
    .name = "device_check", .purpose = "a device's kernels beside others that must give the same",
    .usage = "device_check [flags]",
    .examples = "device_check --device cuda --only rows\n"
                "device_check --large --json cases.jsonl",
    .args = "", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct check_options), .run = run,
};
