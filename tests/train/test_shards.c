/* Shards: what is written is read; every byte of a damaged file is noticed, by name. */
#include "tests/train/data_rig.h"

#include "train/data/shard_file.h"

#define SEED 515

static void check_corpus(const struct corpus *c, const struct qr_shards *s)
{
    int64_t n_tokens = 0, n_targets = 0;
    int32_t ids[256];
    bool counts[256];
    cr_assert_eq(qr_shards_index(s)->n_docs, c->n_docs);
    for (int32_t d = 0; d < c->n_docs; d++) {
        const int32_t n = c->n[d], first = n / 3;
        cr_assert_eq(qr_shards_doc_n(s, d), n);
        qr_shards_read(s, d, 0, n, ids, counts);
        cr_assert_eq(memcmp(ids, c->ids[d], (size_t)n * 4), 0);
        for (int32_t i = 0; i < n; i++) {
            cr_assert_eq(counts[i], !c->counts[d] || c->counts[d][i]);
            n_targets += i > 0 && counts[i];
        }
        qr_shards_read(s, d, first, n - first, ids, NULL);
        cr_assert_eq(memcmp(ids, c->ids[d] + first, (size_t)(n - first) * 4), 0);
        n_tokens += n;
    }
    cr_assert_eq(qr_shards_index(s)->n_tokens, n_tokens);
    cr_assert_eq(qr_shards_index(s)->n_targets, n_targets);
}

Test(shards, give_back_documents_and_masks_with_ids_of_two_and_four_bytes_in_one_file_and_in_many)
{
    static const int32_t vocab[] = {1, 300, 65536, 65537, INT32_MAX};
    static const int64_t shard_tokens[] = {0, 1, 64, 333};
    printf("seed %d\n", SEED);
    for (int v = 0; v < QR_COUNT(vocab); v++)
        for (int k = 0; k < QR_COUNT(shard_tokens); k++) {
            struct data_dir dir = data_dir_make();
            struct corpus c = corpus_make(40, vocab[v], 30, k % 2 == 1, SEED + (uint64_t)v);
            corpus_write(&c, dir.path, shard_tokens[k]);
            struct qr_shards *s = data_open(dir.path);
            check_corpus(&c, s);
            cr_assert_eq(qr_shards_index(s)->vocab_size, vocab[v]);
            cr_assert_eq(qr_shards_index(s)->tokenizer, 0x1234abcd);
            qr_shards_close(s);
            corpus_drop(&c);
            data_dir_remove(&dir);
        }
}

/* ---- damage of one shard, in memory ---- */

static struct qr_buf shard_bytes(int32_t vocab_size)
{
    struct data_dir dir = data_dir_make();
    struct corpus c = corpus_make(9, vocab_size, 12, true, SEED);
    struct qr_buf out = {0};
    char path[128], piece[4096];
    corpus_write(&c, dir.path, 0);
    snprintf(path, sizeof path, "%s/shard-00000.bin", dir.path);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        qr_buf_put(&out, piece, n);
    fclose(f);
    corpus_drop(&c);
    data_dir_remove(&dir);
    return out;
}

static int parse(const struct qr_buf *b, size_t n, struct qr_err *err)
{
    struct qr_shard s;
    uint8_t *exact = malloc(n ? n : 1); /* sanitizers see a read past the end */
    cr_assert_not_null(exact);
    memcpy(exact, b->data, n);
    const int rc = qr_shard_parse(&s, exact, n, "s.bin", err);
    free(exact);
    return rc;
}

