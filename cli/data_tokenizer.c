/* data_tokenizer.c - quire data train-tokenizer: a vocabulary from text. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/data_screen.h"
#include "tokenizer/template.h"
#include "train/data/tokenizer_train.h"

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

/* The plainest of the common forms; its two tokens become special ones. */
#define CHATML \
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}" \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

struct tokenizer_options {
    int64_t vocab_size, min_count;
    const char *out, *separator, *bos, *eos, *template;
    struct qr_str_list special;
    int32_t cut, kind;
};

struct learning {
    struct qr_data_screen screen;
    struct qr_progress merges; /* the second part, with a pace of its own */
    int32_t n_first, n_tokens; /* at its beginning and its end */
};

static bool show_progress(void *user, const struct qr_tokenizer_train_progress *p)
{
    struct learning *l = user;
    if (p->file) {
        qr_progress_show_bytes(&l->screen.line, (uint64_t)p->n_bytes, (uint64_t)(p->n_bytes_total >= p->n_bytes ? p->n_bytes_total : 0));
        return !l->screen.stop.asked;
    }
    if (l->merges.began_us == 0) {
        qr_progress_end(&l->screen.line);
        qr_progress_open(&l->merges, "learning");
        l->n_first = p->n_tokens;
    }
    qr_progress_show(&l->merges, (uint64_t)(p->n_tokens - l->n_first), (uint64_t)(l->n_tokens - l->n_first));
    return !l->screen.stop.asked;
}

/* The template's text, and that it is one. */
static int read_template(struct qr_buf *out, const char *name, struct qr_err *err)
{
    struct qr_template *t;
    if (strcmp(name, "chatml") == 0) {
        qr_buf_put_str(out, CHATML);
        return 0;
    }
    int rc = qr_file_read(out, name, QR_FILE_ANY, TEMPLATE_BYTES_MAX, err);
    if (rc == 0 && out->len == 0)
        rc = qr_err_set(err, QR_E_USAGE, "%s: is empty", name);
    if (rc == 0 && (rc = qr_template_compile(&t, out->data, out->len, err)) != 0)
        return qr_err_prefix(err, "%s: ", name);
    if (rc == 0)
        qr_template_free(t);
    return rc;
}

/* The special tokens: those named, else the end of text; bos, eos and the template's own among them. */
static int32_t collect_specials(const char *special[64], struct tokenizer_options *o)
{
    const bool chatml = o->template && strcmp(o->template, "chatml") == 0;
    const char *more[4] = {o->bos, o->eos, chatml ? "<|im_start|>" : NULL, chatml ? "<|im_end|>" : NULL};
    int32_t n = 0;
    for (; n < o->special.n && n < 60; n++)
        special[n] = o->special.item[n];
    if (n == 0 && !o->eos)
        more[1] = special[n++] = "<|endoftext|>";
    for (int i = 0; i < QR_COUNT(more); i++) {
        bool known = !more[i];
        for (int32_t k = 0; k < n && !known; k++)
            known = strcmp(special[k], more[i]) == 0;
        if (!known)
            special[n++] = more[i];
    }
    if (!o->eos)
        o->eos = chatml ? "<|im_end|>" : special[0];
    return n;
}

