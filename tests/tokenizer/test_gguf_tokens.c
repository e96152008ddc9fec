/* Small vocabularies in GGUF files against the ids that llama.cpp finds (tools/golden/gguf_tokens.py), for every name of a way to split text. The files do not
 * say whether a text begins with a token, nor, those of pieces, which it is: what stands around texts is llama.cpp's own rule. */
#include "tests/tokenizer/tok_test.h"

#include "base/files/map_file.h"
#include "tests/gguf_make.h"
#include "tests/temp.h"
#include "tests/tokenizer/golden_gguf.h"

static struct qr_tokenizer *open_with(const struct golden_split *g, const char *name, const char *path)
{
    struct qr_buf file = {0};
    struct qr_map_file keys;
    char from[512];
    struct qr_tokenizer *t = NULL;
    struct qr_err err = {0};
    const bool bytes = strcmp(g->keys, "bytes") == 0;
    snprintf(from, sizeof from, QUIRE_SOURCE_DIR "/tests/tokenizer/gguf_keys/%s.bin", g->keys);
    cr_assert_eq(qr_map_file_open(&keys, from, 1 << 20, &err), 0, "%s", err.msg);
    gguf_begin(&file, 3, 0, GOLDEN_KEYS + 2 + bytes);
    gguf_key_text(&file, "general.architecture", g->arch);
    gguf_key_text(&file, "tokenizer.ggml.pre", name);
    qr_buf_put(&file, keys.data, keys.n_bytes);
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(file.data, 1, file.len, f) == file.len && fclose(f) == 0);
    cr_assert_eq(qr_tokenizer_open(&t, path, &err), 0, "%s: %s", name, err.msg);
    qr_map_file_close(&keys);
    qr_buf_release(&file);
    return t;
}

static void check(const struct golden_split *g, const char *name, const struct qr_tokenizer *t)
{
    struct qr_ids want = {0}, got = {0};
    for (int i = 0; i < GOLDEN_TEXTS; i++) {
        char *rest;
        want.n = 0;
        for (const char *word = g->ids[i]; *word; word = rest)
            qr_ids_push(&want, (int32_t)strtol(word, &rest, 10));
        tok_encode(t, &got, texts[i], strlen(texts[i]), QR_ENCODE_ADD_SPECIAL | QR_ENCODE_PARSE_SPECIAL);
        cr_expect(tok_same(&got, &want), "%s, %s: \"%s\" gives %s, expected %s", g->arch, name, texts[i], tok_show(&got), tok_show(&want));
    }
    qr_ids_release(&want);
    qr_ids_release(&got);
}

Test(gguf_tokens, every_way_to_split_that_has_a_name_gives_the_ids_of_llama_cpp)
{
    char dir[64], path[96];
    int n = 0;
    temp_dir_make(dir, "tokens");
    snprintf(path, sizeof path, "%s/v.gguf", dir);
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        char names[512], *next = names;
        snprintf(names, sizeof names, "%s", golden[i].names);
        for (const char *name = strsep(&next, " "); name; name = strsep(&next, " ")) {
            struct qr_tokenizer *t = open_with(&golden[i], name, path);
            check(&golden[i], name, t);
            qr_tokenizer_close(t);
            n++;
        }
    }
    cr_expect_gt(n, 60, "%d", n);
    unlink(path);
    cr_assert_eq(rmdir(dir), 0);
}
