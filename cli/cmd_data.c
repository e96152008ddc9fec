/* cmd_data.c - data to train on: text files to shards, and a look at what is in them. The third command is in
 * data_tokenizer.c. A directory appears when it is complete; Ctrl-C leaves nothing. What `show` prints is read from the
 * shards, byte by byte checked. Main thread. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/data_screen.h"
#include "train/data/prepare.h"
#include "train/data/shards.h"

/* ---- screen ---- */

void qr_data_screen_open(struct qr_data_screen *s, const char *what)
{
    QR_ASSERT(s != NULL);
    qr_progress_open(&s->line, what);
    qr_train_stop_open(&s->stop, "\nstopping; once more ends at once\n");
}

int qr_data_screen_close(struct qr_data_screen *s)
{
    QR_ASSERT(s != NULL);
    qr_progress_end(&s->line);
    return qr_train_stop_close(&s->stop);
}

double qr_data_screen_seconds(const struct qr_data_screen *s)
{
    QR_ASSERT(s != NULL);
    return (double)(qr_clock_us() - s->line.began_us) * 1e-6;
}

/* ---- prepare ---- */

struct prepare_options {
    const char *model, *out, *separator;
    double eval_fraction;
    int32_t kind, loss;
    bool eos, parse_special, skip_bad, replace;
};

static bool show_progress(void *user, const struct qr_data_progress *p)
{
    struct qr_data_screen *s = user;
    if (qr_progress_due(&s->line)) {
        char share[80] = "", left[QR_DURATION_TEXT];
        if (p->n_bytes_total >= p->n_bytes && p->n_bytes > 0)
            snprintf(share, sizeof share, "%.0f %%, %s left, ", 100.0 * (double)p->n_bytes / (double)p->n_bytes_total,
                     qr_duration_text(left, qr_progress_left_s(&s->line, (uint64_t)p->n_bytes, (uint64_t)p->n_bytes_total)));
        qr_progress_say(&s->line, "%s%lld documents, %lld tokens, %.1f MB/s", share, (long long)p->n_docs, (long long)p->n_tokens,
                        (double)p->n_bytes * 1e-6 / qr_data_screen_seconds(s));
    }
    return !s->stop.asked;
}

static void print_part(const char *name, const struct qr_data_part *p)
{
    printf("%-9s %lld documents, %lld tokens, %lld targets\n", name, (long long)p->n_docs, (long long)p->n_tokens, (long long)p->n_targets);
}

static void print_summary(const struct prepare_options *o, const struct qr_data_summary *s, double seconds)
{
    print_part(o->out, &s->train);
    if (s->eval.n_docs > 0)
        print_part("  /eval", &s->eval);
    printf("%.1f MB in %.1f s", (double)s->n_bytes * 1e-6, seconds);
    if (s->n_chats > 0)
        printf("; %lld conversations with %lld answers", (long long)s->n_chats, (long long)s->n_turns);
    printf("\n");
    fflush(stdout);
    if (o->eval_fraction > 0 && s->eval.n_docs == 0)
        fprintf(stderr, "quire data prepare: no document fell into the evaluation part; raise --eval-fraction or bring more documents\n");
    if (s->n_empty > 0)
        fprintf(stderr, "quire data prepare: %lld empty documents left out\n", (long long)s->n_empty);
    if (s->n_bad > 0)
        fprintf(stderr, "quire data prepare: %lld bad documents left out, the first: %s\n", (long long)s->n_bad, s->first_bad);
    if (s->n_hidden > 0)
        fprintf(stderr, "quire data prepare: the chat template does not show %lld answers; nothing is learnt from them\n", (long long)s->n_hidden);
    if (s->n_open > 0)
        fprintf(stderr, "quire data prepare: %lld answers end without a special token; a model does not learn to stop there\n", (long long)s->n_open);
    if (s->no_end_of_text)
        fprintf(stderr, "quire data prepare: the tokenizer has no end-of-text token (eos_token in tokenizer_config.json); documents have none\n");
}