Test(shards, every_field_of_a_header_is_checked)
{
    static const struct field {
        const char *name, *says;
        size_t offset, n_bytes;
    } fields[] = {{"magic", "quiredat", 0, 8}, {"version", "byte 8", 8, 4}, {"id_bytes", "byte 12", 12, 4}, {"n_tokens", "byte", 16, 8},
                  {"n_docs", "byte", 24, 8}, {"vocab_size", "byte", 32, 4}, {"flags", "byte 36", 36, 4},
                  {"reserved", "byte 48", 48, 8}, {"reserved", "byte 48", 56, 8}};
    static const uint64_t values[] = {0, 1, INT32_MAX, UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1,
                                      INT64_MAX, UINT64_C(1) << 63, UINT64_MAX};
    struct qr_buf good = shard_bytes(300);
    struct qr_err err = {0};
    cr_assert_eq(parse(&good, good.len, &err), 0, "%s", err.msg);
    for (int f = 0; f < QR_COUNT(fields); f++)
        for (int v = 0; v < QR_COUNT(values); v++) {
            struct qr_buf bad = {0};
            qr_buf_put(&bad, good.data, good.len);
            memcpy(bad.data + fields[f].offset, &values[v], fields[f].n_bytes);
            if (memcmp(bad.data, good.data, good.len) != 0) {
                const int rc = parse(&bad, bad.len, &err);
                cr_assert(rc == QR_E_DAMAGED || rc == QR_E_UNSUPPORTED, "%s = %llx", fields[f].name, (unsigned long long)values[v]);
                cr_assert(strstr(err.msg, "s.bin: ") == err.msg, "%s", err.msg);
                cr_assert(strstr(err.msg, fields[f].says) || strstr(err.msg, "header asks for"), "%s = %llx: %s", fields[f].name,
                          (unsigned long long)values[v], err.msg);
            }
            qr_buf_release(&bad);
        }
    qr_buf_release(&good);
}

Test(shards, a_file_cut_anywhere_or_longer_by_a_byte_is_refused)
{
    struct qr_buf good = shard_bytes(70000);
    struct qr_err err = {0};
    for (size_t n = 0; n < good.len; n++)
        cr_assert_eq(parse(&good, n, &err), QR_E_DAMAGED, "%zu bytes", n);
    cr_assert_not_null(strstr(err.msg, "it was cut"), "%s", err.msg);
    qr_buf_put_byte(&good, 0);
    cr_assert_eq(parse(&good, good.len, &err), QR_E_DAMAGED);
    cr_assert_not_null(strstr(err.msg, "appended"), "%s", err.msg);
    qr_buf_release(&good);
}

Test(shards, ids_outside_the_vocabulary_offsets_that_fall_and_bits_past_the_end_are_refused)
{
    for (int wide = 0; wide < 2; wide++) {
        struct qr_buf b = shard_bytes(wide ? 70000 : 300);
        struct qr_shard s;
        struct qr_err err = {0};
        cr_assert_eq(qr_shard_parse(&s, (uint8_t *)b.data, b.len, "s.bin", &err), 0, "%s", err.msg);
        const size_t id_at = QR_SHARD_HEADER_BYTES + 5 * (size_t)s.id_bytes, offsets_at = (size_t)((const char *)s.offsets - b.data);
        const uint32_t ids[] = {wide ? 70000 : 300, 65535, UINT32_MAX, UINT32_C(1) << 31};
        for (int i = 0; i < QR_COUNT(ids); i++) {
            if (wide && ids[i] == 65535)
                continue;
            uint32_t old = 0;
            memcpy(&old, b.data + id_at, (size_t)s.id_bytes);
            memcpy(b.data + id_at, &ids[i], (size_t)s.id_bytes);
            if (wide || (ids[i] & 0xffff) >= 300) {
                cr_assert_eq(parse(&b, b.len, &err), QR_E_DAMAGED, "id %u", ids[i]);
                cr_assert_not_null(strstr(err.msg, wide ? "byte 84: id" : "byte 74: id"), "%s", err.msg);
            }
            memcpy(b.data + id_at, &old, (size_t)s.id_bytes);
        }
        const uint64_t at[] = {1, UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX, (uint64_t)s.n_tokens, 0};
        for (int64_t d = 0; d <= s.n_docs; d++)
            for (int i = 0; i < QR_COUNT(at); i++) {
                uint64_t old;
                memcpy(&old, b.data + offsets_at + 8 * d, 8);
                if (old == at[i] || (at[i] == 1 && d == 1))
                    continue;
                memcpy(b.data + offsets_at + 8 * d, &at[i], 8);
                cr_assert_eq(parse(&b, b.len, &err), QR_E_DAMAGED, "offset %d is %llx", (int)d, (unsigned long long)at[i]);
                cr_assert_not_null(strstr(err.msg, "said to begin"), "%s", err.msg);
                memcpy(b.data + offsets_at + 8 * d, &old, 8);
            }
        cr_assert_neq(s.n_tokens % 64, 0);
        b.data[b.len - 1] = (char)0x80;
        cr_assert_eq(parse(&b, b.len, &err), QR_E_DAMAGED);
        cr_assert_not_null(strstr(err.msg, "mask goes on"), "%s", err.msg);
        qr_buf_release(&b);
    }
}

