/* Checkpoints: a resumed run goes on with the same bits, what is saved is what is served, and a checkpoint that does not fit says why. */
#include "base/buf.h"
#include "loader/config/hf_config.h"
#include "tests/train/run.h"

#define SEED 60723

static const enum qr_dtype types[] = {QR_F32, QR_BF16};

/* Six steps at once; or three, a save, a load into parameters of another seed, three more. */
static void check_resume(enum qr_arch arch, enum qr_dtype compute)
{
    const struct qr_model_config c = tiny_config(arch);
    struct temp_dir d = temp_dir_new();
    struct run a = run_new(&c, compute, 1), b = run_new(&c, compute, 2);
    char path[QR_PATH_MAX];
    struct qr_err err = {0};
    struct qr_checkpoint_state state;
    for (int i = 0; i < 3; i++)
        run_step(&a), run_step(&b);
    cr_assert_neq(run_digest(&a), run_digest(&b));
    run_save(&a, d.path, 0);
    cr_assert_eq(qr_checkpoint_latest(d.path, path, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_checkpoint_load(path, b.p, &b.o, &state, &err), 0, "%s", err.msg);
    cr_assert_eq(run_digest(&a), run_digest(&b));
    for (int i = 0; i < 3; i++) {
        const double x = run_step(&a), y = run_step(&b);
        cr_assert_eq(x, y, "%s, %s: step %d loses %.17g at once and %.17g resumed", c.arch_name, qr_dtype_name(compute), 4 + i, x, y);
        cr_assert_eq(run_digest(&a), run_digest(&b));
    }
    run_drop(&a), run_drop(&b);
    temp_dir_remove(&d);
}

Test(checkpoint, a_resumed_run_continues_bit_for_bit)
{
    for (int t = 0; t < 2; t++) {
        check_resume(QR_ARCH_LLAMA, types[t]);
        check_resume(QR_ARCH_QWEN2, types[t]);
        check_resume(QR_ARCH_QWEN3, types[t]);
    }
}

/* ---- what is saved is what is served ---- */

static void check_served(const char *dir, const char *isa, const struct run *run, enum qr_dtype compute)
{
    struct rig r;
    rig_open(&r, dir, (struct rig_options){.isa = isa, .n_threads = 2});
    const enum qr_dtype opened = qr_model_weight_dtype(r.model);
    cr_assert_eq(opened, compute, "a saved %s model opens as %s", qr_dtype_name(compute), qr_dtype_name(opened));
    struct qr_tape *t = NULL;
    const struct qr_tape_options o = {.n_tokens_max = 256, .n_seqs_max = 8, .logits = true};
    struct qr_err err = {0};
    cr_assert_eq(qr_tape_open(&t, run->p, &o, &err), 0, "%s", err.msg);
    struct qr_train_batch b = random_batch(rig_vocab(&r), 4, SEED);
    struct qr_tensor grad, logits = qr_tape_logits(t, &b.b, &grad);
    check_logits(&r, &b.b, logits.data, dir);
    qr_train_batch_release(&b);
    qr_tape_close(t);
    rig_close(&r);
}

Test(checkpoint, a_checkpoint_and_an_export_serve_the_trainers_logits_bit_for_bit)
{
    static const enum qr_arch arch[] = {QR_ARCH_LLAMA, QR_ARCH_QWEN2, QR_ARCH_QWEN3};
    printf("seed %d\n", SEED);
    for (int k = 0; k < 6; k++) {
        const enum qr_dtype compute = types[k % 2];
        const struct qr_model_config c = tiny_config(arch[k / 2]);
        struct temp_dir d = temp_dir_new();
        struct run run = run_new(&c, compute, 1);
        struct qr_err err = {0};
        char path[QR_PATH_MAX];
        const struct qr_checkpoint_source src = {.params = run.p};
        for (int i = 0; i < 2; i++) /* so that matrices have been rounded by chance, and norm weights are not 1 */
            run_step(&run);
        cr_assert_eq(run_try_save(&run, d.path, 0, path, &err), 0, "%s", err.msg);
        check_served(path, NULL, &run, compute);
        cr_assert_eq(qr_path_join(path, d.path, "final/", &err), 0);
        cr_assert_eq(qr_model_export(path, &src, false, &err), 0, "%s", err.msg);
        check_served(path, NULL, &run, compute);
        cr_assert_eq(qr_model_export(path, &src, false, &err), QR_E_IO);
        cr_assert(strstr(err.msg, "/final already exists"), "%s", err.msg);
        cr_assert_eq(qr_model_export(path, &src, true, &err), 0, "%s", err.msg);
        run_drop(&run);
        temp_dir_remove(&d);
    }
}

/* ---- the run's directory ---- */

static bool has(const struct temp_dir *d, const char *name)
{
    char path[256];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    return lstat(path, &s) == 0;
}

static void put(const struct temp_dir *d, const char *name, const void *bytes, size_t n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0, "%s", path);
}

