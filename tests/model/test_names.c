/* Files of models without their head leave "model." out: the same logits, bit for bit; what is mixed, twice there or missing is refused by name. */
#include "tests/model/rig.h"

#include "base/file.h"
#include "loader/config/hf_config.h"
#include "loader/weights.h"

enum change { BARE, MIXED, TWICE, NO_CHANGE };

/* The names in a header begin behind a quote. What is taken out becomes spaces at its end, so nothing else moves. */
static void rename_tensors(const char *dir, enum change change, bool without_head)
{
    char path[128];
    struct qr_map_file f;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    const size_t n_bytes = f.n_bytes;
    char *copy = qr_alloc(n_bytes, 1), *from = copy + 8, *to = copy + 8;
    memcpy(copy, f.data, n_bytes);
    uint64_t n;
    memcpy(&n, copy, sizeof n);
    const char *end = copy + 8 + n;
    int32_t n_found = 0;
    while (from < end) {
        *to++ = *from;
        const size_t left = (size_t)(end - from);
        if (*from++ != '"' || left < 20)
            continue;
        if (without_head && change != TWICE && memcmp(from, "lm_head.weight", 14) == 0)
            memcpy(from, "unused_.weight", 14);
        if (memcmp(from, "model.", 6) != 0)
            continue;
        n_found++;
        if (change == BARE || (change == MIXED && n_found == 3))
            from += 6;
    }
    memset(to, ' ', (size_t)(end - to));
    qr_map_file_close(&f);
    if (change == TWICE) { /* what is called lm_head.weight becomes another norm.weight */
        char *at = memmem(copy, (size_t)(end - copy), "\"lm_head.weight\"", 16);
        cr_assert_not_null(at);
        memcpy(at, "\"norm.weight\"   ", 16);
    }
    unlink(path);
    cr_assert_eq(qr_file_write(path, copy, n_bytes, false, &err), 0, "%s", err.msg);
    qr_free(copy);
}

static struct temp_model make(struct qr_model_config *c, enum change change, bool headless, bool without_head)
{
    char path[128];
    struct qr_buf text = {0};
    struct qr_err err = {0};
    struct temp_model t = temp_model_make(c, QR_BF16);
    rename_tensors(t.dir, change, without_head);
    c->headless = headless;
    c->tied_head |= change == TWICE; /* its head is another tensor now */
    snprintf(path, sizeof path, "%s/config.json", t.dir);
    qr_hf_config_write(&text, c);
    unlink(path);
    cr_assert_eq(qr_file_write(path, text.data, text.len, false, &err), 0, "%s", err.msg);
    qr_buf_release(&text);
    c->headless = false;
    return t;
}

static float *logits_of(const char *dir)
{
    static const int32_t ids[] = {5, 9, 2, 77, 30, 1};
    struct rig r;
    rig_open(&r, dir, (struct rig_options){0});
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *out = rig_prompt(&r, &s, ids, QR_COUNT(ids), 4);
    rig_seq_free(&s);
    rig_close(&r);
    return out;
}

Test(names, a_directory_of_either_naming_gives_the_same_logits_bit_for_bit)
{
    static const enum qr_arch archs[] = {QR_ARCH_QWEN3, QR_ARCH_GEMMA3, QR_ARCH_QWEN2_MOE};
    for (int i = 0; i < QR_COUNT(archs); i++) {
        struct qr_model_config c = qr_model_config_small(archs[i]);
        struct temp_model usual = make(&c, NO_CHANGE, false, false), bare = make(&c, BARE, false, false);
        float *a = logits_of(usual.dir), *b = logits_of(bare.dir);
        cr_expect_eq(memcmp(a, b, (size_t)c.n_vocab * 6 * sizeof *a), 0, "architecture %d", (int)archs[i]);
        qr_free(a);
        qr_free(b);
        temp_model_remove(&usual);
        temp_model_remove(&bare);
    }
}

static int open_as(struct qr_model_config *found, const char *dir, bool embeds, struct qr_err *err)
{
    const struct qr_backend_options bo = {.n_threads = 1, .step_rows_max = 8};
    const struct qr_model_options mo = {.embeds = embeds};
    struct qr_backend *be;
    struct qr_model *m = NULL;
    cr_assert_eq(qr_backend_open(&be, &bo, err), 0, "%s", err->msg);
    const int rc = qr_model_open(&m, dir, be, &mo, err);
    if (m)
        *found = *qr_model_config(m);
    qr_model_close(m);
    qr_backend_close(be);
    return rc;
}