/* ---- damage of a directory ---- */

static void expect_refused(const char *dir, enum qr_code code, const char *says)
{
    struct qr_shards *s = NULL;
    struct qr_err err = {0};
    cr_assert_eq(qr_shards_open(&s, dir, &err), (int)code, "%s: %s", says, err.msg);
    cr_assert_not_null(strstr(err.msg, says), "'%s' is not in: %s", says, err.msg);
}

Test(shards, a_directory_that_lost_or_changed_a_file_is_refused_by_the_files_name)
{
    struct data_dir dir = data_dir_make();
    expect_refused(dir.path, QR_E_NOT_FOUND, "quire data prepare");
    struct corpus c = corpus_make(20, 300, 12, true, SEED);
    corpus_write(&c, dir.path, 40);
    qr_shards_close(data_open(dir.path));
    struct qr_buf b = shard_bytes(300);
    data_dir_put(dir.path, "shard-00001.bin", b.data, b.len);
    expect_refused(dir.path, QR_E_DAMAGED, "shard-00001.bin: has");
    char path[200];
    snprintf(path, sizeof path, "%s/shard-00001.bin", dir.path);
    cr_assert_eq(remove(path), 0);
    expect_refused(dir.path, QR_E_NOT_FOUND, "shard-00001.bin");
    qr_buf_release(&b);
    corpus_drop(&c);
    data_dir_remove(&dir);
}

Test(shards, a_flipped_bit_that_leaves_a_valid_file_is_noticed_by_the_hash)
{
    struct data_dir dir = data_dir_make();
    struct corpus c = corpus_make(1, 65536, 20, true, SEED);
    corpus_write(&c, dir.path, 0);
    char path[200];
    snprintf(path, sizeof path, "%s/shard-00000.bin", dir.path);
    FILE *f = fopen(path, "r+b");
    cr_assert_not_null(f);
    fseek(f, QR_SHARD_HEADER_BYTES, SEEK_SET);
    const int byte = fgetc(f);
    fseek(f, QR_SHARD_HEADER_BYTES, SEEK_SET);
    fputc(byte ^ 1, f);
    fclose(f);
    expect_refused(dir.path, QR_E_DAMAGED, "bytes have changed");
    corpus_drop(&c);
    data_dir_remove(&dir);
}

#define SHARD(name, bytes, docs, tokens, hash) \
    "{\"name\":\"" name "\",\"bytes\":" bytes ",\"n_docs\":" docs ",\"n_tokens\":" tokens ",\"xxh3\":\"" hash "\"}"
#define HEAD(version, tokenizer, vocab, docs, tokens) \
    "{\"format\":\"quire-data\",\"version\":" version ",\"tokenizer\":\"" tokenizer "\",\"vocab_size\":" vocab ",\"n_docs\":" docs ",\"n_tokens\":" tokens \
    ",\"n_targets\":4,\"shards\":["
#define H16 "0123456789abcdef"
#define ONE SHARD("shard-00000.bin", "100", "1", "5", H16)