static int prepare(struct qr_command_run *r, struct qr_err *err)
{
    const struct prepare_options *o = r->options;
    if (!o->model || !o->out || r->n_args == 0)
        return qr_err_set(err, QR_E_USAGE, "expected --model DIR --out DIR FILES...");
    struct qr_data_screen screen;
    struct qr_data_summary sum;
    const struct qr_data_prepare p = {.tokenizer_dir = o->model, .out = o->out, .files = r->args, .n_files = r->n_args, .kind = (enum qr_data_kind)o->kind,
                                      .separator = o->separator, .eval_fraction = o->eval_fraction, .end_of_text = o->eos,
                                      .parse_special = o->parse_special, .all_turns = o->loss == 1, .skip_bad = o->skip_bad, .replace = o->replace,
                                      .progress = show_progress, .user = &screen};
    qr_data_screen_open(&screen, "preparing");
    const int rc = qr_data_prepare(&p, &sum, err);
    r->status = qr_data_screen_close(&screen);
    if (rc == 0)
        print_summary(o, &sum, qr_data_screen_seconds(&screen));
    return rc;
}

static const struct qr_option prepare_table[] = {
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct prepare_options, model), .arg = "DIR",
     .help = "Whose tokenizer and chat template: a model directory, or one made by quire data train-tokenizer."},
    {.name = "out", .brief = true, .letter = 'o', .type = QR_OPT_STR, .offset = offsetof(struct prepare_options, out), .arg = "DIR",
     .help = "The directory to make. It appears when it is complete."},
    {.name = "replace", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct prepare_options, replace), .builtin = "false",
     .help = "Replace prepared data if DIR already exists."},
    {.name = "format", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct prepare_options, kind), .builtin = "auto", .choices = "auto|text|jsonl",
     .arg = "KIND",
     .help = "text: a file is a document; jsonl: a line is one, {\"text\": ...} or {\"messages\": [...]}; auto: by the name (.jsonl, .ndjson).",
     .group = "Input"},
    {.name = "separator", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct prepare_options, separator), .arg = "LINE", .group = "Input",
     .help = "Text files: documents end at lines that say this, such as <|endoftext|>; '' means empty lines."},
    {.name = "skip-bad", .type = QR_OPT_FLAG, .offset = offsetof(struct prepare_options, skip_bad), .builtin = "false", .group = "Input",
     .help = "Leave out documents that cannot be read (no JSON, no UTF-8, refused by the template) instead of stopping at the first."},
    {.name = "eval-fraction", .brief = true, .type = QR_OPT_FLOAT, .offset = offsetof(struct prepare_options, eval_fraction), .builtin = "0",
     .min = 0, .max = 0.99,
     .arg = "F", .group = "Output", .help = "So much of the documents, chosen by a hash of their text, goes to DIR/eval."},
    {.name = "loss", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct prepare_options, loss), .builtin = "assistant", .choices = "assistant|all",
     .arg = "WHAT", .group = "Output", .help = "What of a conversation counts as a target."},
    {.name = "eos", .type = QR_OPT_FLAG, .offset = offsetof(struct prepare_options, eos), .builtin = "true", .group = "Output",
     .help = "Put the tokenizer's end-of-text token behind each text."},
    {.name = "parse-special", .type = QR_OPT_FLAG, .offset = offsetof(struct prepare_options, parse_special), .builtin = "false", .group = "Output",
     .help = "Read special tokens that are written in texts as such, not as plain text."}};

static const struct qr_command prepare_command = {
    .name = "data prepare", .purpose = "text files and conversations to shards of token ids",
    .usage = "quire data prepare --model DIR --out DIR FILES...",
    .examples = "quire data prepare --model models/quire-tiny --out data/book book.txt\n"
                "quire data prepare -m qwen -o data/chats chats.jsonl --eval-fraction 0.05",
    .text = "Tokenizes text files and conversations into shards that quire train reads: attention stays within a document, and in\n"
            "conversations only what the assistant says (and the token that ends its turn) is learnt. Pipes are read too.",
    .table = prepare_table, .n_options = QR_COUNT(prepare_table), .options_bytes = sizeof(struct prepare_options), .run = prepare,
};

