/* Every id list and text of the conformance data, computed by the reference implementation (see its SOURCES.md). */
#include "tok_test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "sha256.h"

struct tally {
    int32_t cases, advisory, advisory_same;
};

static const struct qr_json *member(const struct qr_json *v, const char *key)
{
    const struct qr_json *m = qr_json_find(v, key);
    cr_assert(m, "no member %s", key);
    return m;
}

static void check_decoded(const struct qr_tokenizer *t, const struct qr_ids *ids, bool skip, const char *text, size_t n,
                          const char *id)
{
    struct qr_buf out = {0};
    qr_tokenizer_decode(t, &out, ids->id, ids->n, skip);
    cr_expect(out.len == n && (n == 0 || memcmp(out.data, text, n) == 0), "%s: decode(skip %d) gives \"%.*s\", expected \"%.*s\"",
              id, skip, (int)out.len, out.data ? out.data : "", (int)n, text);
    qr_buf_release(&out);
}

static void check_encode_case(const struct qr_tokenizer *t, const struct qr_json *v, struct tally *tally)
{
    size_t n, n_want;
    const char *id = qr_json_str(member(v, "id"), NULL), *text = qr_json_str(member(v, "text"), &n);
    struct qr_ids want = {0}, got = {0};
    tok_ids(&want, member(v, "ids"));
    tok_encode(t, &got, text, n, QR_ENCODE_PARSE_SPECIAL);
    bool advisory = strcmp(qr_json_str(member(v, "category"), NULL), "advisory_new_unicode") == 0;
    tally->cases++;
    tally->advisory += advisory;
    tally->advisory_same += advisory && tok_same(&got, &want);
    cr_expect(advisory || tok_same(&got, &want), "%s: \"%.*s\" gives %s, expected %s", id, (int)n, text, tok_show(&got),
              tok_show(&want));
    const struct qr_json *decoded = qr_json_find(v, "decoded");
    const char *s = decoded ? qr_json_str(decoded, &n_want) : (n_want = n, text);
    check_decoded(t, &want, false, s, n_want, id);
    const struct qr_json *skipped = qr_json_find(v, "decoded_skip_special");
    s = skipped ? qr_json_str(skipped, &n_want) : s;
    check_decoded(t, &want, true, s, n_want, id);
    const struct qr_json *special = qr_json_find(v, "ids_with_special");
    if (special)
        tok_ids(&want, special);
    tok_encode(t, &got, text, n, QR_ENCODE_PARSE_SPECIAL | QR_ENCODE_ADD_SPECIAL);
    cr_expect(advisory || tok_same(&got, &want), "%s: with special tokens \"%.*s\" gives %s, expected %s", id, (int)n, text,
              tok_show(&got), tok_show(&want));
    qr_ids_release(&want);
    qr_ids_release(&got);
}

Test(vectors, every_text_encodes_to_the_reference_ids)
{
    TOK_NEED_DATA();
    struct tally tally = {0};
    for (int i = 0; i < TOK_NAMES; i++) {
        char path[256];
        struct qr_buf lines = {0};
        const char *line;
        size_t at = 0, n;
        struct qr_tokenizer *t = tok_open_name(tok_names[i]);
        snprintf(path, sizeof path, "tokenizers/vectors/%s.encode.jsonl", tok_names[i]);
        tok_read_data(&lines, path);
        while (tok_line(&lines, &at, &line, &n)) {
            struct qr_json *v = tok_json(line, n);
            check_encode_case(t, v, &tally);
            qr_json_free(v);
        }
        qr_buf_release(&lines);
        qr_tokenizer_close(t);
    }
    cr_expect(tally.cases == 5 * 607, "%d cases were read", tally.cases);
    fprintf(stderr, "vectors: %d texts; newer Unicode (advisory): %d of %d agree\n", tally.cases, tally.advisory_same,
            tally.advisory);
}