/* The file's bytes, one more than n of them allocated; to be freed. */
static char *take(const struct temp_dir *d, const char *name, size_t *n)
{
    char path[256];
    struct qr_map_file f;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    char *bytes = qr_strndup((const char *)f.data, f.n_bytes);
    memcpy(bytes, f.data, f.n_bytes);
    *n = f.n_bytes;
    qr_map_file_close(&f);
    return bytes;
}

static const char *latest(const struct temp_dir *d, char path[QR_PATH_MAX])
{
    struct qr_err err = {0};
    return qr_checkpoint_latest(d->path, path, &err) == 0 ? strrchr(path, '/') + 1 : "none";
}

Test(checkpoint, the_newest_are_kept_and_older_ones_removed)
{
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct temp_dir d = temp_dir_new();
    struct run r = run_new(&c, QR_BF16, 1);
    char path[QR_PATH_MAX], link[64] = "";
    cr_assert_str_eq(latest(&d, path), "none");
    put(&d, "step-7", "a file of somebody else", 23);
    for (int i = 0; i < 5; i++) {
        r.o.step = 10 * i; /* only the number matters here */
        run_save(&r, d.path, 2);
    }
    cr_assert(!has(&d, "step-00000020") && has(&d, "step-00000030") && has(&d, "step-00000040") && has(&d, "step-7"));
    cr_assert_str_eq(latest(&d, path), "step-00000040");
    snprintf(path, sizeof path, "%s/latest", d.path);
    cr_assert(readlink(path, link, sizeof link - 1) > 0);
    cr_assert_str_eq(link, "step-00000040");
    r.o.step = 30; /* a run set back: the same step is replaced, later ones stay, and what was just written is not what goes */
    run_save(&r, d.path, 1);
    cr_assert(has(&d, "step-00000030") && has(&d, "step-00000040"));
    r.o.step = 35;
    run_save(&r, d.path, 1);
    cr_assert(!has(&d, "step-00000030") && has(&d, "step-00000035") && has(&d, "step-00000040"));
    r.o.step = 123456789; /* more digits than the name is made for */
    run_save(&r, d.path, 1);
    cr_assert_str_eq(latest(&d, path), "step-123456789");
    run_drop(&r);
    temp_dir_remove(&d);
}

Test(checkpoint, an_incomplete_directory_is_passed_over)
{
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct temp_dir d = temp_dir_new();
    struct run r = run_new(&c, QR_F32, 1);
    char path[QR_PATH_MAX];
    for (int i = 0; i < 3; i++) {
        r.o.step = i;
        run_save(&r, d.path, 0);
    }
    cr_assert_str_eq(latest(&d, path), "step-00000002");
    put(&d, "step-00000002/trainer.json", "{", 1);
    cr_assert_str_eq(latest(&d, path), "step-00000001");
    put(&d, "step-00000001/model.safetensors", "short", 5);
    cr_assert_str_eq(latest(&d, path), "step-00000000");
    snprintf(path, sizeof path, "%s/step-00000000/train.yaml", d.path);
    cr_assert_eq(unlink(path), 0);
    struct qr_err err = {0};
    cr_assert_eq(qr_checkpoint_latest(d.path, path, &err), QR_E_NOT_FOUND);
    cr_assert(strstr(err.msg, "holds no complete checkpoint: ") && strstr(err.msg, "step-00000000/train.yaml: No such file or directory (ENOENT)"), "%s",
              err.msg);
    run_drop(&r);
    temp_dir_remove(&d);
}

