/* cmd_quantize.c - quantize: a model directory whose matrices are rounded, and what that costs. The work is
 * loader/write/quantize.h's and model/calibrate.h's; here are settings, text, files beside the weights and the report.
 * Perplexity is measured on held-out text before and after. The output appears under its name when it is complete. Main
 * thread; rounding on all. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "base/files/source.h"
#include "cli/cli.h"
#include "cli/quantize_files.h"
#include "cli/quantize_text.h"
#include "cli/train_stop.h"
#include "loader/config/hf_config.h"
#include "loader/write/quantize.h"
#include "loader/weights.h"
#include "train/checkpoint.h"

struct quantize_options {
    const char *text;
    struct qr_hub_options hub;
    int32_t type; /* enum qr_rounding */
    int64_t group, threads;
    bool asymmetric, smooth, replace, json;
};

struct quantizer {
    const struct quantize_options *o;
    const char *in, *out;
    struct qr_train_stop stop;
    struct qr_source *source;
    struct qr_model_config config;
    struct qr_tensor_files *st;
    struct qr_quantize_text text;
    struct qr_calibration *calibration;
    struct qr_quantize_options how;
    struct qr_quantize_report report;
    char path[QR_PATH_MAX], spare[QR_PATH_MAX];
    struct qr_quantize_files files;
    uint64_t bytes_before;               /* of the files of weights */
    double before, after;                /* perplexity */
    int64_t began_us;
};

static int write_weights(struct quantizer *q, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    int rc = qr_path_join(path, q->spare, "model.safetensors", err);
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = (int32_t)q->o->threads, .pin = true, .step_rows_max = 1};
    struct qr_progress progress;
    rc = rc ? rc : qr_backend_open(&q->how.be, &bo, err);
    if (rc)
        return rc;
    qr_buf_put_str(&q->files.names, "model.safetensors");
    qr_progress_open(&progress, "quantizing");
    q->how.progress = qr_progress_show;
    q->how.progress_user = &progress;
    rc = qr_quantize_write(path, q->st, &q->config, &q->how, &q->report, err);
    qr_progress_end(&progress);
    qr_backend_close(q->how.be);
    return rc;
}

static int choose_type(struct quantizer *q, struct qr_err *err)
{
    const struct quantize_options *o = q->o;
    q->how = (struct qr_quantize_options){.type = (enum qr_rounding)o->type, .smooth = o->smooth, .rename = qr_source_gguf(q->source) != NULL,
                                          .stop = &q->stop.asked};
    if (o->asymmetric && q->how.type != QR_ROUNDING_INT4)
        return qr_err_set(err, QR_E_USAGE, "--asymmetric is for --type int4: eight bits lose too little to be worth zeros");
    if (o->asymmetric)
        q->how.type = QR_ROUNDING_INT4Z;
    if (qr_rounding_is_int4(q->how.type))
        return qr_quantize_group(&q->how.group, &q->config, o->group, err);
    return o->group ? qr_err_set(err, QR_E_USAGE, "--group is for --type int4; int8 and fp8 have a scale for each output") : 0;
}

/* What is refused is refused before anything is computed. */
static int open_model(struct quantizer *q, struct qr_err *err)
{
    const struct qr_cli_model named = {.model = q->in};
    int rc = qr_cli_need_model(&named, err);
    rc = rc ? rc : qr_source_open(&q->source, q->in, err);
    rc = rc ? rc : qr_model_config_from(&q->config, q->source, err);
    if (rc == 0 && qr_source_gguf(q->source))
        qr_quantize_fit(&q->config);
    rc = rc ? rc : choose_type(q, err);
    if (rc == 0 && !q->o->replace && access(q->out, F_OK) == 0)
        rc = qr_err_set(err, QR_E_IO, "'%s' already exists; name another directory, or replace a model that quire quantize wrote with --replace", q->out);
    rc = rc ? rc : qr_export_paths(q->path, q->spare, q->out, q->o->replace, err);
    rc = rc ? rc : qr_quantize_files_replaceable(q->path, err);
    rc = rc ? rc : qr_tensor_files_open_from(&q->st, q->source, NULL, err);
    if (rc)
        return rc;
    qr_weights_fit(&q->config, q->st);
    if ((rc = qr_quantize_admits(&q->config, qr_source_gguf(q->source) ? q->st : NULL, err)) != 0)
        return qr_err_prefix(err, "%s: ", q->in);
    for (int32_t i = 0; i < qr_tensor_files_n_shards(q->st); i++)
        q->bytes_before += qr_tensor_files_shard_bytes(q->st, i);
    return qr_quantize_files_check(q->source, err);
}

