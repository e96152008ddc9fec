#include "cli/quantize_text.h"

#include <math.h>

#include "base/assert.h"
#include "base/files/map_file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "engine/sampler.h"
#include "loader/config/hf_config.h"
#include "model/alone.h"

#define WINDOW_TOKENS 512
#define STEP_MIN 16
#define ROWS 64
#define HELD_MAX 64
#define CALIBRATE_MAX 128
#define TEXT_BYTES_MAX ((size_t)1 << 28)

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int encode(struct qr_quantize_text *t, const struct qr_map_file *file, const char *model, int32_t bos, struct qr_err *err)
{
    struct qr_tokenizer *tokenizer;
    struct qr_source *source;
    int rc = qr_source_open(&source, model, err);
    if (rc)
        return rc;
    rc = qr_tokenizer_open_from(&tokenizer, source, err);
    qr_source_unref(source);
    if (rc)
        return rc;
    struct qr_ids with = {0};
    rc = qr_tokenizer_encode(tokenizer, &t->ids, (const char *)file->data, file->n_bytes, 0, err);
    rc = rc ? rc : qr_tokenizer_encode(tokenizer, &with, "a", 1, QR_ENCODE_ADD_SPECIAL, err);
    t->bos = rc == 0 && bos >= 0 && with.n > 0 && with.id[0] == bos ? bos : -1;
    qr_ids_release(&with);
    qr_tokenizer_close(tokenizer);
    return rc;
}

static int check_text(const struct qr_map_file *text, const char *file, struct qr_err *err)
{
    const size_t valid = text->n_bytes ? qr_utf8_valid_prefix((const char *)text->data, text->n_bytes) : 0;
    if (valid == text->n_bytes)
        return 0;
    return qr_err_set(err, QR_E_INVALID, "%s: byte %zu: 0x%02X is not UTF-8 here; convert the file (iconv -f latin1 -t utf-8 ...)", file, valid,
                      text->data[valid]);
}

int qr_quantize_text_open(struct qr_quantize_text *t, const char *file, const char *model, struct qr_err *err)
{
    QR_ASSERT(t != NULL && file != NULL);
    QR_ASSERT(model != NULL && err != NULL);
    struct qr_model_config c;
    struct qr_map_file text;
    *t = (struct qr_quantize_text){.bos = -1};
    int rc = qr_model_config_read(&c, model, err);
    rc = rc ? rc : qr_map_file_open(&text, file, TEXT_BYTES_MAX, err);
    if (rc)
        return rc;
    rc = check_text(&text, file, err);
    rc = rc ? rc : encode(t, &text, model, c.bos_id, err);
    qr_map_file_close(&text);
    if (rc)
        return rc;
    t->step = least(least(WINDOW_TOKENS, c.ctx_max) - (t->bos >= 0), t->ids.n / 2);
    if (t->step < STEP_MIN)
        return qr_err_set(err, QR_E_INVALID, "%s: %d tokens, expected at least %d: half of them to calibrate with, half to measure with", file,
                          t->ids.n, 2 * STEP_MIN);
    t->n_windows = t->ids.n / t->step;
    t->n_held = least(t->n_windows < 10 ? 1 : t->n_windows / 5, HELD_MAX);
    t->n_calibrate = least(t->n_windows - t->n_held, CALIBRATE_MAX);
    return 0;
}

void qr_quantize_text_close(struct qr_quantize_text *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->ids.n >= 0);
    qr_ids_release(&t->ids);
}