/* What a stream has shown after k ids must be a prefix of every later prefix text, U+FFFD at its end apart. */
static void check_stream(const struct qr_tokenizer *t, const struct qr_ids *ids, const struct qr_json *prefixes, const char *text,
                         size_t n, const char *id)
{
    struct qr_detok d;
    struct qr_buf sent = {0};
    char *piece = malloc(qr_detok_piece_max(t));
    qr_detok_init(&d, t, NULL, 0, false);
    const struct qr_json *prefix = prefixes ? qr_json_first(prefixes) : NULL;
    for (int32_t i = 0; i < ids->n; i++) {
        size_t n_piece = qr_detok_push(&d, piece, ids->id[i]);
        cr_expect(n_piece == 0 || qr_utf8_valid_prefix(piece, n_piece) == n_piece, "%s: a piece cuts a character", id);
        qr_buf_put(&sent, piece, n_piece);
        for (const struct qr_json *later = prefix; later; later = qr_json_after(later)) {
            size_t n_later;
            const char *s = qr_json_str(later, &n_later);
            cr_expect(sent.len == 0 || (sent.len <= n_later && memcmp(sent.data, s, sent.len) == 0),
                      "%s: what was sent after %d ids would have to be taken back", id, i + 1);
        }
        prefix = prefix ? qr_json_after(prefix) : NULL;
    }
    qr_buf_put(&sent, piece, qr_detok_flush(&d, piece));
    cr_expect(sent.len == n && (n == 0 || memcmp(sent.data, text, n) == 0), "%s: the stream gave \"%.*s\", expected \"%.*s\"", id,
              (int)sent.len, sent.data ? sent.data : "", (int)n, text);
    qr_buf_release(&sent);
    free(piece);
}

static void check_decode_case(const struct qr_tokenizer *t, const struct qr_json *v)
{
    size_t n;
    const char *id = qr_json_str(member(v, "id"), NULL);
    struct qr_ids ids = {0};
    tok_ids(&ids, member(v, "ids"));
    const char *text = qr_json_str(member(v, "text"), &n);
    check_decoded(t, &ids, false, text, n, id);
    check_stream(t, &ids, qr_json_find(v, "prefix_texts"), text, n, id);
    text = qr_json_str(member(v, "text_skip_special"), &n);
    check_decoded(t, &ids, true, text, n, id);
    qr_ids_release(&ids);
}

Test(vectors, every_id_list_decodes_to_the_reference_text_whole_and_streamed)
{
    TOK_NEED_DATA();
    int32_t cases = 0;
    for (int i = 0; i < TOK_NAMES; i++) {
        char path[256];
        struct qr_buf lines = {0};
        const char *line;
        size_t at = 0, n;
        struct qr_tokenizer *t = tok_open_name(tok_names[i]);
        snprintf(path, sizeof path, "tokenizers/vectors/%s.decode.jsonl", tok_names[i]);
        tok_read_data(&lines, path);
        while (tok_line(&lines, &at, &line, &n)) {
            struct qr_json *v = tok_json(line, n);
            check_decode_case(t, v);
            cases++;
            qr_json_free(v);
        }
        qr_buf_release(&lines);
        qr_tokenizer_close(t);
    }
    cr_expect(cases == 5 * 163, "%d cases were read", cases);
}

static void check_file(const struct qr_json *v)
{
    const char *name = qr_json_str(member(v, "tokenizer"), NULL), *file = qr_json_str(member(v, "file"), NULL);
    char path[256], digest[65];
    struct qr_buf text = {0}, back = {0};
    struct qr_ids ids = {0};
    int64_t n_ids;
    bool tiny = strcmp(name, "stories260K") == 0;
    struct qr_tokenizer *t = tiny ? tok_open("models/stories260K") : tok_open_name(name);
    snprintf(path, sizeof path, "text/%s", file);
    tok_read_data(&text, path);
    tok_encode(t, &ids, text.data, text.len, QR_ENCODE_PARSE_SPECIAL);
    cr_assert(qr_json_i64(member(v, "n_ids"), &n_ids));
    cr_expect(ids.n == n_ids, "%s %s: %d ids, expected %lld", name, file, ids.n, (long long)n_ids);
    sha256_hex(ids.id, (size_t)ids.n * sizeof *ids.id, digest);
    cr_expect_str_eq(digest, qr_json_str(member(v, "sha256_ids_u32le"), NULL), "%s %s: the ids differ", name, file);
    qr_tokenizer_decode(t, &back, ids.id, ids.n, false);
    cr_expect(back.len == text.len && memcmp(back.data, text.data, text.len) == 0, "%s %s does not decode to itself", name, file);
    qr_buf_release(&text);
    qr_buf_release(&back);
    qr_ids_release(&ids);
    qr_tokenizer_close(t);
}