static int calibrate(struct quantizer *q, struct qr_err *err)
{
    int rc = qr_quantize_text_open(&q->text, q->o->text, q->in, err);
    rc = rc ? rc : qr_quantize_text_measure(&q->before, &q->calibration, &q->text, q->in, (int32_t)q->o->threads, &q->stop.asked, err);
    q->how.inputs = qr_calibration_inputs;
    q->how.user = q->calibration;
    return rc;
}

/* In a directory of another name, which becomes OUT when all of it is there and was measured. */
static int write_directory(struct quantizer *q, struct qr_err *err)
{
    struct qr_err left = {0};
    qr_quantize_files_clean(q->spare);
    int rc = qr_dir_make_fresh(q->spare, err);
    if (rc)
        return rc;
    const int held = qr_quantize_files_hold(q->spare);
    rc = write_weights(q, err);
    rc = rc ? rc : qr_quantize_files_write(&q->files, q->spare, q->source, &q->config, &q->how, err);
    if (rc == 0 && q->o->text)
        rc = qr_quantize_text_measure(&q->after, NULL, &q->text, q->spare, (int32_t)q->o->threads, &q->stop.asked, err);
    rc = rc ? rc : qr_dir_sync(q->spare, err);
    rc = rc ? rc : qr_dir_publish(q->spare, q->path, q->o->replace, err);
    const bool remains = rc || access(q->spare, F_OK) == 0; /* unfinished, or what was replaced */
    if (remains && qr_quantize_files_remove(q->spare, &left))
        qr_log(QR_LOG_WARN, "quantize", "what was there is left behind: %s", left.msg);
    if (held >= 0)
        close(held);
    return rc;
}

/* ---- the report ---- */

static const char *type_name(const struct quantizer *q)
{
    static const char *const name[] = {"int8", "int4", "fp8", "int4"};
    return name[q->how.type];
}

static const char *unsmoothed(const struct quantizer *q)
{
    const char *why = qr_quantize_unsmoothable(&q->config);
    return !q->o->text ? "no text to calibrate with" : !q->o->smooth ? "--no-smooth" : why;
}

static double seconds(const struct quantizer *q)
{
    return (double)(qr_clock_us() - q->began_us) * 1e-6;
}

/* Guessing each token of the vocabulary alike has its size as perplexity. */
static bool is_foreign(const struct quantizer *q)
{
    return q->before > q->config.n_vocab;
}

static void put_json(struct qr_buf *out, const struct quantizer *q)
{
    const struct qr_quantize_report *r = &q->report;
    const struct qr_quantize_text *t = &q->text;
    const char *why = unsmoothed(q);
    qr_buf_put_str(out, "{\"out\":");
    qr_json_put_str(out, q->path, strlen(q->path));
    qr_buf_printf(out, ",\"type\":\"%s\",\"asymmetric\":%s,\"group\":%lld,\"files\":[", type_name(q), q->how.type == QR_ROUNDING_INT4Z ? "true" : "false",
                  (long long)q->how.group);
    const char *const names = q->files.names.data;
    for (size_t at = 0, n; at < q->files.names.len; at += n + 2) {
        const char *comma = strstr(names + at, ", ");
        n = comma ? (size_t)(comma - names) - at : q->files.names.len - at;
        qr_buf_put_str(out, at ? "," : "");
        qr_json_put_str(out, names + at, n);
    }
    qr_buf_printf(out, "],\"bytes_before\":%llu,\"bytes_after\":%llu,\"matrices\":%d,\"calibrated\":%d,\"norms_smoothed\":%d,\"norms\":%d,\"left_out\":%d,"
                  "\"kept\":{\"embeddings\":%d,\"heads\":%d,\"routers\":%d,\"bytes\":%llu},\"seconds\":%.2f",
                  (unsigned long long)q->bytes_before, (unsigned long long)r->bytes, r->n_matrices, r->n_calibrated, r->n_smoothed, r->n_smoothable,
                  r->n_left_out, r->n_kept[QR_KEPT_EMBEDDING], r->n_kept[QR_KEPT_HEAD], r->n_kept[QR_KEPT_ROUTER], (unsigned long long)r->kept_bytes,
                  seconds(q));
    qr_buf_put_str(out, ",\"not_smoothed\":");
    if (why)
        qr_json_put_str(out, why, strlen(why));
    else
        qr_buf_put_str(out, "null");
    if (q->o->text) {
        qr_buf_printf(out, ",\"text\":{\"tokens\":%d,\"window\":%d,\"bos\":%d,\"calibrated\":%d,\"held_out_first\":%d,\"held_out\":%d}", t->ids.n, t->step,
                      t->bos, t->n_calibrate * t->step, (t->n_windows - t->n_held) * t->step, t->n_held * t->step);
        qr_buf_put_str(out, ",\"perplexity\":{\"before\":");
        qr_json_put_f64(out, q->before);
        qr_buf_put_str(out, ",\"after\":");
        qr_json_put_f64(out, q->after);
        qr_buf_printf(out, ",\"foreign\":%s}", is_foreign(q) ? "true" : "false");
    }
    qr_buf_put_str(out, "}\n");
}