static int train(struct qr_command_run *r, struct qr_err *err)
{
    struct tokenizer_options *o = r->options;
    const char *special[64];
    struct qr_buf template = {0};
    struct qr_tokenizer_train_summary sum;
    struct learning l = {.n_tokens = (int32_t)o->vocab_size};
    if (!o->out || r->n_args == 0)
        return qr_err_set(err, QR_E_USAGE, "expected --out DIR FILES...");
    if (o->special.n > 60)
        return qr_err_set(err, QR_E_USAGE, "%d special tokens, expected at most 60", o->special.n);
    int rc = o->template ? read_template(&template, o->template, err) : 0;
    const int32_t n_special = collect_specials(special, o);
    const struct qr_tokenizer_train p = {
        .bpe = {.cut = (enum qr_bpe_cut)o->cut, .vocab_size = (int32_t)o->vocab_size, .min_count = o->min_count, .special = special, .n_special = n_special,
                .bos = o->bos, .eos = o->eos},
        .out = o->out, .files = r->args, .n_files = r->n_args, .separator = o->separator, .kind = (enum qr_data_kind)o->kind, .chat_template = template.data,
        .progress = show_progress, .user = &l};
    if (rc == 0) {
        qr_data_screen_open(&l.screen, "reading");
        rc = qr_tokenizer_train(&p, &sum, err);
        qr_progress_end(&l.merges);
        r->status = qr_data_screen_close(&l.screen);
    }
    if (rc == 0)
        printf("%s: %d tokens (%d special, 256 bytes, %d merges) from %.1f MB, %lld different words, in %.1f s\n", o->out, sum.n_tokens, n_special,
               sum.n_merges, (double)sum.n_bytes * 1e-6, (long long)sum.n_pieces, qr_data_screen_seconds(&l.screen));
    if (rc == 0 && sum.n_tokens < o->vocab_size)
        fprintf(stderr, "quire data train-tokenizer: no more pairs that occur %lld times; the vocabulary has %d tokens, not %lld\n", (long long)o->min_count,
                sum.n_tokens, (long long)o->vocab_size);
    qr_buf_release(&template);
    return rc;
}

static const struct qr_option table[] = {
    {.name = "vocab-size", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct tokenizer_options, vocab_size), .builtin = "4096",
     .min = 256, .max = 1048576,
     .arg = "N", .help = "Tokens in all: special ones, 256 bytes, the rest learnt."},
    {.name = "out", .brief = true, .letter = 'o', .type = QR_OPT_STR, .offset = offsetof(struct tokenizer_options, out), .arg = "DIR",
     .help = "The directory to make, with tokenizer.json and tokenizer_config.json."},
    {.name = "cut", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct tokenizer_options, cut), .builtin = "llama3", .choices = QR_BPE_TRAIN_CHOICES,
     .arg = "NAME", .help = "How text is cut into words before merging, as that model does: up to three digits, each digit by itself, any number."},
    {.name = "min-count", .type = QR_OPT_INT, .offset = offsetof(struct tokenizer_options, min_count), .builtin = "2", .min = 1, .max = 1e15, .arg = "N",
     .help = "Pairs that occur less often are not merged."},
    {.name = "format", .brief = true, .type = QR_OPT_ENUM, .offset = offsetof(struct tokenizer_options, kind), .builtin = "auto", .choices = "auto|text|jsonl",
     .arg = "KIND", .group = "Input", .help = "As in quire data prepare; of conversations, the contents of messages are learnt from."},
    {.name = "separator", .type = QR_OPT_STR, .offset = offsetof(struct tokenizer_options, separator), .arg = "LINE", .group = "Input",
     .help = "Text files: documents end at lines that say this. Needed for files of more than 64 MiB."},
    {.name = "special", .brief = true, .type = QR_OPT_LIST, .offset = offsetof(struct tokenizer_options, special), .arg = "TOKEN", .group = "Special tokens",
     .help = "A special token, with the next id from 0 on; may be repeated. <|endoftext|> when none is named."},
    {.name = "bos", .type = QR_OPT_STR, .offset = offsetof(struct tokenizer_options, bos), .arg = "TOKEN", .group = "Special tokens",
     .help = "Put in front of every text."},
    {.name = "eos", .type = QR_OPT_STR, .offset = offsetof(struct tokenizer_options, eos), .arg = "TOKEN", .group = "Special tokens",
     .help = "Ends a text; the first special token when not named, with --chat-template chatml <|im_end|>."},
    {.name = "chat-template", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct tokenizer_options, template),
     .arg = "FILE", .group = "Special tokens",
     .help = "A Jinja template to keep in tokenizer_config.json, or the word chatml."}};

const struct qr_command qr_cmd_data_tokenizer = {
    .name = "data train-tokenizer", .purpose = "learn a byte-level BPE vocabulary",
    .usage = "quire data train-tokenizer --vocab-size N --out DIR FILES...",
    .examples = "quire data train-tokenizer --vocab-size 4096 --out tok book.txt\n"
                "quire data train-tokenizer -o tok --chat-template chatml chats.jsonl",
    .text = "Learns a byte-level BPE vocabulary from text files or JSON Lines, and writes the tokenizer.json that quire and other tools\n"
            "read.",
    .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct tokenizer_options), .run = train,
};
