/* Preparing data: what is in the files is in the shards, in order, and nothing is left of a preparation that failed. */
#include "tests/train/data_rig.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tokenizer/tok_test.h"
#include "train/data/doc_reader.h"
#include "train/data/prepare.h"

#define MODEL "models/stories260K"

struct bench {
    struct data_dir dir;
    char out[100], in[4][100], model[300];
    const char *files[4];
    struct qr_data_prepare p;
};

static void bench_init(struct bench *b)
{
    const struct data_dir dir = data_dir_make();
    *b = (struct bench){.dir = dir};
    snprintf(b->out, sizeof b->out, "%s/out", dir.path);
    snprintf(b->model, sizeof b->model, "%s/%s", tok_data(), MODEL);
    b->p = (struct qr_data_prepare){.tokenizer_dir = b->model, .out = b->out, .files = b->files, .end_of_text = true};
}

static void add_file(struct bench *b, const char *name, const char *text)
{
    char *path = b->in[b->p.n_files];
    const struct data_dir dir = b->dir;
    snprintf(path, sizeof b->in[0], "%s/%s", dir.path, name);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
    b->files[b->p.n_files++] = path;
}

static struct qr_data_summary prepare(struct bench *b)
{
    struct qr_data_summary sum;
    struct qr_err err = {0};
    cr_assert_eq(qr_data_prepare(&b->p, &sum, &err), 0, "%s", err.msg);
    return sum;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void expect_nothing_left(const struct bench *b)
{
    char spare[200];
    snprintf(spare, sizeof spare, "%s.preparing", b->out);
    cr_expect_not(exists(b->out));
    cr_expect_not(exists(spare));
}

/* All documents, decoded, a bar behind each. */
static void decode_all(struct qr_buf *out, const char *dir)
{
    struct qr_tokenizer *t = tok_open(MODEL);
    struct qr_shards *s = data_open(dir);
    qr_buf_clear(out);
    for (int64_t d = 0; d < qr_shards_index(s)->n_docs; d++) {
        const int64_t n = qr_shards_doc_n(s, d);
        int32_t *ids = qr_alloc((size_t)n, sizeof *ids);
        qr_shards_read(s, d, 0, n, ids, NULL);
        for (int64_t i = 0; i < n; i++) {
            size_t len;
            const char *bytes = qr_tokenizer_token_bytes(t, ids[i], &len);
            qr_buf_put(out, bytes, len);
        }
        qr_buf_put_byte(out, '|');
        qr_free(ids);
    }
    qr_buf_put(out, "", 1);
    qr_shards_close(s);
    qr_tokenizer_close(t);
}

static const struct input {
    const char *name, *separator, *text, *documents;
} inputs[] = {
    {"a.txt", NULL, "One.\nTwo.\n", "<s> One.\nTwo.\n</s>|"},
    {"a.txt", "", "One.\n\nTwo\nlines.\n\n\n\nThree", "<s> One.</s>|<s> Two\nlines.</s>|<s> Three</s>|"},
    {"a.txt", "<|x|>", "<|x|>\nOne.\r\n<|x|>\r\n<|x|>\nTwo <|x|>\n<|x|>", "<s> One.</s>|<s> Two <|x|></s>|"},
    {"a.txt", "--", "One.\n---\nTwo.", "<s> One.\n---\nTwo.</s>|"},
    {"a.txt", NULL, "a </s> b", "<s> a </s> b</s>|"}, /* a special token's name in a text is text, see the ids below */
    {"a.jsonl", NULL, "{\"text\":\"One.\"}\r\n\n{\"text\":\"\"}\n{\"text\":\"T\\u0077o.\",\"id\":7}", "<s> One.</s>|<s> Two.</s>|"},
    {"a.ndjson", NULL, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yes\"}]}", " Hi\nYes</s>|"},
};

Test(prepare, every_document_of_every_kind_of_file_is_there_in_order)
{
    TOK_NEED_DATA();
    struct qr_buf got = {0};
    for (int i = 0; i < QR_COUNT(inputs); i++) {
        struct bench b;
        bench_init(&b);
        b.p.separator = inputs[i].separator;
        b.p.shard_tokens_max = i % 2;
        add_file(&b, inputs[i].name, inputs[i].text);
        prepare(&b);
        decode_all(&got, b.out);
        cr_expect_str_eq(got.data, inputs[i].documents, "case %d: %s", i, got.data);
        data_dir_remove(&b.dir);
    }
    qr_buf_release(&got);
}

Test(prepare, ids_are_the_tokenizers_and_special_names_in_a_text_are_text_unless_asked_for)
{
    TOK_NEED_DATA();
    struct qr_tokenizer *t = tok_open(MODEL);
    for (int parse = 0; parse < 2; parse++) {
        struct bench b;
        struct qr_ids want = {0};
        struct qr_err err = {0};
        int32_t got[64];
        bench_init(&b);
        b.p.parse_special = parse;
        add_file(&b, "a.txt", "a </s> b");
        prepare(&b);
        cr_assert_eq(qr_tokenizer_encode(t, &want, "a </s> b", 8, QR_ENCODE_ADD_SPECIAL | (parse ? QR_ENCODE_PARSE_SPECIAL : 0), &err), 0);
        qr_ids_push(&want, qr_tokenizer_eos(t));
        struct qr_shards *s = data_open(b.out);
        cr_assert_eq(qr_shards_doc_n(s, 0), want.n);
        qr_shards_read(s, 0, 0, want.n, got, NULL);
        cr_assert_eq(memcmp(got, want.id, (size_t)want.n * 4), 0);
        qr_shards_close(s);
        qr_ids_release(&want);
        data_dir_remove(&b.dir);
    }
    qr_tokenizer_close(t);
}

Test(prepare, of_conversations_only_answers_count_unless_all_is_asked_for)
{
    TOK_NEED_DATA();
    for (int all = 0; all < 2; all++) {
        struct bench b;
        bench_init(&b);
        b.p.all_turns = all;
        add_file(&b, "a.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi there\"},{\"role\":\"assistant\",\"content\":\"Yes\"}]}\n"
                              "{\"text\":\"Hm\"}");
        const struct qr_data_summary sum = prepare(&b);
        struct qr_shards *s = data_open(b.out);
        int32_t ids[64];
        bool counts[64];
        const int64_t n = qr_shards_doc_n(s, 0);
        qr_shards_read(s, 0, 0, n, ids, counts);
        cr_expect_eq(counts[1], all == 1);
        cr_expect(counts[n - 1] && counts[n - 2]);
        const int64_t n_text = qr_shards_doc_n(s, 1);
        qr_shards_read(s, 1, 0, n_text, ids, counts);
        for (int64_t i = 0; i < n_text; i++)
            cr_expect(counts[i]);
        cr_expect(sum.n_chats == 1 && sum.n_turns == 1 && sum.n_open == 0 && sum.n_hidden == 0);
        cr_expect_eq(sum.train.n_targets, qr_shards_index(s)->n_targets);
        qr_shards_close(s);
        data_dir_remove(&b.dir);
    }
}

/* ---- errors ---- */

static const struct bad {
    const char *name, *text, *says;
    enum qr_code code;
} bad[] = {
    {"a.jsonl", "{\"text\":\"x\"}\n{\"text\":", "a.jsonl:2: ", QR_E_INVALID},
    {"a.jsonl", "{\"text\":\"x\"}\n\n\n[1]\n", "a.jsonl:4: expected an object with a string \"text\"", QR_E_INVALID},
    {"a.jsonl", "{\"text\":1}", "a.jsonl:1: expected", QR_E_INVALID},
    {"a.jsonl", "{\"messages\":{}}", "a.jsonl:1: \"messages\" must be an array, found object", QR_E_INVALID},
    {"a.jsonl", "{\"messages\":[]}", "a.jsonl:1: \"messages\" is empty", QR_E_INVALID},
    {"a.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":1}", "\"tools\" must be an array", QR_E_INVALID},
    {"a.jsonl", "{\"text\":\"\xff\"}", "a.jsonl:1: ", QR_E_INVALID},
    {"a.txt", "good\nbad \xe9 here\n", "a.txt:2: byte 0xE9 is not UTF-8", QR_E_INVALID},
    {"a.txt", "", "no document to train on in 1 file: 1 empty, 0 bad", QR_E_INVALID},
    {"a.jsonl", "{\"text\":\"\"}\n", "1 empty, 0 bad", QR_E_INVALID},
};