/* What was not rounded, and why. */
static void put_kept(struct qr_buf *out, const struct qr_quantize_report *r)
{
    static const char *const why[QR_KEPT_COUNT] = {[QR_KEPT_EMBEDDING] = "embedding, of which a token reads a row",
                                                   [QR_KEPT_HEAD] = "head, which decides between tokens",
                                                   [QR_KEPT_ROUTER] = "routers, which decide between experts"};
    char size[QR_SIZE_TEXT];
    qr_buf_printf(out, "unrounded    %s:", qr_size_text(size, (int64_t)r->kept_bytes));
    for (int i = 0, n = 0; i < QR_KEPT_COUNT; i++)
        if (r->n_kept[i] > 0)
            qr_buf_printf(out, "%s %s", n++ ? ";" : "", why[i]);
    qr_buf_put_byte(out, '\n');
}

static void put_text(struct qr_buf *out, const struct quantizer *q)
{
    const struct qr_quantize_report *r = &q->report;
    const struct qr_quantize_text *t = &q->text;
    const char *why = unsmoothed(q);
    char size[2][QR_SIZE_TEXT];
    qr_buf_printf(out, "written      %s: %s\n", q->path, q->files.names.data);
    if (qr_rounding_is_int4(q->how.type))
        qr_buf_printf(out, "matrices     %d to int4, a scale%s for %lld inputs\n", r->n_matrices, q->how.type == QR_ROUNDING_INT4Z ? " and a zero" : "",
                      (long long)q->how.group);
    else
        qr_buf_printf(out, "matrices     %d to %s, a scale for each output\n", r->n_matrices, type_name(q));
    put_kept(out, r);
    if (q->o->text)
        qr_buf_printf(out, "calibration  %d tokens in windows of %d, inputs of %d matrices\n", t->n_calibrate * t->step, t->step, r->n_calibrated);
    if (why)
        qr_buf_printf(out, "smoothing    none: %s\n", why);
    else
        qr_buf_printf(out, "smoothing    %d norms of %d%s\n", r->n_smoothed, r->n_smoothable,
                      r->n_smoothed < r->n_smoothable ? "; the others are as good without" : "");
    if (r->n_left_out)
        qr_buf_printf(out, "left out     %d tensors that nothing here uses\n", r->n_left_out);
    qr_buf_printf(out, "size         %s before, %s after (%.0f %%)\n", qr_size_text(size[0], (int64_t)q->bytes_before),
                  qr_size_text(size[1], (int64_t)r->bytes), 100 * (double)r->bytes / (double)q->bytes_before);
    if (q->o->text)
        qr_buf_printf(out, "perplexity   %.4f before, %.4f after (%+.2f %%), on %d tokens from %d on, held out from calibration\n", q->before, q->after,
                      100 * (q->after / q->before - 1), t->n_held * t->step, (t->n_windows - t->n_held) * t->step);
    if (q->o->text && is_foreign(q))
        qr_buf_printf(out, "warning      the perplexity says nothing: guessing among the %d tokens has less; take text of the kind that the model knows\n",
                      q->config.n_vocab);
    qr_buf_printf(out, "time         %.1f s\n", seconds(q));
}

