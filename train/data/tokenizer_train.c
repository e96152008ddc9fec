#include "train/data/tokenizer_train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

struct learner {
    const struct qr_tokenizer_train *p;
    struct qr_tokenizer_train_summary *sum;
    struct qr_bpe_trainer *bpe; /* owned */
    int64_t n_bytes_before, n_bytes_total; /* of the files before, and of all */
    struct qr_err *err;
};

/* ---- documents ---- */

static int add_text(struct learner *l, const char *text, size_t n, struct qr_err *err)
{
    l->sum->n_bytes += (int64_t)n;
    return qr_bpe_trainer_add(l->bpe, text, n, err);
}

static int add_string(struct learner *l, const struct qr_json *v, struct qr_err *err)
{
    size_t n;
    if (!v || qr_json_type(v) != QR_JSON_T_STRING)
        return 0;
    const char *s = qr_json_str(v, &n);
    return add_text(l, s, n, err);
}

/* A message's content: a string, or parts of which some are text. */
static int add_content(struct learner *l, const struct qr_json *content, struct qr_err *err)
{
    int rc = add_string(l, content, err);
    for (const struct qr_json *part = content ? qr_json_first(content) : NULL; part && rc == 0; part = qr_json_after(part))
        rc = add_string(l, qr_json_find(part, "text"), err);
    return rc;
}

static int add_line(struct learner *l, const struct qr_doc_text *d, struct qr_err *err)
{
    struct qr_json *doc;
    int rc = qr_json_parse_line(&doc, d->text, d->len, &qr_json_limits_file, err);
    if (rc != 0)
        return rc;
    const struct qr_json *text = qr_json_find(doc, "text"), *messages = qr_json_find(doc, "messages");
    if ((!text || qr_json_type(text) != QR_JSON_T_STRING) && (!messages || qr_json_type(messages) != QR_JSON_T_ARRAY))
        rc = qr_err_set(err, QR_E_INVALID, "expected an object with a string \"text\" or an array \"messages\"");
    else if (!messages)
        rc = add_string(l, text, err);
    for (const struct qr_json *m = messages ? qr_json_first(messages) : NULL; m && rc == 0; m = qr_json_after(m))
        rc = add_content(l, qr_json_find(m, "content"), err);
    qr_json_free(doc);
    return rc;
}

static int add_document(struct learner *l, const struct qr_doc_reader *r, struct qr_doc_text *d)
{
    int rc = 0;
    const size_t valid = r->lines ? d->len : qr_utf8_valid_prefix(d->text, d->len);
    if (valid < d->len) {
        for (size_t i = 0; i < valid; i++)
            d->line += d->text[i] == '\n';
        rc = qr_err_set(l->err, QR_E_INVALID, "byte 0x%02X is not UTF-8 here", (unsigned char)d->text[valid]);
    } else {
        rc = r->lines ? add_line(l, d, l->err) : add_text(l, d->text, d->len, l->err);
    }
    l->sum->n_docs++;
    return rc == 0 ? 0 : qr_err_prefix(l->err, "%s:%" PRId64 ": ", r->path, d->line);
}

static bool go_on(void *user, int32_t n_tokens)
{
    const struct learner *l = user;
    const struct qr_tokenizer_train_progress now = {.n_tokens = n_tokens};
    return !l->p->progress || l->p->progress(l->p->user, &now);
}

static int read_file(struct learner *l, const char *path)
{
    struct qr_doc_reader r;
    struct qr_doc_text d;
    const bool lines = qr_data_is_lines(l->p->kind, path);
    int rc = qr_doc_reader_open(&r, path, lines, lines ? NULL : l->p->separator, l->err);
    if (rc != 0)
        return rc;
    while ((rc = qr_doc_reader_next(&r, &d, l->err)) == 0 && d.len > 0) {
        if ((rc = add_document(l, &r, &d)) != 0)
            break;
        const struct qr_tokenizer_train_progress now = {.n_bytes = l->n_bytes_before + r.n_bytes, .n_bytes_total = l->n_bytes_total, .file = path};
        if (l->p->progress && !l->p->progress(l->p->user, &now)) {
            rc = qr_err_set(l->err, QR_E_CLOSED, "stopped; nothing was written");
            break;
        }
    }
    l->n_bytes_before += r.n_bytes;
    qr_doc_reader_close(&r);
    return rc;
}

/* ---- the directory ---- */

static int write_directory(struct learner *l)
{
    char spare[QR_PATH_MAX];
    struct qr_buf json = {0}, config = {0};
    if (snprintf(spare, sizeof spare, "%s.learning", l->p->out) >= (int)sizeof spare)
        return qr_err_set(l->err, QR_E_USAGE, "the directory's name is too long");
    qr_bpe_trainer_write(l->bpe, &json);
    qr_bpe_trainer_write_config(l->bpe, &config, l->p->chat_template);
    struct qr_err ignored;
    int rc = qr_dir_make_fresh(spare, l->err);
    if (rc == 0) {
        rc = qr_dir_write(spare, "tokenizer.json", json.data, json.len, true, l->err);
        rc = rc ? rc : qr_dir_write(spare, "tokenizer_config.json", config.data, config.len, true, l->err);
        rc = rc ? rc : qr_dir_sync(spare, l->err);
        rc = rc ? rc : qr_dir_publish(spare, l->p->out, false, l->err);
        if (rc != 0)
            qr_dir_remove(spare, &ignored);
    }
    qr_buf_release(&json);
    qr_buf_release(&config);
    return rc;
}

int qr_tokenizer_train(const struct qr_tokenizer_train *p, struct qr_tokenizer_train_summary *out, struct qr_err *err)
{
    QR_ASSERT(p != NULL && p->out != NULL && out != NULL);
    QR_ASSERT(p->n_files > 0 && p->files != NULL);
    *out = (struct qr_tokenizer_train_summary){0};
    struct learner l = {.p = p, .sum = out, .n_bytes_total = qr_data_files_bytes(p->files, p->n_files), .err = err};
    if (access(p->out, F_OK) == 0)
        return qr_err_set(err, QR_E_USAGE, "'%s' already exists; name another directory", p->out);
    int rc = qr_bpe_trainer_new(&l.bpe, &p->bpe, err);
    for (int32_t i = 0; i < p->n_files && rc == 0; i++)
        rc = read_file(&l, p->files[i]);
    rc = rc ? rc : qr_bpe_trainer_run(l.bpe, go_on, &l, err);
    rc = rc ? rc : write_directory(&l);
    if (rc == 0) {
        out->n_pieces = qr_bpe_trainer_n_pieces(l.bpe);
        out->n_tokens = qr_bpe_trainer_n_tokens(l.bpe);
        out->n_merges = qr_bpe_trainer_n_merges(l.bpe);
    }
    qr_bpe_trainer_free(l.bpe);
    return rc;
}
