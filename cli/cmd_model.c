/* cmd_model.c - check (explain a model file) and plan (its memory, without loading it). */
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
         .help = "Model directory or *.safetensors file; may also be given without the flag."},
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

struct plan_options {
    struct qr_cli_model m;
    struct qr_cli_engine e;
    bool json;
};

static const char *size_text(char text[32], int64_t n)
{
    const char *unit = n >= 1 << 30 ? "GiB" : n >= 1 << 20 ? "MiB" : "KiB";
    double by = n >= 1 << 30 ? 0x1p30 : n >= 1 << 20 ? 0x1p20 : 0x1p10;
    snprintf(text, 32, "%.1f %s", (double)n / by, unit);
    return text;
}

static void print_plan(const struct qr_model_plan *p, const struct qr_engine_limits *l, int64_t available, bool json)
{
    int64_t total = l->weight_bytes + l->act_bytes + l->kv_bytes;
    if (json) {
        printf("{\"weight_bytes\":%lld,\"act_bytes\":%lld,\"kv_bytes\":%lld,\"kv_token_bytes\":%zu,\"kv_blocks\":%d,\"block_tokens\":%d,"
               "\"ctx_max\":%d,\"total_bytes\":%lld,\"available_bytes\":%lld,\"dtype\":\"%s\",\"kv_dtype\":\"%s\"}\n",
               (long long)l->weight_bytes, (long long)l->act_bytes, (long long)l->kv_bytes, p->kv_token_bytes, l->n_blocks, l->block_tokens,
               l->ctx_max, (long long)total, (long long)available, qr_dtype_name(p->weight_dtype), qr_dtype_name(p->kv_dtype));
        return;
    }
    char a[32], b[32], c[32];
    printf("weights   %s (%s; embedding rows %s of it stay in the file's pages)\n", size_text(a, l->weight_bytes), qr_dtype_name(p->weight_dtype),
           size_text(b, (int64_t)p->table_bytes));
    printf("step      %s for %d rows\n", size_text(a, l->act_bytes), l->step_tokens_max);
    printf("cache     %s = %d blocks of %d tokens, %s a token (%s)\n", size_text(a, l->kv_bytes), l->n_blocks, l->block_tokens,
           size_text(b, (int64_t)p->kv_token_bytes), qr_dtype_name(p->kv_dtype));
    printf("context   %d tokens a sequence; %.1f sequences of that length at once\n", l->ctx_max,
           (double)l->n_blocks * l->block_tokens / l->ctx_max);
    printf("total     %s of %s available\n", size_text(a, total), size_text(c, available));
}

static int plan(const struct plan_options *o, struct qr_err *err)
{
    struct qr_model_options mo;
    struct qr_backend_options bo;
    struct qr_engine_config ec;
    struct qr_backend *be = NULL;
    struct qr_model_plan p;
    struct qr_engine_limits l;
    qr_cli_model_options(&mo, &bo, &o->m);
    qr_cli_engine_config(&ec, &o->e);
    qr_engine_config_fit(&ec);
    mo.ctx_max = ec.ctx_max;
    int rc = qr_cli_need_model(&o->m, err);
    if (rc == 0)
        rc = qr_backend_open(&be, &bo, err);
    if (rc == 0)
        rc = qr_model_plan(&p, o->m.model, be, &mo, ec.step_tokens_max, ec.logit_rows_max, err);
    int64_t available = qr_memory_available(), weights = rc == 0 ? (int64_t)(p.weight_bytes + p.table_bytes) : 0;
    if (rc == 0)
        rc = qr_engine_plan(&l, &ec, &p.config, p.kv_dtype, weights, (int64_t)p.act_bytes, available - weights, err);
    if (rc == 0)
        print_plan(&p, &l, available, o->json);
    qr_backend_close(be);
    return rc;
}

int qr_cmd_plan(int argc, char **argv)
{
    static const struct qr_option table[] = {
        QR_CLI_MODEL_ROWS(struct plan_options, m), QR_CLI_ENGINE_ROWS(struct plan_options, e),
        {.name = "json", .type = QR_OPT_FLAG, .offset = offsetof(struct plan_options, json), .builtin = "false", .group = "Output",
         .help = "One JSON object."}};
    struct plan_options o = {0};
    struct qr_option_set *set;
    struct qr_err err;
    int status = qr_cli_read(&set, table, QR_COUNT(table), &o, argc, argv,
                             "quire plan --model DIR\n\nThe memory that serving this model with these settings takes, without loading it.\n"
                             "Exit status 5 when it does not fit.");
    if (status >= 0)
        return status;
    status = plan(&o, &err) == 0 ? 0 : qr_cli_fail(argv[0], &err);
    qr_options_free(set);
    return status;
}