Test(prepare, what_cannot_be_read_is_named_by_file_and_line_and_nothing_is_left)
{
    TOK_NEED_DATA();
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct bench b;
        struct qr_data_summary sum;
        struct qr_err err = {0};
        bench_init(&b);
        b.p.eval_fraction = i % 2 ? 0.5 : 0;
        add_file(&b, bad[i].name, bad[i].text);
        cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), (int)bad[i].code, "case %d", i);
        cr_expect_not_null(strstr(err.msg, bad[i].says), "case %d: %s", i, err.msg);
        expect_nothing_left(&b);
        data_dir_remove(&b.dir);
    }
}

Test(prepare, a_missing_file_a_directory_and_a_document_that_is_too_long_are_refused)
{
    TOK_NEED_DATA();
    struct bench b;
    struct qr_data_summary sum;
    struct qr_err err = {0};
    bench_init(&b);
    add_file(&b, "long.txt", "");
    cr_assert_eq(truncate(b.in[0], (off_t)QR_DOC_BYTES_MAX + 1), 0);
    cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_TOO_LARGE);
    cr_expect(strstr(err.msg, "long.txt:1: ") && strstr(err.msg, "--separator"), "%s", err.msg);
    b.files[0] = b.dir.path;
    cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_IO);
    b.files[0] = "/nonexistent/a.txt";
    cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_NOT_FOUND);
    b.p.tokenizer_dir = b.dir.path;
    cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_NOT_FOUND);
    cr_expect_not_null(strstr(err.msg, "tokenizer.json"), "%s", err.msg);
    expect_nothing_left(&b);
    data_dir_remove(&b.dir);
}