/* ---- show ---- */

struct show_options {
    const char *model;
    int64_t first, n_docs, n_tokens;
    bool ids, json;
};

struct shower {
    const struct show_options *o;
    const struct qr_shards *s;
    const struct qr_tokenizer *t;
    struct qr_buf out;
    bool colour; /* stdout is a terminal */
};

static void put_run(struct shower *w, const int32_t *ids, int32_t n, bool counts)
{
    qr_buf_put_str(&w->out, !counts ? "" : w->colour ? "\033[32m" : "[[");
    if (w->o->ids) {
        for (int32_t i = 0; i < n; i++)
            qr_buf_printf(&w->out, "%s%d", i > 0 ? " " : "", ids[i]);
    } else {
        struct qr_buf text = {0};
        for (int32_t i = 0; i < n; i++) {
            size_t len;
            const char *bytes = qr_tokenizer_token_bytes(w->t, ids[i], &len);
            qr_buf_put(&text, bytes, len);
        }
        if (w->colour)
            qr_buf_put_visible(&w->out, text.data, text.len);
        else
            qr_buf_put(&w->out, text.data, text.len);
        qr_buf_release(&text);
    }
    qr_buf_put_str(&w->out, !counts ? "" : w->colour ? "\033[0m" : "]]");
    if (w->o->ids)
        qr_buf_put_byte(&w->out, ' ');
}

static void show_document(struct shower *w, int64_t doc)
{
    const int64_t n_all = qr_shards_doc_n(w->s, doc);
    const int64_t most = w->o->n_tokens > 0 ? w->o->n_tokens : INT32_MAX;
    const int32_t n = (int32_t)(n_all < most ? n_all : most);
    int32_t *ids = qr_alloc((size_t)n, sizeof *ids);
    bool *counts = qr_alloc((size_t)n, sizeof *counts);
    qr_shards_read(w->s, doc, 0, n, ids, counts);
    int64_t n_targets = 0;
    counts[0] = false; /* nothing comes before it */
    for (int32_t i = 1; i < n; i++)
        n_targets += counts[i];
    qr_buf_printf(&w->out, "--- document %lld: %lld tokens, %lld of the %d shown are targets\n", (long long)doc,
                  (long long)n_all, (long long)n_targets, n);
    for (int32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && counts[end] == counts[i];)
            end++;
        put_run(w, ids + i, end - i, counts[i]);
    }
    qr_buf_put_str(&w->out, n < n_all ? " ...\n" : "\n");
    qr_free(ids);
    qr_free(counts);
}

static void show_totals(struct qr_buf *out, const char *dir, const struct qr_shards *s, bool json)
{
    const struct qr_data_index *m = qr_shards_index(s);
    const long long n_docs = m->n_docs, n_tokens = m->n_tokens, n_targets = m->n_targets;
    if (json)
        qr_buf_printf(out, "{\"n_docs\":%lld,\"n_tokens\":%lld,\"n_targets\":%lld,\"vocab_size\":%d,\"tokenizer\":\"%016llx\"}\n", n_docs, n_tokens, n_targets,
                      m->vocab_size, (unsigned long long)m->tokenizer);
    else
        qr_buf_printf(out,
                      "%s: %lld documents, %lld tokens (%.1f a document), %lld targets (%.1f %%), vocabulary %d, "
                      "tokenizer %016llx\n",
                      dir, n_docs, n_tokens, (double)n_tokens / (double)n_docs, n_targets,
                      100.0 * (double)n_targets / (double)n_tokens, m->vocab_size, (unsigned long long)m->tokenizer);
}

