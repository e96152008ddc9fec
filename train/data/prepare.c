/* prepare.c - text files to a directory of prepared data. Documents are read, encoded and written one by one, so memory
 * does not grow with the input. The directory is filled under another name and renamed when it is complete; an error or
 * a stop leaves nothing. Which documents are held out is a function of their text. Main thread of `quire data prepare`.
 */
#include "train/data/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "train/data/chat_ids.h"
#include "train/data/data_writer.h"
#include "train/data/doc_reader.h"
#include "train/data/shards.h"
#include "train/data/tokenizer_files.h"

#define TEMPLATE_NOW_S 1721997296 /* what a template sees as today, 2024-07-26: the same input is to give the same ids tomorrow */

struct maker {
    const struct qr_data_prepare *p;
    struct qr_data_summary *sum;
    struct qr_tokenizer *tokenizer;
    struct qr_chat *chat;                  /* NULL: the model has no template */
    uint64_t hash;
    char spare[QR_PATH_MAX], spare_eval[QR_PATH_MAX]; /* where things are written */
    struct qr_data_writer *train, *eval;   /* eval NULL: nothing is held out */
    struct qr_chat_ids doc;                /* the document at work */
    int64_t n_bytes_before, n_bytes_total; /* of the files before, and of all */
    struct qr_err *err;
};

/* ---- one document ---- */

/* Puts the end-of-text id behind the document unless it is there. False when it is not there afterwards. */
static bool end_text(struct maker *m)
{
    const int32_t eos = qr_tokenizer_eos(m->tokenizer);
    struct qr_ids *ids = &m->doc.ids;
    if (ids->n > 0 && ids->id[ids->n - 1] == eos)
        return true;
    if (!m->p->end_of_text || eos < 0)
        return false;
    qr_ids_push(ids, eos);
    if (ids->n > m->doc.counts_cap) {
        m->doc.counts_cap = 2 * ids->n;
        m->doc.counts = qr_realloc(m->doc.counts, (size_t)m->doc.counts_cap, sizeof *m->doc.counts);
    }
    m->doc.counts[ids->n - 1] = true;
    return true;
}

static int encode_text(struct maker *m, const char *text, size_t len, struct qr_err *err)
{
    m->doc.ids.n = 0;
    int rc = 0;
    if (len > 0)
        rc = qr_tokenizer_encode(m->tokenizer, &m->doc.ids, text, len, QR_ENCODE_ADD_SPECIAL | (m->p->parse_special ? QR_ENCODE_PARSE_SPECIAL : 0u), err);
    if (rc == 0 && len > 0)
        end_text(m);
    return rc;
}

static int encode_chat(struct maker *m, const struct qr_json *messages, const struct qr_json *tools, struct qr_err *err)
{
    if (qr_json_type(messages) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_INVALID, "\"messages\" must be an array, found %s", qr_json_type_name(qr_json_type(messages)));
    if (!m->chat)
        return qr_err_set(err, QR_E_INVALID, "\"messages\" need a chat template, and '%s' has none (chat_template in tokenizer_config.json)",
                          m->p->tokenizer_dir);
    if (qr_json_is_null(tools))
        tools = NULL;
    else if (qr_json_type(tools) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_INVALID, "\"tools\" must be an array, found %s", qr_json_type_name(qr_json_type(tools)));
    const int rc = qr_chat_ids_make(&m->doc, m->tokenizer, m->chat, messages, tools, TEMPLATE_NOW_S, err);
    if (rc != 0)
        return rc;
    if (m->doc.open_end && end_text(m))
        m->doc.n_open--;
    m->sum->n_chats++;
    m->sum->n_turns += m->doc.n_turns;
    m->sum->n_hidden += m->doc.n_hidden;
    m->sum->n_open += m->doc.n_open;
    return 0;
}