Test(checkpoint, cleaning_removes_leftovers_of_killed_saves_and_nothing_else)
{
    static const char *const ours[] = {".saving-step-00000003.123", ".saving-final.9", ".removing-step-00000001.77"};
    static const char *const others[] = {".saving-", ".saving-notes", ".saving-12", "saving-step-00000003.123", ".removing-step.x7", "notes.123"};
    struct temp_dir d = temp_dir_new();
    struct qr_err err = {0};
    char path[256], inside[256];
    int32_t n = -1;
    for (int i = 0; i < QR_COUNT(ours); i++) {
        snprintf(path, sizeof path, "%s/%s", d.path, ours[i]);
        cr_assert_eq(mkdir(path, 0777), 0);
        snprintf(inside, sizeof inside, "%s/model.safetensors", ours[i]);
        put(&d, inside, "half of it", 10);
    }
    put(&d, ".latest-link.55", "", 0);
    for (int i = 0; i < QR_COUNT(others); i++)
        put(&d, others[i], "", 0);
    cr_assert_eq(qr_checkpoint_clean(d.path, &n, &err), 0, "%s", err.msg);
    cr_assert_eq(n, 4);
    for (int i = 0; i < QR_COUNT(ours); i++)
        cr_assert(!has(&d, ours[i]), "%s", ours[i]);
    for (int i = 0; i < QR_COUNT(others); i++)
        cr_assert(has(&d, others[i]), "%s", others[i]);
    temp_dir_remove(&d);
    cr_assert_eq(qr_checkpoint_clean(d.path, &n, &err), QR_E_NOT_FOUND);
}

