#include "train/log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"

static const char header[] = "step,tokens,loss,eval_loss,grad_norm,lr,tokens_per_s,peak_share,seconds,waited\n";

/* The step that a line belongs to; -1: none, the line is cut off or not ours. */
static int64_t step_of(const char *line, size_t n, bool json)
{
    static const char begin[] = "{\"step\":";
    if (n == 0 || line[n - 1] != '\n')
        return -1;
    if (json && (n < sizeof begin || memcmp(line, begin, sizeof begin - 1) != 0 || line[n - 2] != '}'))
        return -1;
    const char *digits = json ? line + sizeof begin - 1 : line;
    char *end;
    const int64_t step = strtoll(digits, &end, 10);
    return end > digits && *end == ',' ? step : -1;
}

/* Writes the file anew with the lines that stay, complete or not at all. */
static int keep_lines(const char *path, bool json, int64_t after, struct qr_err *err)
{
    struct qr_buf kept = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    FILE *f = after >= 0 ? fopen(path, "re") : NULL;
    if (!json)
        qr_buf_put_str(&kept, header);
    while (f && (n = getline(&line, &cap, f)) > 0) {
        const int64_t step = step_of(line, (size_t)n, json);
        if (step >= 0 && step <= after)
            qr_buf_put(&kept, line, (size_t)n);
    }
    free(line);
    if (f)
        fclose(f);
    int rc = qr_file_replace(path, kept.data ? kept.data : "", kept.len, err);
    qr_buf_release(&kept);
    return rc;
}

static int open_one(FILE **out, const char *dir, const char *name, bool json, int64_t after, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    int rc = qr_path_join(path, dir, name, err);
    rc = rc ? rc : keep_lines(path, json, after, err);
    if (rc)
        return rc;
    *out = fopen(path, "ae");
    return *out ? 0 : qr_err_set(err, QR_E_IO, "%s: %s", path, strerror(errno));
}

int qr_train_log_open(struct qr_train_log *log, const char *dir, int64_t after, struct qr_err *err)
{
    QR_ASSERT(log != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    *log = (struct qr_train_log){0};
    int rc = open_one(&log->csv, dir, "log.csv", false, after, err);
    return rc ? rc : open_one(&log->jsonl, dir, "log.jsonl", true, after, err);
}

void qr_train_log_close(struct qr_train_log *log)
{
    QR_ASSERT(log != NULL);
    if (log->csv)
        fclose(log->csv);
    if (log->jsonl)
        fclose(log->jsonl);
    *log = (struct qr_train_log){0};
}

static int put_line(FILE *f, const char *name, const struct qr_buf *line, struct qr_err *err)
{
    if (fwrite(line->data, 1, line->len, f) == line->len && fflush(f) == 0)
        return 0;
    return qr_err_set(err, QR_E_IO, "cannot write %s: %s", name, strerror(errno));
}

int qr_train_log_row(struct qr_train_log *log, const struct qr_train_row *row, struct qr_err *err)
{
    QR_ASSERT(log != NULL && log->csv != NULL && log->jsonl != NULL);
    QR_ASSERT(row != NULL && row->step >= 0);
    const struct {
        const char *name;
        double value;
    } field[] = {{"loss", row->loss}, {"eval_loss", row->eval_loss}, {"grad_norm", row->norm}, {"lr", row->lr}, {"tokens_per_s", row->tokens_s},
                 {"peak_share", row->peak_share}, {"seconds", row->seconds}, {"waited", row->waited}};
    struct qr_buf csv = {0}, json = {0};
    qr_buf_printf(&csv, "%lld,%lld", (long long)row->step, (long long)row->n_tokens);
    qr_buf_printf(&json, "{\"step\":%lld,\"tokens\":%lld", (long long)row->step, (long long)row->n_tokens);
    for (int i = 0; i < QR_COUNT(field); i++) {
        qr_buf_put_byte(&csv, ',');
        if (!isfinite(field[i].value))
            continue;
        qr_json_put_f64(&csv, field[i].value);
        qr_buf_printf(&json, ",\"%s\":", field[i].name);
        qr_json_put_f64(&json, field[i].value);
    }
    qr_buf_put_byte(&csv, '\n');
    qr_buf_put_str(&json, "}\n");
    int rc = put_line(log->csv, "log.csv", &csv, err);
    rc = rc ? rc : put_line(log->jsonl, "log.jsonl", &json, err);
    qr_buf_release(&csv);
    qr_buf_release(&json);
    return rc;
}

int qr_train_log_sample(struct qr_train_log *log, int64_t step, const char *prompt, const char *text, struct qr_err *err)
{
    QR_ASSERT(log != NULL && log->jsonl != NULL);
    QR_ASSERT(prompt != NULL && text != NULL);
    struct qr_buf json = {0};
    qr_buf_printf(&json, "{\"step\":%lld,\"prompt\":", (long long)step);
    qr_json_put_str(&json, prompt, strlen(prompt));
    qr_buf_put_str(&json, ",\"text\":");
    qr_json_put_str(&json, text, strlen(text));
    qr_buf_put_str(&json, "}\n");
    int rc = put_line(log->jsonl, "log.jsonl", &json, err);
    qr_buf_release(&json);
    return rc;
}