Test(shards, every_field_of_data_json_is_checked)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "data.json"},
        {"[]", "format"},
        {"{\"format\":\"other\"}", "format"},
        {HEAD("2", H16, "10", "1", "5") ONE "]}", "version 2, expected 1"},
        {HEAD("1", "xyz", "10", "1", "5") ONE "]}", "\"tokenizer\""},
        {HEAD("1", "+123456789abcdef", "10", "1", "5") ONE "]}", "\"tokenizer\""},
        {HEAD("1", H16, "0", "1", "5") ONE "]}", "\"vocab_size\""},
        {HEAD("1", H16, "4294967297", "1", "5") ONE "]}", "\"vocab_size\""},
        {HEAD("1", H16, "10", "0", "5") ONE "]}", "\"n_docs\""},
        {HEAD("1", H16, "10", "-1", "5") ONE "]}", "\"n_docs\""},
        {HEAD("1", H16, "10", "1.5", "5") ONE "]}", "\"n_docs\""},
        {HEAD("1", H16, "10", "1", "9223372036854775808") ONE "]}", "\"n_tokens\""},
        {HEAD("1", H16, "10", "1", "6") ONE "]}", "announced"},
        {HEAD("1", H16, "10", "2", "5") ONE "]}", "announced"},
        {HEAD("1", H16, "10", "1", "5") "]}", "\"shards\""},
        {HEAD("1", H16, "10", "1", "5") "7]}", "shard 0"},
        {HEAD("1", H16, "10", "1", "5") SHARD("../../etc/passwd", "100", "1", "5", H16) "]}", "must be \"shard-00000.bin\""},
        {HEAD("1", H16, "10", "1", "5") SHARD("shard-00001.bin", "100", "1", "5", H16) "]}", "must be \"shard-00000.bin\""},
        {HEAD("1", H16, "10", "1", "5") SHARD("shard-00000.bin", "63", "1", "5", H16) "]}", "\"bytes\""},
        {HEAD("1", H16, "10", "1", "5") SHARD("shard-00000.bin", "100", "0", "5", H16) "]}", "\"n_docs\""},
        {HEAD("1", H16, "10", "1", "5") SHARD("shard-00000.bin", "100", "1", "5", "") "]}", "\"xxh3\""},
    };
    struct data_dir dir = data_dir_make();
    data_dir_put(dir.path, "data.json", HEAD("1", H16, "10", "1", "5") ONE "]}", strlen(HEAD("1", H16, "10", "1", "5") ONE "]}"));
    expect_refused(dir.path, QR_E_NOT_FOUND, "shard-00000.bin"); /* the text itself is a good one */
    for (int i = 0; i < QR_COUNT(bad); i++) {
        data_dir_put(dir.path, "data.json", bad[i].text, strlen(bad[i].text));
        expect_refused(dir.path, bad[i].says[0] == 'v' ? QR_E_UNSUPPORTED : QR_E_DAMAGED, bad[i].says);
    }
    data_dir_remove(&dir);
}

Test(shards, an_index_printed_is_an_index_read)
{
    struct qr_data_shard shard[2] = {{.n_bytes = 100, .n_docs = 3, .n_tokens = 7, .hash = UINT64_MAX},
                                         {.n_bytes = 64, .n_docs = 1, .n_tokens = 1, .hash = 0}};
    struct qr_data_index m = {.shard = shard, .n_shards = 2, .vocab_size = INT32_MAX, .n_docs = 4, .n_tokens = 8, .n_targets = 4,
                            .tokenizer = UINT64_MAX - 1}, back;
    struct qr_buf text = {0};
    struct qr_err err = {0};
    qr_data_index_print(&text, &m);
    cr_assert_eq(qr_data_index_parse(&back, text.data, text.len, "data.json", &err), 0, "%s", err.msg);
    cr_assert(back.n_shards == 2 && back.vocab_size == INT32_MAX && back.n_docs == 4 && back.n_tokens == 8 && back.n_targets == 4);
    cr_assert_eq(back.tokenizer, UINT64_MAX - 1);
    cr_assert_eq(memcmp(back.shard, shard, sizeof shard), 0);
    qr_data_index_release(&back);
    qr_buf_release(&text);
}