static int quantize(struct quantizer *q, struct qr_err *err)
{
    struct qr_buf out = {0};
    int rc = open_model(q, err);
    if (rc == 0 && q->o->text)
        rc = calibrate(q, err);
    rc = rc ? rc : write_directory(q, err);
    if (rc == 0) {
        (q->o->json ? put_json : put_text)(&out, q);
        fwrite(out.data, 1, out.len, stdout);
    }
    qr_buf_release(&out);
    qr_calibration_free(q->calibration);
    qr_quantize_text_close(&q->text);
    qr_tensor_files_close(q->st);
    qr_source_unref(q->source);
    return rc;
}

static const struct qr_option table[] = {
    QR_HUB_ROWS(struct quantize_options, hub, NULL),
    {.name = "type", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct quantize_options, type), .builtin = "int8", .choices = "int8|int4|fp8",
     .arg = "TYPE",
     .help = "int8 and fp8: a scale for each output; int4: one for each group of inputs."},
    {.name = "group", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct quantize_options, group), .builtin = "0", .min = 0, .max = 128, .arg = "N",
     .help = "Inputs that share a scale in int4: 32, 64 or 128; 0 is the largest of these that divides every matrix."},
    {.name = "asymmetric", .type = QR_OPT_FLAG, .offset = offsetof(struct quantize_options, asymmetric), .builtin = "false",
     .help = "int4: each group has a zero, too, where that is finer. A little slower."},
    {.name = "text", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct quantize_options, text), .arg = "FILE",
     .help = "Calibrate with this text, all but its last part, and measure perplexity before and after on that part."},
    {.name = "smooth", .type = QR_OPT_FLAG, .offset = offsetof(struct quantize_options, smooth), .builtin = "true",
     .help = "Let norms take up factors of their outputs where that makes rounding finer. Adapters made for IN do not fit OUT then."},
    {.name = "replace", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct quantize_options, replace), .builtin = "false",
     .help = "Replace OUT if it already exists: an empty directory, or a model that this command has written."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct quantize_options, json), .builtin = "false",
     .help = "The report as one JSON object."},
    {.name = "threads", .brief = true, .letter = 't', .type = QR_OPT_INT, .offset = offsetof(struct quantize_options, threads), .builtin = "0",
     .min = 0, .max = 1024,
     .arg = "N", .help = "Worker threads; 0 means one per usable core."}};

static int run(struct qr_command_run *r, struct qr_err *err)
{
    const struct quantize_options *o = r->options;
    if (r->n_args != 2)
        return qr_err_set(err, QR_E_USAGE, "%d arguments, expected two: quire quantize IN OUT", r->n_args);
    if (o->group != 0 && o->group != 32 && o->group != 64 && o->group != 128)
        return qr_err_set(err, QR_E_USAGE, "--group %lld: expected 32, 64 or 128", (long long)o->group);
    char in[QR_PATH_MAX];
    const int found = qr_hub_find(in, r->args[0], &o->hub, "quantize", &r->status, err);
    if (found)
        return found;
    struct quantizer q = {.o = o, .in = in, .out = r->args[1], .began_us = qr_clock_us()};
    qr_train_stop_open(&q.stop, "quire quantize: interrupted; nothing is left behind\n");
    const int rc = quantize(&q, err), stopped = qr_train_stop_close(&q.stop);
    qr_quantize_files_release(&q.files);
    r->status = rc == QR_E_CLOSED ? stopped : 0;
    return r->status ? 0 : rc;
}

const struct qr_command qr_cmd_quantize = {
    .name = "quantize", .purpose = "write a model with its matrices rounded to 8 or 4 bits",
    .usage = "quire quantize IN OUT [--type int8|int4|fp8] [--text FILE] [flags]",
    .examples = "quire quantize qwen qwen-int8\n"
                "quire quantize qwen qwen-int4 --type int4 --text sample.txt",
    .text = "Writes the model IN (a directory, a GGUF file, or ORG/NAME of the hub) as the directory OUT with the matrices of its\n"
            "layers rounded, in compressed-tensors' layout, which quire serves as it is. Says what was written, its size and, with --text, perplexity.",
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct quantize_options), .run = run,
};