/* *masked: not every id counts. */
static int encode_json(struct maker *m, const char *line, size_t len, bool *masked, struct qr_err *err)
{
    struct qr_json *doc;
    int rc = qr_json_parse_line(&doc, line, len, &qr_json_limits_file, err);
    if (rc != 0)
        return rc;
    const struct qr_json *text = qr_json_find(doc, "text"), *messages = qr_json_find(doc, "messages");
    size_t n;
    if (messages) {
        rc = encode_chat(m, messages, qr_json_find(doc, "tools"), err);
        *masked = !m->p->all_turns;
    } else if (text && qr_json_type(text) == QR_JSON_T_STRING) {
        const char *s = qr_json_str(text, &n);
        rc = encode_text(m, s, n, err);
    } else {
        rc = qr_err_set(err, QR_E_INVALID, "expected an object with a string \"text\" or an array \"messages\"");
    }
    qr_json_free(doc);
    return rc;
}

/* Line of the byte `at` of a document that begins in line `first`. */
static int64_t line_of(const char *text, size_t at, int64_t first)
{
    for (size_t i = 0; i < at; i++)
        first += text[i] == '\n';
    return first;
}

static int encode_document(struct maker *m, const struct qr_doc_reader *r, struct qr_doc_text *d, bool *masked, struct qr_err *err)
{
    *masked = false;
    if (r->lines)
        return encode_json(m, d->text, d->len, masked, err);
    const size_t valid = qr_utf8_valid_prefix(d->text, d->len);
    if (valid == d->len)
        return encode_text(m, d->text, d->len, err);
    d->line = line_of(d->text, valid, d->line);
    return qr_err_set(err, QR_E_INVALID, "byte 0x%02X is not UTF-8 here; convert the file (iconv -f latin1 -t utf-8 ...)", (unsigned char)d->text[valid]);
}

/* Which part a document belongs to depends on its text alone, so the same one is never in both. */
static bool held_out(const struct maker *m, const struct qr_doc_text *d)
{
    return (double)(qr_hash64(d->text, d->len, 0) >> 11) * 0x1p-53 < m->p->eval_fraction;
}

static int add_document(struct maker *m, const struct qr_doc_reader *r, struct qr_doc_text *d)
{
    bool masked;
    struct qr_err why;
    int rc = encode_document(m, r, d, &masked, &why);
    if (rc != 0) {
        qr_err_prefix(&why, "%s:%" PRId64 ": ", r->path, d->line);
        if (!m->p->skip_bad) {
            *m->err = why;
            return rc;
        }
        if (m->sum->n_bad++ == 0)
            snprintf(m->sum->first_bad, sizeof m->sum->first_bad, "%s", why.msg);
        return 0;
    }
    if (m->doc.ids.n == 0) {
        m->sum->n_empty++;
        return 0;
    }
    struct qr_data_writer *w = m->eval && held_out(m, d) ? m->eval : m->train;
    return qr_data_writer_add(w, m->doc.ids.id, masked ? m->doc.counts : NULL, m->doc.ids.n, m->err);
}

/* ---- all of them ---- */

static int64_t n_docs(const struct maker *m)
{
    return qr_data_writer_index(m->train)->n_docs + (m->eval ? qr_data_writer_index(m->eval)->n_docs : 0);
}

static bool go_on(const struct maker *m, const struct qr_doc_reader *r)
{
    const int64_t n_eval = m->eval ? qr_data_writer_index(m->eval)->n_tokens : 0;
    const struct qr_data_progress now = {.n_bytes = m->n_bytes_before + r->n_bytes, .n_bytes_total = m->n_bytes_total,
                                         .n_docs = n_docs(m), .file = r->path,
                                         .n_tokens = qr_data_writer_index(m->train)->n_tokens + n_eval};
    return !m->p->progress || m->p->progress(m->p->user, &now);
}

static int read_file(struct maker *m, const char *path)
{
    const bool lines = qr_data_is_lines(m->p->kind, path);
    struct qr_doc_reader r;
    struct qr_doc_text d;
    int rc = qr_doc_reader_open(&r, path, lines, lines ? NULL : m->p->separator, m->err);
    if (rc != 0)
        return rc;
    while ((rc = qr_doc_reader_next(&r, &d, m->err)) == 0 && d.len > 0) {
        rc = add_document(m, &r, &d);
        if (rc == 0 && !go_on(m, &r))
            rc = qr_err_set(m->err, QR_E_CLOSED, "stopped; nothing was written");
        if (rc != 0)
            break;
    }
    m->sum->n_empty += rc == 0 && r.n_bytes == 0; /* not even a document that is empty */
    m->n_bytes_before += r.n_bytes;
    qr_doc_reader_close(&r);
    return rc;
}