/* Two files a vocabulary; sanitizers, ten times slower, get one of them. */
static bool file_is_asked(int i)
{
#if defined(__SANITIZE_ADDRESS__)
    return i % 2 == i / 2 % 2;
#else
    (void)i;
    return true;
#endif
}

Test(vectors, whole_files_encode_to_the_reference_hash, .timeout = 120)
{
    int i = 0;
    TOK_NEED_DATA();
    struct qr_buf text = {0};
    tok_read_data(&text, "tokenizers/vectors/whole_files.json");
    struct qr_json *list = tok_json(text.data, text.len);
    cr_assert(qr_json_count(list) == 12);
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v))
        if (file_is_asked(i++))
            check_file(v);
    qr_json_free(list);
    qr_buf_release(&text);
}

/* Texts are separated by a line of their own; ids stand one line for each text. Made by llama.cpp from the models' own
 * vocabularies, so they come from neither our reading nor the reference's of tokenizer.json. */
static int32_t check_inp(const struct qr_tokenizer *t, const char *stem)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[256];
    struct qr_buf inp = {0}, out = {0};
    struct qr_ids want = {0}, got = {0};
    snprintf(path, sizeof path, "gguf-vocab/ggml-vocab-%s.gguf.inp", stem);
    tok_read_data(&inp, path);
    snprintf(path, sizeof path, "gguf-vocab/ggml-vocab-%s.gguf.out", stem);
    tok_read_data(&out, path);
    size_t at = 0, at_out = 0, n_line;
    const char *line;
    int32_t cases = 0;
    while (at < inp.len && tok_line(&out, &at_out, &line, &n_line)) {
        const char *text = inp.data + at, *end = memmem(text, inp.len - at, separator, sizeof separator - 1);
        size_t n = end ? (size_t)(end - text) : inp.len - at;
        char ids[4096], *word = ids, *rest;
        cr_assert(n_line < sizeof ids);
        memcpy(ids, line, n_line);
        ids[n_line] = 0;
        want.n = 0;
        for (long id = strtol(word, &rest, 10); rest != word; id = strtol(word, &rest, 10)) {
            qr_ids_push(&want, (int32_t)id);
            word = rest;
        }
        tok_encode(t, &got, text, n, 0);
        cr_expect(tok_same(&got, &want), "%s: text %d \"%.*s\" gives %s, expected %s", stem, cases, (int)n, text, tok_show(&got),
                  tok_show(&want));
        cases++;
        at += n + sizeof separator - 1;
    }
    qr_buf_release(&inp);
    qr_buf_release(&out);
    qr_ids_release(&want);
    qr_ids_release(&got);
    return cases;
}

Test(vectors, llama_cpp_vectors_give_the_same_ids)
{
    TOK_NEED_DATA();
    static const char *const pair[][2] = {{"qwen2", "qwen2.5"}, {"llama-bpe", "llama-3.2"}, {"gpt-2", "gpt2"}, {"llama-spm", "llama-2"}};
    for (int i = 0; i < 4; i++) {
        struct qr_tokenizer *t = tok_open_name(pair[i][1]);
        int32_t cases = check_inp(t, pair[i][0]);
        cr_expect(cases > 40, "%s: only %d cases were read", pair[i][0], cases);
        qr_tokenizer_close(t);
    }
}