/* A window through the model. Adds up the negative logs of what its tokens are expected with, and their number, where sum is not NULL. */
static void walk_window(struct qr_alone *a, const struct qr_quantize_text *t, int32_t window, double *sum, int64_t *n_scored)
{
    int32_t ids[WINDOW_TOKENS], n = 0;
    const int32_t n_vocab = qr_model_config(a->model)->n_vocab;
    if (t->bos >= 0)
        ids[n++] = t->bos;
    for (int32_t i = 0; i < t->step; i++)
        ids[n++] = t->ids.id[(int64_t)window * t->step + i];
    for (int32_t first = 0; first < n; first += ROWS) {
        const int32_t n_rows = least(ROWS, n - first);
        const struct qr_tensor logits = qr_alone_step(a, ids, first, n_rows);
        for (int32_t r = 0; sum && r < n_rows && first + r + 1 < n; r++) {
            const struct qr_logits row = qr_logits_at(logits.data, logits.stride[0], &a->exec.stretches, r);
            *sum += qr_log_sum_exp(&row, n_vocab) - (double)row.x[ids[first + r + 1]];
            ++*n_scored;
        }
    }
}

/* Windows of the part that is held out, then those to calibrate with. */
static int walk_windows(struct qr_alone *a, double *perplexity, struct qr_calibration *calibration, const struct qr_quantize_text *t, const _Atomic int *stop,
                        struct qr_err *err)
{
    const int32_t n_rest = t->n_windows - t->n_held;
    const int32_t n_all = t->n_held + (calibration ? t->n_calibrate : 0);
    struct qr_progress progress;
    double sum = 0;
    int64_t n = 0;
    qr_progress_open(&progress, calibration ? "calibrating" : "measuring");
    for (int32_t i = 0; !atomic_load(stop) && i < t->n_held; i++) {
        walk_window(a, t, n_rest + i, &sum, &n);
        qr_progress_show(&progress, (uint64_t)i + 1, (uint64_t)n_all);
    }
    *perplexity = exp(sum / (double)n);
    if (calibration)
        qr_calibration_watch(calibration, &a->exec);
    for (int32_t i = 0; !atomic_load(stop) && calibration && i < t->n_calibrate; i++) {
        walk_window(a, t, (int32_t)((int64_t)i * n_rest / t->n_calibrate), NULL, NULL);
        qr_progress_show(&progress, (uint64_t)(t->n_held + i) + 1, (uint64_t)n_all);
    }
    qr_progress_end(&progress);
    return atomic_load(stop) ? qr_err_set(err, QR_E_CLOSED, "interrupted") : 0;
}

static int check_ids(const struct qr_quantize_text *t, int32_t n_vocab, struct qr_err *err)
{
    for (int32_t i = 0; i < t->ids.n; i++)
        if (t->ids.id[i] < 0 || t->ids.id[i] >= n_vocab)
            return qr_err_set(err, QR_E_DAMAGED, "the tokenizer makes id %d, the model's vocabulary has %d", t->ids.id[i], n_vocab);
    return 0;
}

int qr_quantize_text_measure(double *perplexity, struct qr_calibration **calibration, const struct qr_quantize_text *t, const char *model, int32_t n_threads,
                             const _Atomic int *stop, struct qr_err *err)
{
    QR_ASSERT(perplexity != NULL && t != NULL);
    QR_ASSERT(model != NULL && stop != NULL && err != NULL);
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = n_threads, .pin = true, .step_rows_max = ROWS};
    struct qr_model_options mo = {0};
    struct qr_progress progress;
    struct qr_backend *be = NULL;
    struct qr_model *m = NULL;
    struct qr_alone a = {0};
    int rc = qr_backend_open(&be, &bo, err);
    qr_cli_progress_begin(&progress, &mo);
    rc = rc ? rc : qr_model_open(&m, model, be, &mo, err);
    qr_progress_end(&progress);
    rc = rc ? rc : check_ids(t, qr_model_config(m)->n_vocab, err);
    if (rc == 0) {
        struct qr_calibration *c = calibration ? qr_calibration_new(m) : NULL;
        qr_alone_init(&a, m, be, NULL, least(WINDOW_TOKENS, qr_model_config(m)->ctx_max), ROWS, ROWS, c != NULL);
        rc = walk_windows(&a, perplexity, c, t, stop, err);
        qr_alone_release(&a);
        if (calibration)
            *calibration = c;
    }
    qr_model_close(m);
    qr_backend_close(be);
    return rc;
}