/* Data that quire train would refuse is refused while its input is at hand. */
static int check_targets(const struct maker *m)
{
    char hidden[100] = "";
    if (qr_data_writer_index(m->train)->n_targets > 0)
        return 0;
    if (m->sum->n_hidden > 0)
        snprintf(hidden, sizeof hidden, "; the chat template does not show %" PRId64 " answers", m->sum->n_hidden);
    return qr_err_set(m->err, QR_E_INVALID, "nothing to learn: no id of the %" PRId64 " documents counts as a target (a document needs two ids, a conversation "
                      "an assistant's answer)%s", qr_data_writer_index(m->train)->n_docs, hidden);
}

static int read_files(struct maker *m)
{
    int rc = 0;
    for (int32_t i = 0; i < m->p->n_files && rc == 0; i++)
        rc = read_file(m, m->p->files[i]);
    if (rc == 0 && qr_data_writer_index(m->train)->n_docs == 0)
        rc = qr_err_set(m->err, QR_E_INVALID,
                        "no document to train on in %d file%s: %" PRId64 " empty, %" PRId64 " bad, %" PRId64
                        " held out",
                        m->p->n_files, m->p->n_files == 1 ? "" : "s", m->sum->n_empty, m->sum->n_bad,
                        m->eval ? qr_data_writer_index(m->eval)->n_docs : 0);
    return rc ? rc : check_targets(m);
}

/* ---- the directory ---- */

static int copy_file(void *user, const char *name, const void *bytes, size_t n, struct qr_err *err)
{
    return qr_dir_write(user, name, bytes, n, true, err);
}

static struct qr_data_writer *open_writer(struct maker *m, char dir[QR_PATH_MAX])
{
    int rc = qr_tokenizer_files(m->p->tokenizer_dir, copy_file, dir, m->err);
    if (rc != 0)
        return NULL;
    return qr_data_writer_new(&(struct qr_data_writer_options){.dir = dir, .vocab_size = qr_tokenizer_vocab_size(m->tokenizer), .tokenizer = m->hash,
                                                               .shard_tokens_max = m->p->shard_tokens_max});
}

static int finish_part(struct qr_data_writer *w, const char *dir, struct qr_data_part *part, struct qr_err *err)
{
    const struct qr_data_index *m = qr_data_writer_index(w);
    *part = (struct qr_data_part){m->n_docs, m->n_tokens, m->n_targets};
    const int rc = qr_data_writer_finish(w, err);
    return rc == 0 ? qr_dir_sync(dir, err) : rc;
}

static int fill_directory(struct maker *m)
{
    if (!(m->train = open_writer(m, m->spare)))
        return m->err->code;
    if (m->p->eval_fraction > 0) {
        const int made = qr_dir_make_fresh(m->spare_eval, m->err);
        if (made != 0 || !(m->eval = open_writer(m, m->spare_eval)))
            return m->err->code;
    }
    int rc = read_files(m);
    if (rc == 0 && m->eval) {
        if (qr_data_writer_index(m->eval)->n_docs > 0)
            rc = finish_part(m->eval, m->spare_eval, &m->sum->eval, m->err);
        else
            rc = qr_dir_remove(m->spare_eval, m->err);
    }
    return rc == 0 ? finish_part(m->train, m->spare, &m->sum->train, m->err) : rc;
}

/* Removes a directory of prepared data and the part held out in it. */
static int remove_data(const char *dir, const char *eval, struct qr_err *err)
{
    int rc = access(eval, F_OK) == 0 ? qr_dir_remove(eval, err) : 0;
    return rc == 0 && access(dir, F_OK) == 0 ? qr_dir_remove(dir, err) : rc;
}

/* One at a time: the lock goes with the process, what a killed one left behind is removed. */
static int lock_spare(struct maker *m, int *lock)
{
    char text[128];
    if (mkdir(m->spare, 0777) != 0 && errno != EEXIST) {
        const int number = errno;
        return qr_err_set(m->err, QR_E_IO, "%s: cannot be made: %s", m->spare, qr_errno_text(text, number));
    }
    *lock = open(m->spare, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) != 0)
        return qr_err_set(m->err, QR_E_BUSY, "%s: another quire data prepare is writing there", m->spare);
    const int rc = access(m->spare_eval, F_OK) == 0 ? qr_dir_remove(m->spare_eval, m->err) : 0;
    return rc == 0 ? qr_dir_make_fresh(m->spare, m->err) : rc;
}