Test(checkpoint, the_small_things_come_back_as_they_were)
{
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct temp_dir d = temp_dir_new(), tok = temp_dir_new();
    struct run r = run_new(&c, QR_BF16, 1);
    struct qr_checkpoint_source src = {.params = r.p, .optim = &r.o, .tokenizer_dir = tok.path, .config_text = "a: 1\n"};
    const struct qr_checkpoint_state in = {.step = 4, .position = INT64_MAX, .seed = UINT64_MAX, .data_hash = 1, .n_tokens = (1LL << 53) + 1, .leaves = 8,
                                           .best_step = 3, .best_loss = 0.1 + 0.2, .seconds = 1e-300};
    struct qr_checkpoint_state out;
    struct qr_err err = {0};
    char path[QR_PATH_MAX];
    size_t n;
    put(&tok, "tokenizer.json", "{}", 2);
    put(&tok, "chat_template.jinja", "x", 1);
    put(&tok, "generation_config.json", "{\"top_k\": 7}", 12);
    put(&tok, "README.md", "not copied", 10);
    put(&tok, "config.json", "not this one", 12);
    r.o.step = 4;
    cr_assert_eq(qr_checkpoint_save(d.path, &src, &in, 0, path, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_checkpoint_read_state(path, &out, &err), 0, "%s", err.msg);
    cr_assert(memcmp(&in, &out, sizeof in) == 0);
    cr_assert(has(&d, "step-00000004/tokenizer.json") && has(&d, "step-00000004/chat_template.jinja") && !has(&d, "step-00000004/README.md"));
    char *yaml = take(&d, "step-00000004/train.yaml", &n);
    cr_assert(n == 5 && memcmp(yaml, "a: 1\n", n) == 0);
    qr_free(yaml);
    struct qr_model_config back;
    cr_assert_eq(qr_hf_config_read(&back, path, &err), 0, "%s", err.msg);
    cr_assert(back.gen[QR_P_top_k].value == 7 && back.stored == QR_BF16 && back.tied_head);
    run_drop(&r);
    temp_dir_remove(&d), temp_dir_remove(&tok);
}

/* ---- what does not fit ---- */

static void expect_refused(struct run *r, const char *path, enum qr_code code, const char *part1, const char *part2)
{
    struct qr_err err = {0};
    const uint64_t before = run_digest(r);
    cr_expect_eq(qr_checkpoint_load(path, r->p, &r->o, NULL, &err), code, "expected '%s' and '%s', found '%s'", part1, part2, err.msg);
    cr_expect(strstr(err.msg, part1) && strstr(err.msg, part2), "expected '%s' and '%s', found '%s'", part1, part2, err.msg);
    cr_expect_eq(run_digest(r), before, "%s: something has been changed", err.msg);
}

static struct qr_model_config other_config(int k)
{
    struct qr_model_config c = tiny_config(k == 5 ? QR_ARCH_QWEN2 : k == 6 ? QR_ARCH_QWEN3 : QR_ARCH_LLAMA);
    if (k == 0)
        c.n_vocab = 300;
    if (k == 1)
        c.n_layers = 3;
    if (k == 2)
        c.tied_head = false;
    if (k == 3)
        c.rope.theta = 50000;
    if (k > 4)
        c.tied_head = true;
    if (k == 4)
        c.n_heads = 8, c.n_kv_heads = 4, c.head_dim = 8; /* all shapes stay */
    return c;
}

Test(checkpoint, one_of_another_model_is_refused_by_file_tensor_found_and_expected)
{
    static const struct {
        const char *part1, *part2;
    } want[] = {
        {"model.safetensors: tensor model.embed_tokens.weight is F32 [256, 64]", "expected F32 [300, 64] by this run's model"},
        {"model.safetensors: tensor model.layers.2.input_layernorm.weight is missing", "expected F32 [64] by this run's model"},
        {"model.safetensors: tensor lm_head.weight is missing", "expected F32 [256, 64]"},
        {"config.json: is of another model: found \"rope_theta\": 10000", "expected \"rope_theta\": 50000"},
        {"config.json: is of another model: found \"num_attention_heads\": 4", "expected \"num_attention_heads\": 8"},
        {"tensor model.layers.0.self_attn.q_proj.bias is missing", "expected F32 [64]"},
        {"tensor model.layers.0.self_attn.q_norm.weight is missing", "expected F32 [16]"},
    };
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct temp_dir d = temp_dir_new();
    struct run r = run_new(&c, QR_F32, 1), rounded = run_new(&c, QR_BF16, 1);
    struct qr_err err = {0};
    char path[QR_PATH_MAX], nowhere[QR_PATH_MAX];
    cr_assert_eq(run_try_save(&r, d.path, 0, path, &err), 0, "%s", err.msg);
    for (int k = 0; k < QR_COUNT(want); k++) {
        const struct qr_model_config oc = other_config(k);
        struct run o = run_new(&oc, QR_F32, 1);
        expect_refused(&o, path, QR_E_INVALID, want[k].part1, want[k].part2);
        run_drop(&o);
    }
    expect_refused(&rounded, path, QR_E_INVALID, "tensor model.embed_tokens.weight is F32 [256, 64]", "expected BF16 [256, 64]");
    cr_assert_eq(qr_path_join(nowhere, d.path, "step-00000009", &err), 0);
    expect_refused(&r, nowhere, QR_E_NOT_FOUND, "step-00000009 is no checkpoint: ", "trainer.json: No such file");
    run_drop(&r), run_drop(&rounded);
    temp_dir_remove(&d);
}

/* Replaces the first `from` in a file by `to`, of the same length or not. */
static void edit(const struct temp_dir *d, const char *name, const char *from, const char *to)
{
    size_t n;
    char *text = take(d, name, &n), *at = memmem(text, n, from, strlen(from));
    struct qr_buf out = {0};
    cr_assert(at, "%s has no '%s'", name, from);
    qr_buf_put(&out, text, (size_t)(at - text));
    qr_buf_put_str(&out, to);
    qr_buf_put(&out, at + strlen(from), n - (size_t)(at - text) - strlen(from));
    put(d, name, out.data, out.len);
    qr_buf_release(&out);
    qr_free(text);
}

Test(checkpoint, damaged_files_are_refused_by_file_key_found_and_expected)
{
    static const struct {
        const char *file, *from, *to;
        enum qr_code code;
        const char *part1, *part2;
    } row[] = {
        {"trainer.json", "\"format\": 1", "\"format\": 2", QR_E_UNSUPPORTED, "trainer.json: format is 2, expected 1", "version"},
        {"trainer.json", "\"format\": 1", "\"format\": \"1\"", QR_E_DAMAGED, "format is \"1\"", "expected a whole number, 0 or more"},
        {"trainer.json", "\"step\": 0", "\"step\": -1", QR_E_DAMAGED, "step is -1", "expected a whole number, 0 or more"},
        {"trainer.json", "\"step\": 0", "\"stop\": 0", QR_E_DAMAGED, "step is missing", "expected a whole number"},
        {"trainer.json", "\"position\": 0", "\"position\": 0.5", QR_E_DAMAGED, "position is 0.5", "expected a whole number"},
        {"trainer.json", "\"best_step\": -1", "\"best_step\": -2", QR_E_DAMAGED, "best_step is -2", "-1 or more"},
        {"trainer.json", "\"leaves\": 0", "\"leaves\": 6", QR_E_DAMAGED, "leaves is 6", "a power of two"},
        {"trainer.json", "\"seed\": \"18446744073709551614\"", "\"seed\": \"18446744073709551616\"", QR_E_DAMAGED, "seed is ", "below 2^64"},
        {"trainer.json", "\"seed\": \"18446744073709551614\"", "\"seed\": 5", QR_E_DAMAGED, "seed is 5", "a string of decimal digits"},
        {"trainer.json", "fedcba9876543210", "fedcba987654321", QR_E_DAMAGED, "data_hash is ", "16 hexadecimal digits"},
        {"trainer.json", "\"best_loss\": null", "\"best_loss\": \"x\"", QR_E_DAMAGED, "best_loss is \"x\"", "expected a number or null"},
        {"trainer.json", "\"optimizer\": \"adamw\"", "\"optimizer\": \"sgd\"", QR_E_INVALID, "optimizer is \"sgd\"", "expected \"adamw\" by this run"},
        {"trainer.json", "\"optimizer\": \"adamw\"", "\"optimizer\": 1", QR_E_DAMAGED, "optimizer is 1", "expected the name of an optimizer"},
        {"trainer.json", "\"files\": {", "\"files\": 1, \"x\": {", QR_E_DAMAGED, "files is 1", "expected an object"},
        {"trainer.json", "\"model.safetensors\"", "\"../model.safetensors\"", QR_E_DAMAGED, "files has an entry \"../model", "plain names"},
        {"trainer.json", "\"xxh3\": ", "\"md5\": ", QR_E_DAMAGED, "files.config.json.xxh3 is missing", "16 hexadecimal digits"},
        {"trainer.json", "\"optimizer.safetensors\"", "\"config.json\"", QR_E_DAMAGED, "config.json", "trainer.json"},
        {"trainer.json", "{", "", QR_E_DAMAGED, "trainer.json: line 2", "expected the end"},
        {"trainer.json", "{\n", "[{\n", QR_E_DAMAGED, "trainer.json: ", "line"},
        {"train.yaml", "tiny", "tin", QR_E_DAMAGED, "train.yaml: has 11 bytes", "expected 12 by trainer.json"},
        {"config.json", "\"hidden_size\": 64", "\"hidden_size\": -4", QR_E_DAMAGED, "config.json: hidden_size is -4", "expected"},
        {"optimizer.safetensors", "m.model.norm", "m.model.born", QR_E_INVALID, "tensor m.model.norm.weight is missing", "expected F32 [64]"},
        {"optimizer.safetensors", "\"F32\"", "\"F99\"", QR_E_UNSUPPORTED, "optimizer.safetensors: ", "F99"},
        {"optimizer.safetensors", "    ", "", QR_E_DAMAGED, "optimizer.safetensors: has ", "by trainer.json"},
        {"model.safetensors", "[256,64]", "[64,256]", QR_E_INVALID, "embed_tokens.weight is F32 [64, 256]", "expected F32 [256, 64]"},
        {"model.safetensors", "data_offsets", "data_0ffsets", QR_E_DAMAGED, "model.safetensors: ", "data_offsets"},
    };
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct run r = run_new(&c, QR_F32, 1);
    struct temp_dir d = temp_dir_new();
    struct qr_err err = {0};
    char path[QR_PATH_MAX], name[128];
    size_t n;
    cr_assert_eq(run_try_save(&r, d.path, 0, path, &err), 0, "%s", err.msg);
    for (int k = 0; k < QR_COUNT(row); k++) {
        snprintf(name, sizeof name, "step-00000000/%s", row[k].file);
        char *bytes = take(&d, name, &n);
        edit(&d, name, row[k].from, row[k].to);
        expect_refused(&r, path, row[k].code, row[k].part1, row[k].part2);
        put(&d, name, bytes, n);
        qr_free(bytes);
    }
    run_drop(&r);
    temp_dir_remove(&d);
}

/* The format of the file does not notice a changed number; its hash does. */
Test(checkpoint, one_changed_bit_anywhere_in_the_numbers_is_noticed)
{
    const struct qr_model_config c = tiny_config(QR_ARCH_LLAMA);
    struct run r = run_new(&c, QR_BF16, 1);
    struct temp_dir d = temp_dir_new();
    struct qr_rng rng = {.seed = SEED};
    char path[QR_PATH_MAX];
    struct qr_err err = {0};
    cr_assert_eq(run_try_save(&r, d.path, 0, path, &err), 0, "%s", err.msg);
    printf("seed %d\n", SEED);
    for (int k = 0; k < 20; k++) {
        const char *name = k % 2 ? "step-00000000/model.safetensors" : "step-00000000/optimizer.safetensors";
        size_t n;
        char *bytes = take(&d, name, &n);
        const size_t at = k < 2 ? n - 1 : n / 2 + qr_rng_below(&rng, (uint32_t)(n / 2));
        bytes[at] = (char)(bytes[at] ^ 1 << k % 8);
        put(&d, name, bytes, n);
        expect_refused(&r, path, QR_E_DAMAGED, strchr(name, '/') + 1, "its bytes have changed since they were written");
        bytes[at] = (char)(bytes[at] ^ 1 << k % 8);
        put(&d, name, bytes, n);
        qr_free(bytes);
    }
    cr_assert_eq(qr_checkpoint_load(path, r.p, &r.o, NULL, &err), 0, "%s", err.msg);
    run_drop(&r);
    temp_dir_remove(&d);
}