Test(vectors, gguf_vocabularies_give_the_ids_of_llama_cpp)
{
    TOK_NEED_DATA();
    static const char *const stem[] = {"gpt-2", "llama-spm"};
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "gguf-vocab/ggml-vocab-%s.gguf", stem[i]);
        struct qr_tokenizer *t = tok_open(path);
        cr_expect(check_inp(t, stem[i]) > 40);
        qr_tokenizer_close(t);
    }
}

/* The same vocabulary as GGUF and as tokenizer.json: the same ids and texts, with begin tokens and for ids in any order. */
static void check_twins(const char *gguf, const char *json)
{
    struct qr_tokenizer *a = tok_open(gguf), *b = tok_open(json);
    struct qr_buf inp = {0}, one = {0}, two = {0};
    struct qr_ids x = {0}, y = {0};
    struct qr_rng rng = {.seed = 5};
    tok_read_data(&inp, "gguf-vocab/ggml-vocab-qwen2.gguf.inp");
    cr_assert_eq(qr_tokenizer_vocab_size(a), qr_tokenizer_vocab_size(b), "%s", gguf);
    cr_assert(qr_tokenizer_bos(a) == qr_tokenizer_bos(b) && qr_tokenizer_eos(a) == qr_tokenizer_eos(b), "%s", gguf);
    tok_encode(a, &x, inp.data, inp.len, QR_ENCODE_ADD_SPECIAL | QR_ENCODE_PARSE_SPECIAL);
    tok_encode(b, &y, inp.data, inp.len, QR_ENCODE_ADD_SPECIAL | QR_ENCODE_PARSE_SPECIAL);
    cr_assert(tok_same(&x, &y) && x.n > 500, "%s", gguf);
    for (int k = 0; k < 2000; k++) {
        const int32_t id = (int32_t)qr_rng_below(&rng, (uint32_t)qr_tokenizer_vocab_size(a)), ids[2] = {id, x.id[k % x.n]};
        qr_buf_clear(&one);
        qr_buf_clear(&two);
        qr_tokenizer_decode(a, &one, ids, 2, k % 2 == 0);
        qr_tokenizer_decode(b, &two, ids, 2, k % 2 == 0);
        cr_assert(one.len == two.len && (one.len == 0 || memcmp(one.data, two.data, one.len) == 0), "%s: id %d", gguf, id);
        cr_assert_eq(qr_tokenizer_is_special(a, id), qr_tokenizer_is_special(b, id), "%s: id %d", gguf, id);
    }
    qr_buf_release(&inp);
    qr_buf_release(&one);
    qr_buf_release(&two);
    qr_ids_release(&x);
    qr_ids_release(&y);
    qr_tokenizer_close(a);
    qr_tokenizer_close(b);
}

Test(vectors, a_gguf_vocabulary_is_the_tokenizer_json_of_the_same_model)
{
    TOK_NEED_DATA();
    check_twins("gguf-vocab/ggml-vocab-gpt-2.gguf", "tokenizers/gpt2");
    check_twins("gguf-vocab/ggml-vocab-llama-spm.gguf", "tokenizers/llama-2");
    check_twins("models/gguf/stories260K-f32.gguf", "models/stories260K");
}

Test(vectors, every_model_directory_opens_and_round_trips)
{
    TOK_NEED_DATA();
    static const char *const dir[] = {"models/stories260K", "models/rand-qwen2", "models/rand-qwen3", "models/rand-llama31"};
    static const char text[] = "Once upon a time, \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80\n  two";
    for (int i = 0; i < 4; i++) {
        struct qr_tokenizer *t = tok_open(dir[i]);
        struct qr_ids ids = {0};
        cr_expect(qr_tokenizer_vocab_size(t) == 512);
        cr_expect(qr_tokenizer_bos(t) == 1);
        cr_expect(qr_tokenizer_eos(t) == 2);
        tok_encode(t, &ids, text, sizeof text - 1, QR_ENCODE_ADD_SPECIAL);
        cr_expect(ids.n > 0 && ids.id[0] == 1);
        check_decoded(t, &ids, true, text, sizeof text - 1, dir[i]);
        qr_ids_release(&ids);
        qr_tokenizer_close(t);
    }
}