static int check_out(const char *out, bool replace, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    if (access(out, F_OK) != 0)
        return 0;
    int rc = qr_path_join(path, out, "data.json", err);
    if (rc == 0 && !replace)
        rc = qr_err_set(err, QR_E_USAGE, "'%s' already exists; name another directory, or replace prepared data with --replace", out);
    if (rc == 0 && access(path, F_OK) != 0)
        rc = qr_err_set(err, QR_E_USAGE, "'%s' exists and is no prepared data (no data.json); it is left alone", out);
    return rc;
}

static int make_directory(struct maker *m, const char *out)
{
    int lock = -1, rc = lock_spare(m, &lock);
    if (rc == 0)
        rc = fill_directory(m);
    if (rc == 0)
        rc = qr_dir_publish(m->spare, out, m->p->replace, m->err);
    struct qr_err ignored;
    if (lock >= 0 && rc != QR_E_BUSY) /* the half of a failed run, or what was replaced */
        remove_data(m->spare, m->spare_eval, &ignored);
    if (lock >= 0)
        close(lock);
    return rc;
}

/* ---- the call ---- */

static int open_tokenizer(struct maker *m)
{
    int rc = qr_tokenizer_open(&m->tokenizer, m->p->tokenizer_dir, m->err);
    if (rc == 0)
        rc = qr_chat_open(&m->chat, m->p->tokenizer_dir, m->err);
    char path[QR_PATH_MAX];
    rc = rc ? rc : qr_path_join(path, m->p->tokenizer_dir, "tokenizer.json", m->err);
    if (rc == 0 && access(path, F_OK) != 0) /* a GGUF file, which says its tokenizer otherwise */
        return qr_err_set(m->err, QR_E_NOT_FOUND, "%s: expected a directory with tokenizer.json, which goes along with prepared data; of a GGUF file "
                          "quire quantize writes one", m->p->tokenizer_dir);
    if (rc == 0)
        rc = qr_data_tokenizer_hash(&m->hash, m->p->tokenizer_dir, m->err);
    return rc;
}

int qr_data_prepare(const struct qr_data_prepare *p, struct qr_data_summary *out, struct qr_err *err)
{
    QR_ASSERT(p != NULL && p->tokenizer_dir != NULL && p->out != NULL && out != NULL);
    QR_ASSERT(p->n_files > 0 && p->eval_fraction >= 0 && p->eval_fraction < 1);
    *out = (struct qr_data_summary){0};
    struct maker m = {.p = p, .sum = out, .err = err, .n_bytes_total = qr_data_files_bytes(p->files, p->n_files)};
    char dir[QR_PATH_MAX];
    size_t n = strlen(p->out);
    while (n > 1 && p->out[n - 1] == '/')
        n--;
    int rc = 0;
    if (n == 0 || snprintf(dir, sizeof dir, "%.*s", (int)n, p->out) >= (int)sizeof dir - 32)
        rc = qr_err_set(err, QR_E_USAGE, "a directory's name of %zu bytes, expected 1 to %d", n, QR_PATH_MAX - 33);
    if (rc == 0) {
        snprintf(m.spare, sizeof m.spare, "%.*s.preparing", (int)n, dir);
        rc = qr_path_join(m.spare_eval, m.spare, "eval", err);
    }
    rc = rc ? rc : check_out(dir, p->replace, err);
    rc = rc ? rc : open_tokenizer(&m);
    rc = rc ? rc : make_directory(&m, dir);
    out->n_bytes = m.n_bytes_before;
    out->no_end_of_text = rc == 0 && p->end_of_text && qr_tokenizer_eos(m.tokenizer) < 0;
    qr_data_writer_free(m.train);
    qr_data_writer_free(m.eval);
    qr_chat_ids_release(&m.doc);
    qr_chat_close(m.chat);
    qr_tokenizer_close(m.tokenizer);
    return rc;
}