Test(prepare, bad_documents_are_left_out_and_counted_when_that_is_asked_for)
{
    TOK_NEED_DATA();
    struct bench b;
    bench_init(&b);
    b.p.skip_bad = true;
    add_file(&b, "a.jsonl", "{\"text\":\"One\"}\nnonsense\n{\"text\":\"Two\"}\n{\"messages\":[7]}\n");
    const struct qr_data_summary sum = prepare(&b);
    cr_expect(sum.train.n_docs == 2 && sum.n_bad == 2);
    cr_expect_not_null(strstr(sum.first_bad, "a.jsonl:2: "), "%s", sum.first_bad);
    data_dir_remove(&b.dir);
}

/* ---- the part held out ---- */

static void add_numbers(struct bench *b, const char *name, int from, int to)
{
    struct qr_buf text = {0};
    for (int i = from; i < to; i++)
        qr_buf_printf(&text, "{\"text\":\"number %d\"}\n", i);
    add_file(b, name, text.data);
    qr_buf_release(&text);
}

Test(prepare, a_document_is_held_out_by_its_text_alone)
{
    TOK_NEED_DATA();
    struct bench b, c;
    struct qr_buf one = {0}, two = {0};
    char eval[200];
    bench_init(&b);
    b.p.eval_fraction = 0.25;
    add_numbers(&b, "a.jsonl", 0, 2000);
    const struct qr_data_summary sum = prepare(&b);
    cr_assert_eq(sum.train.n_docs + sum.eval.n_docs, 2000);
    cr_expect(sum.eval.n_docs > 500 - 6 * 19 && sum.eval.n_docs < 500 + 6 * 19, "%lld", (long long)sum.eval.n_docs); /* deviation sqrt(2000 * 3 / 16) = 19.4 */
    snprintf(eval, sizeof eval, "%s/eval", b.out);
    decode_all(&one, eval);
    bench_init(&c); /* in other files, with other documents around */
    c.p.eval_fraction = 0.25;
    add_numbers(&c, "x.jsonl", 0, 700);
    add_numbers(&c, "y.jsonl", 700, 2000);
    prepare(&c);
    snprintf(eval, sizeof eval, "%s/eval", c.out);
    decode_all(&two, eval);
    cr_expect_str_eq(one.data, two.data);
    qr_buf_release(&one);
    qr_buf_release(&two);
    data_dir_remove(&b.dir);
    data_dir_remove(&c.dir);
}

static void read_index(struct qr_buf *out, const struct bench *b)
{
    char path[200];
    snprintf(path, sizeof path, "%s/data.json", b->out);
    tok_read(out, path);
    qr_buf_put(out, "", 1);
}