Test(names, a_model_without_its_head_opens_for_embeddings_only)
{
    static const struct {
        bool tied, headless, without_head; /* what config.json says of the head; and its architecture; whether it is in the files */
    } t[] = {{true, true, false}, {false, true, true}, {false, false, true}};
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3), found;
        struct qr_err err = {0};
        c.tied_head = t[i].tied;
        struct temp_model m = make(&c, BARE, t[i].headless, t[i].without_head);
        cr_assert_eq(open_as(&found, m.dir, true, &err), 0, "%d: %s", i, err.msg);
        cr_expect(found.headless && found.tied_head, "%d", i);
        cr_expect_str_eq(found.arch_name, t[i].headless ? "Qwen3Model" : "Qwen3ForCausalLM");
        cr_expect_eq(open_as(&found, m.dir, false, &err), QR_E_UNSUPPORTED, "%d", i);
        cr_expect(strstr(err.msg, "embeddings") != NULL, "%s", err.msg);
        temp_model_remove(&m);
    }
}

Test(names, what_is_mixed_or_twice_there_or_missing_is_refused_by_name)
{
    static const struct {
        enum change change;
        bool without_head;
        const char *words[2];
    } t[] = {{MIXED, false, {"mixed", "model."}},
             {TWICE, true, {"model.norm.weight is there twice", " norm.weight"}},
             {NO_CHANGE, true, {"lm_head.weight", "missing"}}};
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA), found;
        struct qr_err err = {0};
        c.tied_head = false;
        struct temp_model m = make(&c, t[i].change, false, t[i].without_head);
        cr_assert_eq(open_as(&found, m.dir, true, &err), QR_E_DAMAGED, "%d: %s", i, err.msg);
        for (int k = 0; k < 2; k++)
            cr_expect(strstr(err.msg, t[i].words[k]) != NULL, "%d: %s", i, err.msg);
        temp_model_remove(&m);
    }
}

/* A file with a head of its own, or without it: config.json calls it tied, or the header has one name in place of another, or the head has the embedding's
 * numbers. */
static void say_tied(const char *dir, struct qr_model_config c, bool tied)
{
    char path[128];
    struct qr_buf text = {0};
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    c.tied_head = tied;
    qr_hf_config_write(&text, &c);
    unlink(path);
    cr_assert_eq(qr_file_write(path, text.data, text.len, false, &err), 0, "%s", err.msg);
    qr_buf_release(&text);
}

static void edit_file(const char *dir, bool rename)
{
    static const char table[] = "embed_tokens.weight\"", head[] = "\"lm_head.weight\"           ";
    char path[128];
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_safetensors_open(&st, path, &err), 0, "%s", err.msg);
    const struct qr_stored_tensor *from = qr_weights_find_named(st, QR_ARCH_LLAMA, "model.embed_tokens.weight");
    const struct qr_stored_tensor *to = qr_tensor_files_find(st, "lm_head.weight");
    const size_t n = qr_tensor_files_shard_bytes(st, 0);
    char *copy = qr_alloc(n, 1);
    FILE *f = fopen(path, "rb");
    cr_assert_eq(fread(copy, 1, n, f), n);
    fclose(f);
    char *at = memmem(copy, n, table, sizeof table - 1), *const end = at + sizeof table - 1;
    while (*at != '"')
        at--;
    if (rename)
        memcpy(at, head, (size_t)(end - at));
    else
        memcpy(copy + to->offset, copy + from->offset, from->n_bytes);
    qr_tensor_files_close(st);
    unlink(path);
    cr_assert_eq(qr_file_write(path, copy, n, false, &err), 0, "%s", err.msg);
    qr_free(copy);
}

/* What transformers 5.23 does, seen with a model of two layers. */
Test(names, a_head_that_is_called_tied_is_the_embedding_unless_it_is_stored_with_other_numbers)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA), found;
    struct qr_err err = {0};
    const size_t n_bytes = (size_t)c.n_vocab * 6 * sizeof(float);
    c.tied_head = false;
    struct temp_model own = temp_model_make(&c, QR_BF16);
    float *want = logits_of(own.dir);
    say_tied(own.dir, c, true);
    float *got = logits_of(own.dir);
    cr_expect_eq(memcmp(want, got, n_bytes), 0);
    edit_file(own.dir, false);
    cr_assert_eq(open_as(&found, own.dir, true, &err), 0, "%s", err.msg);
    cr_expect(found.tied_head);
    qr_free(want);
    qr_free(got);
    temp_model_remove(&own);

    c.tied_head = true;
    struct temp_model tied = temp_model_make(&c, QR_BF16);
    want = logits_of(tied.dir);
    edit_file(tied.dir, true);
    got = logits_of(tied.dir);
    cr_expect_eq(memcmp(want, got, n_bytes), 0);
    say_tied(tied.dir, c, false);
    cr_expect_eq(open_as(&found, tied.dir, true, &err), QR_E_DAMAGED);
    cr_expect(strstr(err.msg, "model.embed_tokens.weight"), "%s", err.msg);
    qr_free(want);
    qr_free(got);
    temp_model_remove(&tied);

    struct temp_model bare = make(&c, BARE, false, false);
    want = logits_of(bare.dir);
    edit_file(bare.dir, true);
    got = logits_of(bare.dir);
    cr_expect_eq(memcmp(want, got, n_bytes), 0, "whatever the others are called");
    qr_free(want);
    qr_free(got);
    temp_model_remove(&bare);
}