/* The tokenizer that made the data: the directory's own, unless another is named, which must be the same. */
static int open_tokenizer(struct qr_tokenizer **t, const char *dir, const struct show_options *o, const struct qr_shards *s, struct qr_err *err)
{
    const char *from = o->model ? o->model : dir;
    uint64_t hash;
    int rc = qr_data_tokenizer_hash(&hash, from, err);
    if (rc == 0 && hash != qr_shards_index(s)->tokenizer)
        rc = qr_err_set(err, QR_E_INVALID, "'%s' has another tokenizer (%016llx) than the one that made the data (%016llx)", from, (unsigned long long)hash,
                        (unsigned long long)qr_shards_index(s)->tokenizer);
    return rc == 0 ? qr_tokenizer_open(t, from, err) : rc;
}

static int show(struct qr_command_run *r, struct qr_err *err)
{
    const struct show_options *o = r->options;
    const char *dir = r->n_args == 1 ? r->args[0] : NULL;
    if (!dir)
        return qr_err_set(err, QR_E_USAGE, "expected one directory: quire data show DIR");
    struct qr_shards *s = NULL;
    struct qr_tokenizer *t = NULL;
    int rc = qr_shards_open(&s, dir, err);
    if (rc == 0)
        rc = open_tokenizer(&t, dir, o, s, err);
    if (rc == 0) {
        struct shower w = {.o = o, .s = s, .t = t, .colour = isatty(STDOUT_FILENO)};
        show_totals(&w.out, dir, s, o->json);
        for (int64_t i = 0; !o->json && i < o->n_docs && o->first + i < qr_shards_index(s)->n_docs; i++)
            show_document(&w, o->first + i);
        fwrite(w.out.data, 1, w.out.len, stdout);
        qr_buf_release(&w.out);
    }
    qr_tokenizer_close(t);
    qr_shards_close(s);
    return rc;
}

static const struct qr_option show_table[] = {
    {.name = "first", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct show_options, first), .builtin = "0", .min = 0, .max = 9e15, .arg = "N",
     .help = "The first document to show."},
    {.name = "docs", .brief = true, .letter = 'n', .type = QR_OPT_INT, .offset = offsetof(struct show_options, n_docs), .builtin = "3", .min = 0, .max = 1e6,
     .arg = "N",
     .help = "How many documents to show."},
    {.name = "tokens", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct show_options, n_tokens), .builtin = "400", .min = 0, .max = 1e9, .arg = "N",
     .help = "Tokens of a document to show at most; 0: all."},
    {.name = "ids", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct show_options, ids), .builtin = "false",
     .help = "Show token ids instead of text."},
    {.name = "model", .brief = true, .letter = 'm', .type = QR_OPT_STR, .offset = offsetof(struct show_options, model), .arg = "DIR",
     .help = "Another place of the tokenizer than the data directory itself."},
    {.name = "json", .brief = true, .type = QR_OPT_FLAG, .offset = offsetof(struct show_options, json), .builtin = "false",
     .help = "The totals as one JSON object."}};

static const struct qr_command show_command = {
    .name = "data show", .purpose = "documents of prepared data as the model sees them",
    .usage = "quire data show DIR [flags]",
    .examples = "quire data show data/book\n"
                "quire data show data/chats --first 10 -n 1 --ids",
    .text = "Checks prepared data and shows documents as the model will see them. What counts as a target is in [[ ]], or in colour on\n"
            "a terminal.",
    .table = show_table, .n_options = QR_COUNT(show_table), .options_bytes = sizeof(struct show_options), .run = show,
};

static const struct qr_command *const sub[] = {&prepare_command, &qr_cmd_data_tokenizer, &show_command};

const struct qr_command qr_cmd_data = {
    .name = "data", .purpose = "data to train on: prepare, show, train-tokenizer",
    .usage = "quire data COMMAND ...",
    .sub = sub, .n_sub = QR_COUNT(sub),
};