Test(prepare, the_same_input_gives_the_same_bytes_and_an_old_directory_is_replaced_only_when_asked)
{
    TOK_NEED_DATA();
    struct bench b;
    struct qr_data_summary sum;
    struct qr_err err = {0};
    struct qr_buf one = {0}, two = {0};
    bench_init(&b);
    b.p.eval_fraction = 0.5;
    b.p.shard_tokens_max = 100;
    add_numbers(&b, "a.jsonl", 0, 100);
    prepare(&b);
    read_index(&one, &b);
    cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_USAGE);
    cr_expect_not_null(strstr(err.msg, "already exists"), "%s", err.msg);
    b.p.replace = true;
    prepare(&b);
    read_index(&two, &b);
    cr_expect_str_eq(one.data, two.data); /* the hashes of all files are in it */
    b.p.out = b.dir.path;
    cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_USAGE);
    cr_expect_not_null(strstr(err.msg, "no prepared data"), "%s", err.msg);
    qr_buf_release(&one);
    qr_buf_release(&two);
    data_dir_remove(&b.dir);
}

/* ---- stopped, killed, twice at once ---- */

static bool stop_at(void *user, const struct qr_data_progress *p)
{
    cr_expect(p->n_bytes <= p->n_bytes_total && p->n_tokens > 0);
    return p->n_docs < *(int64_t *)user;
}

Test(prepare, stopped_at_any_document_leaves_nothing_or_the_old_directory)
{
    TOK_NEED_DATA();
    struct bench b;
    struct qr_data_summary sum;
    struct qr_err err = {0};
    struct qr_buf one = {0}, two = {0};
    int64_t at;
    bench_init(&b);
    b.p.eval_fraction = 0.5;
    b.p.progress = stop_at;
    b.p.user = &at;
    add_numbers(&b, "a.jsonl", 0, 10);
    for (at = 1; at <= 10; at++) {
        cr_assert_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_CLOSED);
        expect_nothing_left(&b);
    }
    prepare(&b);
    read_index(&one, &b);
    b.p.replace = true;
    at = 3;
    cr_assert_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_CLOSED);
    read_index(&two, &b);
    cr_expect_str_eq(one.data, two.data);
    qr_buf_release(&one);
    qr_buf_release(&two);
    data_dir_remove(&b.dir);
}

Test(prepare, what_a_killed_run_left_is_cleaned_up_and_what_a_living_one_writes_is_left_alone)
{
    TOK_NEED_DATA();
    struct bench b;
    struct qr_data_summary sum;
    struct qr_err err = {0};
    char spare[200], inside[250];
    bench_init(&b);
    add_numbers(&b, "a.jsonl", 0, 10);
    snprintf(spare, sizeof spare, "%s.preparing", b.out);
    snprintf(inside, sizeof inside, "%s/eval", spare);
    cr_assert(mkdir(spare, 0777) == 0 && mkdir(inside, 0777) == 0);
    snprintf(inside, sizeof inside, "%s/eval/shard-00000.bin", spare);
    FILE *f = fopen(inside, "wb");
    cr_assert_not_null(f);
    fclose(f);
    const int lock = open(spare, O_RDONLY | O_DIRECTORY);
    cr_assert(lock >= 0 && flock(lock, LOCK_EX) == 0);
    cr_expect_eq(qr_data_prepare(&b.p, &sum, &err), QR_E_BUSY);
    cr_expect(exists(inside));
    close(lock);
    prepare(&b);
    cr_expect_not(exists(spare));
    qr_shards_close(data_open(b.out));
    data_dir_remove(&b.dir);
}

Test(prepare, a_pipe_is_read_as_a_file_is)
{
    TOK_NEED_DATA();
    struct bench b;
    struct qr_buf got = {0};
    bench_init(&b);
    b.p.kind = QR_DATA_JSONL;
    const struct data_dir dir = b.dir;
    snprintf(b.in[0], sizeof b.in[0], "%s/pipe", dir.path);
    cr_assert_eq(mkfifo(b.in[0], 0600), 0);
    b.files[b.p.n_files++] = b.in[0];
    const pid_t writer = fork();
    if (writer == 0) {
        const int fd = open(b.in[0], O_WRONLY);
        static const char text[] = "{\"text\":\"One\"}\n{\"text\":\"Two\"}\n";
        for (size_t i = 0; i < sizeof text - 1; i += 5) { /* in pieces that end anywhere */
            ssize_t n = write(fd, text + i, sizeof text - 1 - i < 5 ? sizeof text - 1 - i : 5);
            (void)n;
        }
        _exit(0);
    }
    prepare(&b);
    decode_all(&got, b.out);
    cr_expect_str_eq(got.data, "<s> One</s>|<s> Two</s>|");
    qr_buf_release(&got);
    data_dir_remove(&b.dir);
}
