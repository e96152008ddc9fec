#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/files/map_file.h"
#include "base/mem.h"
#include "loader/check/check.h"
#include "loader/config/hf_config.h"
#include "loader/write/make_model.h"
#include "loader/stores/tensor_files.h"
#include "loader/weights.h"
#include "tests/lora_make.h"
#include "tests/temp.h"

struct temp {
    char dir[64];
};

static struct temp make(const struct qr_model_config *c, enum qr_dtype store, int32_t n_shards, uint64_t seed)
{
    struct temp t = {"/tmp/quire-check-XXXXXX"};
    struct qr_err err = {0};
    const struct qr_make_options o = {.store = store, .seed = seed, .n_shards = n_shards};
    cr_assert_not_null(mkdtemp(t.dir));
    cr_assert_eq(qr_model_make(t.dir, c, &o, &err), 0, "%s", err.msg);
    return t;
}

static void temp_remove(const struct temp *t)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", t->dir);
    cr_assert_eq(system(command), 0);
}

static void put_text(const struct temp *t, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", t->dir, name);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static int check(struct qr_buf *out, const struct temp *t, bool json, struct qr_err *err)
{
    qr_buf_clear(out);
    return qr_model_check(out, t->dir, &(struct qr_check_options){.json = json}, err);
}

Test(check, explains_a_good_model_in_text_and_json)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN2);
    struct temp t = make(&c, QR_BF16, 3, 1);
    struct qr_buf out = {0};
    struct qr_err err = {0};
    struct qr_json *root;
    int64_t n;
    cr_expect_eq(check(&out, &t, false, &err), 0, "%s", err.msg);
    static const char *const says[] = {"Qwen2ForCausalLM", "2 layers", "3 files", "model-00002-of-00003.safetensors", "BF16",
                                       "  model.layers.*\n", "    2 x self_attn.k_proj.bias ", "[32, 64]", "computing in bf16",
                                       " as bf16 and 256 B for each token kept; "};
    for (int i = 0; i < QR_COUNT(says); i++)
        cr_expect(strstr(out.data, says[i]), "does not say \"%s\":\n%s", says[i], out.data);
    cr_expect_eq(check(&out, &t, true, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_json_parse(&root, out.data, out.len, &qr_json_limits_file, &err), 0, "%s: %s", err.msg, out.data);
    /* Per layer 4*64*64 + 2*32*64... counted by hand: q 64x64, k and v 32x64, o 64x64, gate, up, down 96x64, 2 norms, 128 biases. */
    cr_expect(qr_json_i64(qr_json_find(root, "parameters"), &n) &&
              n == 2 * 256 * 64 + 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64 + 2 * 64 + 128));
    cr_expect_eq(qr_json_count(qr_json_find(root, "files")), 3);
    cr_expect_eq(qr_json_count(qr_json_find(root, "tensors")), 3 + 2 * 12);
    cr_expect_eq(qr_json_count(qr_json_find(root, "problems")), 0);
    cr_expect(qr_json_bool(qr_json_find(root, "runs")));
    const struct qr_json *bytes = qr_json_find(root, "weight_bytes");
    int64_t bf16 = 0, int8 = 0, w4a16 = 0;
    cr_expect(qr_json_i64(qr_json_find(bytes, "bf16"), &bf16) && qr_json_i64(qr_json_find(bytes, "int8"), &int8) &&
              qr_json_i64(qr_json_find(bytes, "w4a16"), &w4a16), "%s", out.data);
    const char *kernels = qr_json_str(qr_json_find(root, "kernels"), NULL);
    if (kernels && strcmp(kernels, "ref") == 0) /* which keeps an integer as 16 bits, and each output's factor beside them */
        cr_expect(int8 > bf16 && w4a16 == int8 && bf16 > 0, "%lld %lld %lld", (long long)bf16, (long long)int8, (long long)w4a16);
    else
        cr_expect(bf16 > int8 && int8 > w4a16 && w4a16 > 0, "%lld %lld %lld", (long long)bf16, (long long)int8, (long long)w4a16);
    qr_json_free(root);
    qr_buf_release(&out);
    temp_remove(&t);
}

/* Lines wider than 80 columns; names of files and tensors of these models are short. */
static int32_t n_wide(const char *text)
{
    int32_t n = 0;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1)
        n += end - text > 80;
    return n;
}

Test(check, pickle_and_code_are_named_as_never_read_and_never_run)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp t = make(&c, QR_BF16, 1, 1);
    struct qr_buf out = {0}, text = {0};
    struct qr_err err = {0};
    struct qr_json *root;
    cr_expect_eq(check(&out, &t, false, &err), 0, "%s", err.msg);
    cr_expect(!strstr(out.data, "never"), "%s", out.data);
    qr_hf_config_write(&text, &c);
    text.len -= 3; /* "\n}\n" */
    qr_buf_put_str(&text, ", \"auto_map\": {\"AutoModel\": \"modeling_own.OwnModel\"}}");
    put_text(&t, "config.json", text.data);
    put_text(&t, "modeling_own.py", "raise SystemExit");
    put_text(&t, "scheduler.pt", "");
    put_text(&t, "pytorch_model.bin", "");
    put_text(&t, "a.ckpt", "");
    cr_expect_eq(check(&out, &t, false, &err), 0, "%s", err.msg);
    cr_expect(strstr(out.data, "never read    a.ckpt, pytorch_model.bin and 1 more: pickle"), "%s", out.data);
    cr_expect(strstr(out.data, "never run     modeling_own.py, and what auto_map in config.json names"), "%s", out.data);
    cr_expect_eq(n_wide(out.data), 0, "%s", out.data);
    cr_expect_eq(check(&out, &t, true, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_json_parse(&root, out.data, out.len, &qr_json_limits_file, &err), 0, "%s: %s", err.msg, out.data);
    cr_expect_eq(qr_json_count(qr_json_find(qr_json_find(root, "never_read"), "first")), 3);
    cr_expect(qr_json_bool(qr_json_find(root, "auto_map")) && qr_json_bool(qr_json_find(root, "runs")));
    qr_json_free(root);
    qr_buf_release(&text);
    qr_buf_release(&out);
    temp_remove(&t);
}

#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 135\n"
#define GGUF_OF(arch, n) "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x14\0\0\0\0\0\0\0general.architecture\10\0\0\0" n "\0\0\0\0\0\0\0" arch

static void put_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

/* What people name in place of a model: what it is, and what to do. */
Test(check, whatever_is_no_model_is_called_by_what_it_is_with_what_to_do)
{
    static const struct {
        const char *name, *bytes, *name2, *bytes2; /* two files */
        size_t n_bytes;                            /* 0: texts */
        const char *says, *says2;
    } row[] = {
        {NULL, NULL, NULL, NULL, 0, ": the directory is empty; expected config.json, tokenizer.json and model.safetensors, or a *.gguf file", ""},
        {"tokenizer.json", "{}", NULL, NULL, 0, "/config.json does not exist; it says what the model is", "has no weights, expected"},
        {"README.md", "", NULL, NULL, 0, ": there is no config.json; expected config.json, tokenizer.json and model.safetensors", ""},
        {"pytorch_model.bin", "", NULL, NULL, 0, "pytorch_model.bin may be pickle, which can run code and is never read", "expected config.json"},
        {"b.gguf", "GGUF", "a.gguf", "GGUF", 0, "holds 2 GGUF files (a.gguf, b.gguf): name one of them", ""},
        {"m-00002-of-00003.gguf", "GGUF", NULL, NULL, 0, "holds m-00002-of-00003.gguf, but not the first part of it: download all parts", ""},
        {"a.gguf", LFS, NULL, NULL, 0, "a.gguf: is a pointer of git LFS, not the file itself: download that", ""},
        {"a.gguf", "<html>", NULL, NULL, 0, "a.gguf: byte 0: does not begin with \"GGUF\"; download the file again", ""},
        {"a.gguf", "", NULL, NULL, 0, "a.gguf: byte 0: does not begin with \"GGUF\"", ""},
        {"a.gguf", GGUF_OF("mamba", "\5"), "mmproj-a.gguf", "GGUF", sizeof GGUF_OF("mamba", "\5"), "a.gguf: key general.architecture is \"mamba\"",
         "expected one of llama, "},
        {"mmproj-a.gguf", GGUF_OF("clip", "\4"), NULL, NULL, sizeof GGUF_OF("clip", "\4"), "is \"clip\" (what a model that sees has beside its own file)",
         "expected one of llama, "},
        {"config.json", "{\"architectures\": [\"BertModel\"]}", NULL, NULL, 0, "config.json: architectures[0] is \"BertModel\" (an encoder), expected one of ",
         "has no weights, expected model.safetensors or model.safetensors.index.json"},
        {"config.json", "{\"architectures\": [\"Qwen3NextForCausalLM\"]}", NULL, NULL, 0,
         "is \"Qwen3NextForCausalLM\"; the closest that is supported is Qwen3ForCausalLM, expected one of ", ""},
        {"a.gguf", GGUF_OF("qwen3next", "\11"), NULL, NULL, sizeof GGUF_OF("qwen3next", "\11"),
         "is \"qwen3next\"; the closest that is supported is qwen3, expected", ""},
        {"config.json", LFS, "model.safetensors", LFS, 0, "config.json: is a pointer of git LFS", "model.safetensors: is a pointer of git LFS"},
        {"config.json", "{}", "pytorch_model.bin", "", 0, "the weights are in pickle files (pytorch_model.bin)", "convert them to model.safetensors"},
        {"config.json", "{}", "adapter_model.safetensors", "", 0, "holds adapter_model.safetensors, but neither model.safetensors nor", "rename a single file"},
        {"config.json", "{}", "model.safetensors.index.json",
         "{\"weight_map\": {\"a\": \"x-1.safetensors\", \"b\": \"x-2.safetensors\", \"c\": \"x-1.safetensors\"}}", 0,
         "/model.safetensors.index.json names 2 files, of which 2 are missing (the first: x-1.safetensors): download them into this directory", ""},
    };
    for (int i = 0; i < QR_COUNT(row); i++) {
        struct temp t;
        struct qr_buf out = {0};
        struct qr_err err = {0};
        char path[200];
        temp_dir_make(t.dir, "check");
        if (row[i].name) {
            snprintf(path, sizeof path, "%s/%s", t.dir, row[i].name);
            put_bytes(path, row[i].bytes, row[i].n_bytes ? row[i].n_bytes - 1 : strlen(row[i].bytes));
        }
        if (row[i].name2)
            put_text(&t, row[i].name2, row[i].bytes2);
        cr_expect_neq(check(&out, &t, false, &err), 0, "row %d", i);
        cr_expect(strstr(out.data, row[i].says) && strstr(out.data, row[i].says2) && strstr(out.data, "would not run it"), "row %d:\n%s", i, out.data);
        qr_buf_release(&out);
        temp_remove(&t);
    }
}

Test(check, a_cache_of_hugging_faces_is_called_that_with_the_directory_to_name)
{
    static const char *const revision[] = {"5f0b02c75b57c5855da9ae460ce51323ea669d8a", "aaa"};
    struct temp t;
    struct qr_buf out = {0};
    struct qr_err err = {0};
    char path[200], says[300];
    temp_dir_make(t.dir, "check");
    snprintf(path, sizeof path, "%s/snapshots", t.dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/snapshots/%s", t.dir, revision[i]);
        cr_assert_eq(mkdir(path, 0700), 0);
        cr_expect_eq(check(&out, &t, false, &err), QR_E_NOT_FOUND);
        snprintf(says, sizeof says, "a cache of Hugging Face's; name %s/snapshots/%s", t.dir, i == 0 ? revision[0] : "REVISION, one of those that are there");
        cr_expect(strstr(err.msg, says), "%s", err.msg);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/snapshots/%s", t.dir, revision[i]);
        rmdir(path);
    }
    snprintf(path, sizeof path, "%s/snapshots", t.dir);
    rmdir(path);
    qr_buf_release(&out);
    temp_remove(&t);
}

/* One adapter's report; the exit is the error's code. */
static int check_adapter(struct qr_buf *out, const struct temp *t, const char *settings, int32_t rank, bool json)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct qr_err err = {0};
    char config[300];
    lora_make(t->dir, &c, &(struct lora_make){.rank = 4, .alpha = 8, .seed = 1, .only = "self_attn.q_proj"});
    snprintf(config, sizeof config, "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": 8%s}", rank, settings);
    put_text(t, QR_LORA_CONFIG, config);
    return check(out, t, json, &err);
}

Test(check, an_adapters_directory_is_explained_and_refused_for_what_is_seen_without_its_model)
{
    static const struct {
        const char *settings, *says[2];
        int32_t rank;
        int rc;
    } row[] = {
        {", \"base_model_name_or_path\": \"own/\\u001bbase\"",
         {"adapter       LoRA for the model own/?base: 2 matrices, ranks 4 to 4,", "the adapter is sound; with its base"}, 4, 0},
        {"", {"a model that it does not name", "alpha 8 over the rank\n"}, 4, 0},
        {", \"use_rslora\": true, \"alpha_pattern\": {\"q_proj\": 2}", {"root of the rank", "for 1 name of matrices"}, 4, 0},
        {", \"use_dora\": true", {"problem       ", "use_dora is set, expected false"}, 4, QR_E_UNSUPPORTED},
        {"", {"is [4, 64], a rank of 4, expected 8 as r in adapter_config.json says", "quire would not take it"}, 8, QR_E_DAMAGED},
        {", \"rank_pattern\": {\"q_proj\": 4}", {"ranks 4 to 4", "the adapter is sound"}, 8, 0},
        {", \"r\": ", {"adapter_config.json: ", "would not take it"}, 4, QR_E_DAMAGED},
    };
    struct temp t;
    struct qr_buf out = {0};
    struct qr_err err = {0};
    temp_dir_make(t.dir, "check");
    for (int i = 0; i < QR_COUNT(row); i++) {
        cr_expect_eq(check_adapter(&out, &t, row[i].settings, row[i].rank, false), row[i].rc, "row %d: %s", i, out.data);
        for (int k = 0; k < 2; k++)
            cr_expect(strstr(out.data, row[i].says[k]), "row %d does not say \"%s\":\n%s", i, row[i].says[k], out.data);
        cr_expect(strstr(out.data, "    2 x self_attn.q_proj.lora_A.weight ") && !strchr(out.data, 0x1b), "row %d:\n%s", i, out.data);
    }
    cr_expect_eq(check_adapter(&out, &t, ", \"base_model_name_or_path\": \"own/base\"", 4, true), 0, "%s", out.data);
    cr_expect(strstr(out.data, "\"adapter\":{\"base_model\":\"own/base\",\"alpha\":8,\"matrices\":2,\"rank_min\":4,\"rank_max\":4,\"rslora\":false,"
                               "\"alpha_patterns\":0},") && strstr(out.data, "\"problems\":[],\"runs\":null"), "%s", out.data);
    cr_expect_eq(qr_source_explain(t.dir, &err), QR_E_USAGE);
    cr_expect(strstr(err.msg, "is an adapter (adapter_config.json), not a model: name its base model (own/base), and the adapter as --lora NAME=DIR"),
              "%s", err.msg);
    qr_buf_release(&out);
    temp_remove(&t);
}

/* The file with the matrices, as it may be. */
static void put_adapter_file(const struct temp *t, const char *const name[2], int32_t n)
{
    struct qr_st_entry entry[2];
    struct qr_st_out out;
    struct qr_err err = {0};
    char path[200];
    const float zero[64] = {0};
    for (int32_t i = 0; i < n; i++)
        entry[i] = (struct qr_st_entry){.name = name[i], .dtype = QR_F32, .n_dims = 2, .shape = {i == 0 ? 2 : 4, i == 0 ? 8 : 2}};
    snprintf(path, sizeof path, "%s/" QR_LORA_WEIGHTS, t->dir);
    unlink(path);
    cr_assert_eq(qr_st_out_open(&out, path, entry, n, NULL, 0, &err), 0, "%s", err.msg);
    for (int32_t i = 0; i < n; i++)
        cr_assert_eq(qr_st_out_put(&out, zero, (size_t)qr_st_entry_count(&entry[i]) * sizeof(float), &err), 0, "%s", err.msg);
    cr_assert_eq(qr_st_out_close(&out, false, &err), 0, "%s", err.msg);
}

Test(check, an_adapters_directory_whose_matrices_are_wrong_is_told_by_their_names)
{
#define Q "base_model.model.model.layers.0.self_attn.q_proj"
    static const struct {
        const char *name[2], *says;
        int32_t n;
    } row[] = {
        {{Q ".lora_A.weight", Q ".lora_B.weight"}, "the adapter is sound", 2},
        {{Q ".lora_A.weight"}, "tensor " Q ".lora_B.weight is missing, expected it beside " Q ".lora_A.weight", 1},
        {{Q ".lora_A.weight", Q ".lora_C.weight"}, Q ".lora_B.weight is missing", 2},
        {{"q.lora_A.weight", "q.lora_B.weight"}, "tensor q.lora_A.weight, expected names as base_model.model.NAME.lora_A.weight", 2},
        {{NULL}, "holds no tensor, expected adapters", 0},
    };
    struct temp t;
    struct qr_buf out = {0};
    struct qr_err err = {0};
    char path[200];
    temp_dir_make(t.dir, "check");
    put_text(&t, QR_LORA_CONFIG, "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 8}");
    for (int i = 0; i < QR_COUNT(row); i++) {
        put_adapter_file(&t, row[i].name, row[i].n);
        cr_expect_eq(check(&out, &t, false, &err) == 0, i == 0, "row %d: %s", i, out.data);
        cr_expect(strstr(out.data, row[i].says), "row %d does not say \"%s\":\n%s", i, row[i].says, out.data);
    }
    snprintf(path, sizeof path, "%s/" QR_LORA_WEIGHTS, t.dir);
    cr_assert_eq(unlink(path), 0);
    cr_expect_neq(check(&out, &t, false, &err), 0);
    const char *first = strstr(out.data, "problem ");
    cr_expect(first && strstr(first, QR_LORA_WEIGHTS) && !strstr(first + 1, "problem "), "once:\n%s", out.data);
    put_text(&t, QR_LORA_CONFIG, "[");
    cr_expect_neq(check(&out, &t, false, &err), 0);
    first = strstr(out.data, "problem ");
    cr_expect(first && strstr(first + 1, "problem ") && strstr(out.data, QR_LORA_CONFIG ": "), "both files:\n%s", out.data);
    qr_buf_release(&out);
    temp_remove(&t);
}

Test(check, a_part_alone_is_refused_with_what_to_name_and_what_to_fetch)
{
    struct temp t, file;
    struct qr_buf out = {0};
    struct qr_err err = {0};
    char path[200];
    static const char first[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\24\0\0\0\0\0\0\0general.architecture\10\0\0\0\5\0\0\0\0\0\0\0llama"
                                "\13\0\0\0\0\0\0\0split.count\4\0\0\0\2\0\0"; /* and a 0 */
    temp_dir_make(t.dir, "check");
    snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", t.dir);
    put_bytes(path, first, sizeof first);
    cr_expect_neq(check(&out, &t, false, &err), 0);
    const char *said = strstr(out.data, "is the first of 2 parts");
    cr_expect(said && !strstr(said + 1, "is the first of 2 parts"), "once:\n%s", out.data);
    cr_expect(strstr(out.data, "m-00001-of-00002.gguf: is the first of 2 parts, and ") &&
              strstr(out.data, "m-00002-of-00002.gguf is missing: download it into the same directory\n"), "%s", out.data);
    put_text(&t, "m-00002-of-00002.gguf", "GGUF");
    snprintf(file.dir, sizeof file.dir, "%.36s/m-00002-of-00002.gguf", t.dir);
    cr_expect_eq(check(&out, &file, false, &err), QR_E_USAGE);
    cr_expect(strstr(out.data, "is a later part of a model that was split: name its first part, *-00001-of-*.gguf\n"), "%s", out.data);
    qr_buf_release(&out);
    temp_remove(&t);
}

Test(check, a_cut_file_says_where_it_ends_and_gguf_beside_a_directory_of_the_other_form_is_named)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp t = make(&c, QR_BF16, 1, 1);
    struct qr_buf out = {0};
    struct qr_err err = {0};
    char path[200];
    struct stat st;
    put_text(&t, "other.gguf", "GGUF");
    cr_expect_eq(check(&out, &t, false, &err), 0, "%s", err.msg);
    cr_expect(strstr(out.data, "not read      other.gguf: config.json is beside it; name the file to run it\n"), "%s", out.data);
    snprintf(path, sizeof path, "%s/model.safetensors", t.dir);
    cr_assert(stat(path, &st) == 0 && truncate(path, st.st_size - 1) == 0);
    cr_expect_eq(check(&out, &t, false, &err), QR_E_DAMAGED);
    cr_expect(strstr(err.msg, "end after the ") && strstr(err.msg, "truncated; download it again"), "%s", err.msg);
    cr_assert_eq(truncate(path, 100), 0);
    cr_expect_eq(check(&out, &t, false, &err), QR_E_DAMAGED);
    cr_expect(strstr(err.msg, "in a file of 100 bytes; truncated; download it again"), "%s", err.msg);
    qr_buf_release(&out);
    temp_remove(&t);
}

/* The file's hash, then that of the embedding. */
static void hashes(char out[2][17], const struct temp *t)
{
    const struct qr_check_options o = {.json = true, .hash = true};
    struct qr_buf text = {0};
    struct qr_err err = {0};
    struct qr_json *root;
    cr_assert_eq(qr_model_check(&text, t->dir, &o, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_json_parse(&root, text.data, text.len, &qr_json_limits_file, &err), 0, "%s", err.msg);
    snprintf(out[0], 17, "%s", qr_json_str(qr_json_find(qr_json_first(qr_json_find(root, "files")), "xxh3"), NULL));
    for (const struct qr_json *e = qr_json_first(qr_json_find(root, "tensors")); e; e = qr_json_after(e))
        if (strcmp(qr_json_str(qr_json_find(e, "name"), NULL), "model.embed_tokens.weight") == 0)
            snprintf(out[1], 17, "%s", qr_json_str(qr_json_find(e, "xxh3"), NULL));
    qr_json_free(root);
    qr_buf_release(&text);
}

Test(check, hashes_follow_the_content_of_files_and_tensors)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp a = make(&c, QR_BF16, 1, 1), same = make(&c, QR_BF16, 1, 1), other = make(&c, QR_BF16, 1, 2);
    char of_a[2][17], of_same[2][17], of_other[2][17];
    hashes(of_a, &a);
    hashes(of_same, &same);
    hashes(of_other, &other);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(strlen(of_a[i]), 16);
        cr_expect_str_eq(of_a[i], of_same[i]);
        cr_expect_str_neq(of_a[i], of_other[i]);
    }
    temp_remove(&a);
    temp_remove(&same);
    temp_remove(&other);
}

#define LARGE_BYTES ((size_t)64 << 20)

/* A file of holes and one number, of three tensors that begin and end inside of pages and of pieces. */
static struct temp large_file(void)
{
    static const size_t cut[] = {0, 1001, ((size_t)9 << 20) + 3, LARGE_BYTES};
    struct temp t;
    struct qr_buf header = {0};
    for (int i = 0; i < 3; i++)
        qr_buf_printf(&header, "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}", i ? "," : "{", i, cut[i + 1] - cut[i], cut[i],
                      cut[i + 1]);
    qr_buf_put_byte(&header, '}');
    const uint64_t n = header.len;
    snprintf(t.dir, sizeof t.dir, "/tmp/quire-check-%ld.safetensors", (long)getpid());
    FILE *f = fopen(t.dir, "wb");
    cr_assert(f && fwrite(&n, sizeof n, 1, f) == 1 && fwrite(header.data, 1, header.len, f) == header.len);
    cr_assert(fseek(f, (long)(sizeof n + n + LARGE_BYTES / 2), SEEK_SET) == 0 && fwrite(&n, sizeof n, 1, f) == 1);
    cr_assert(fflush(f) == 0 && ftruncate(fileno(f), (off_t)(sizeof n + n + LARGE_BYTES)) == 0);
    fclose(f);
    qr_buf_release(&header);
    return t;
}

static void expect_hash(const struct qr_json *entry, const void *bytes, size_t n)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)qr_hash64(bytes, n, 0));
    cr_assert_not_null(entry);
    cr_expect_str_eq(qr_json_str(qr_json_find(entry, "xxh3"), NULL), hash);
}

/* 16 MiB: a piece of 4, the report, and what the allocator and a sanitizer keep. */
Test(check, hashing_a_large_file_takes_little_memory_and_hashes_every_byte)
{
    const struct qr_check_options o = {.json = true, .hash = true};
    struct temp t = large_file();
    struct qr_buf text = {0};
    struct qr_err err = {0};
    struct qr_json *root;
    struct qr_map_file f;
    struct qr_tensor_files *st;
    const int64_t before = qr_memory_of_process("VmHWM");
    cr_assert_eq(qr_model_check(&text, t.dir, &o, &err), 0, "%s", err.msg);
    const int64_t more = qr_memory_of_process("VmHWM") - before;
    cr_expect(before > 0 && more < 16 << 20, "%lld bytes more", (long long)more);
    cr_assert_eq(qr_json_parse(&root, text.data, text.len, &qr_json_limits_file, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_map_file_open(&f, t.dir, SIZE_MAX, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_safetensors_open(&st, t.dir, &err), 0, "%s", err.msg);
    expect_hash(qr_json_first(qr_json_find(root, "files")), f.data, f.n_bytes);
    const struct qr_json *e = qr_json_first(qr_json_find(root, "tensors"));
    for (int32_t i = 0; i < 3; i++, e = qr_json_after(e))
        expect_hash(e, qr_tensor_files_data(st, qr_tensor_files_at(st, i)), qr_tensor_files_at(st, i)->n_bytes);
    qr_tensor_files_close(st);
    qr_map_file_close(&f);
    qr_json_free(root);
    qr_buf_release(&text);
    cr_assert_eq(unlink(t.dir), 0);
}

Test(check, a_tokenizer_that_cannot_be_read_is_a_problem_and_one_with_more_ids_a_note)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp t = make(&c, QR_BF16, 1, 1);
    struct qr_check_options o = {.tokenizer = {0}};
    struct qr_buf out = {0};
    struct qr_err err = {0};
    qr_err_set(&o.tokenizer.err, QR_E_NOT_FOUND, "tokenizer.json does not exist");
    cr_expect_eq(qr_model_check(&out, t.dir, &o, &err), QR_E_NOT_FOUND);
    cr_expect(strstr(out.data, "problem       tokenizer.json does not exist\n") && strstr(out.data, "would not run it"), "%s", out.data);
    o.tokenizer.n_ids = c.n_vocab + 3;
    qr_buf_clear(&out);
    cr_expect_eq(qr_model_check(&out, t.dir, &o, &err), QR_E_NOT_FOUND);
    cr_expect(strstr(out.data, "a chat template that cannot be used") && strstr(out.data, "generates with it, but would not serve it"), "%s", out.data);
    o.tokenizer.err.code = QR_OK;
    qr_buf_clear(&out);
    cr_expect_eq(qr_model_check(&out, t.dir, &o, &err), 0, "%s", err.msg);
    cr_expect(strstr(out.data, "tokenizer     259 ids; no chat template: completions only\n") && strstr(out.data, "note          the model knows 256 ids"),
              "%s", out.data);
    qr_buf_release(&out);
    temp_remove(&t);
}

Test(check, says_how_many_experts_there_are_and_which_layers_have_none)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN2_MOE);
    c.moe.dense[0] = 2;
    struct temp t = make(&c, QR_BF16, 1, 1);
    struct qr_buf out = {0};
    struct qr_err err = {0};
    check(&out, &t, false, &err);
    static const char *const says[] = {"8 of 32, a token goes through 2 and a shared one of 48;", "none in 1", "mlp.experts.*.gate_proj.weight",
                                       "mlp.shared_expert_gate.weight", "[32, 64]"};
    for (int i = 0; i < QR_COUNT(says); i++)
        cr_expect(strstr(out.data, says[i]), "does not say \"%s\":\n%s", says[i], out.data);
    qr_buf_release(&out);
    temp_remove(&t);
}

Test(check, a_single_file_is_explained_without_a_configuration)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp t = make(&c, QR_F32, 1, 1), file;
    struct qr_buf out = {0};
    struct qr_err err = {0};
    snprintf(file.dir, sizeof file.dir, "%.40s/model.safetensors", t.dir);
    put_text(&t, "script.py", "");
    put_text(&t, "download.bin", "");
    cr_expect_eq(check(&out, &file, false, &err), 0, "%s", err.msg);
    cr_expect(strstr(out.data, "lm_head.weight") && strstr(out.data, "the file is sound; with the config.json beside it: quire check"), "%s", out.data);
    cr_expect(!strstr(out.data, "never"), "what lies in the same folder is no part of a file:\n%s", out.data);
    char config[80];
    snprintf(config, sizeof config, "%.40s/config.json", t.dir);
    cr_assert_eq(unlink(config), 0);
    qr_buf_clear(&out);
    cr_expect_eq(check(&out, &file, false, &err), 0, "%s", err.msg);
    cr_expect(strstr(out.data, "the file is sound; a model also needs a config.json beside it"), "%s", out.data);
    qr_buf_release(&out);
    temp_remove(&t);
}

/* Other configurations over the same weights. */
Test(check, names_what_is_missing_wrong_or_too_much)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA), other;
    static const char *const says[] = {"tensors are missing: ", "model.layers.2.input_layernorm.weight", "...",
                                       "model.layers.0.self_attn.o_proj.bias", "[64, 96]", "expected [64, 80]", "q_proj.bias"};
    for (int i = 0; i < 4; i++) {
        struct temp t = make(&c, QR_F32, 1, 1);
        struct qr_buf out = {0}, text = {0};
        struct qr_err err = {0};
        other = c;
        if (i == 0)
            other.n_layers = 4;
        if (i == 1)
            other.out_bias = other.qkv_bias = true;
        if (i == 2)
            other.n_ffn = 80;
        if (i == 3) { /* weights with biases under a configuration without */
            temp_remove(&t);
            other.out_bias = other.qkv_bias = true;
            t = make(&other, QR_F32, 1, 1);
            other = c;
        }
        qr_hf_config_write(&text, &other);
        put_text(&t, "config.json", text.data);
        cr_expect_eq(check(&out, &t, false, &err), QR_E_DAMAGED);
        cr_expect(strstr(out.data, "would not run it") && strstr(out.data, err.msg), "%s", out.data);
        cr_expect(i != 0 || (strstr(err.msg, "18 tensors") && strstr(err.msg, says[1]) && strstr(err.msg, says[2])), "%s", err.msg);
        cr_expect(i != 1 || strstr(err.msg, says[3]) || strstr(err.msg, says[6]), "%s", err.msg);
        cr_expect(i != 2 || (strstr(err.msg, "expected [80, 64]") || strstr(err.msg, says[5])), "%s", err.msg);
        cr_expect(i != 3 || (strstr(err.msg, says[6]) && strstr(err.msg, "attention_bias")), "%s", err.msg);
        qr_buf_release(&text);
        qr_buf_release(&out);
        temp_remove(&t);
    }
}

Test(check, reports_problems_of_configuration_and_weights_together)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp t = make(&c, QR_F32, 1, 1);
    struct qr_buf out = {0};
    struct qr_err err = {0};
    struct qr_json *root;
    put_text(&t, "config.json", "{\"architectures\":[\"FooForCausalLM\"]}");
    put_text(&t, "model.safetensors", "nonsense");
    cr_expect_lt(check(&out, &t, true, &err), 0);
    cr_expect(strstr(err.msg, "FooForCausalLM"), "%s", err.msg);
    cr_assert_eq(qr_json_parse(&root, out.data, out.len, &qr_json_limits_file, &err), 0, "%s: %s", err.msg, out.data);
    cr_expect_eq(qr_json_count(qr_json_find(root, "problems")), 2);
    cr_expect(!qr_json_bool(qr_json_find(root, "runs")));
    qr_json_free(root);
    qr_buf_release(&out);
    temp_remove(&t);
    struct temp nowhere = {"/nowhere"};
    cr_expect_eq(check(&out, &nowhere, false, &err), QR_E_NOT_FOUND);
    qr_buf_release(&out);
}

static bool same_file(const struct temp *a, const struct temp *b, const char *name)
{
    char path[200];
    struct qr_map_file x, y;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/%s", a->dir, name);
    cr_assert_eq(qr_map_file_open(&x, path, SIZE_MAX, &err), 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s/%s", b->dir, name);
    cr_assert_eq(qr_map_file_open(&y, path, SIZE_MAX, &err), 0, "%s", err.msg);
    bool same = x.n_bytes == y.n_bytes && memcmp(x.data, y.data, x.n_bytes) == 0;
    qr_map_file_close(&x);
    qr_map_file_close(&y);
    return same;
}

Test(make_model, same_seed_same_bytes_and_shards_hold_the_same_tensors)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3);
    struct temp a = make(&c, QR_F32, 1, 42), b = make(&c, QR_F32, 1, 42), other = make(&c, QR_F32, 1, 43), cut = make(&c, QR_F32, 4, 42);
    struct qr_tensor_files *one, *four;
    struct qr_err err = {0};
    cr_expect(same_file(&a, &b, "model.safetensors") && same_file(&a, &b, "config.json"));
    cr_expect(!same_file(&a, &other, "model.safetensors"));
    cr_assert_eq(qr_safetensors_open(&one, a.dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_safetensors_open(&four, cut.dir, &err), 0, "%s", err.msg);
    cr_expect_eq(qr_tensor_files_n_shards(four), 4);
    cr_assert_eq(qr_tensor_files_count(one), qr_tensor_files_count(four));
    for (int32_t i = 0; i < qr_tensor_files_count(one); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(one, i), *u = qr_tensor_files_find(four, t->name);
        cr_assert_not_null(u, "%s", t->name);
        cr_expect(t->n_bytes == u->n_bytes && memcmp(qr_tensor_files_data(one, t), qr_tensor_files_data(four, u), t->n_bytes) == 0);
    }
    qr_tensor_files_close(one);
    qr_tensor_files_close(four);
    cr_expect_eq(qr_model_make(a.dir, &c, &(struct qr_make_options){.store = QR_F32, .seed = 1}, &err), QR_E_IO, "an existing model is overwritten");
    temp_remove(&a);
    temp_remove(&b);
    temp_remove(&other);
    temp_remove(&cut);
}

/* 16,384 numbers: the mean of N(0, 0.02) is within 5 * 0.02/128, the deviation within 5 * 0.02/sqrt(2*16384) of what was asked. */
Test(make_model, matrices_have_the_published_deviation_in_every_type)
{
    static const enum qr_dtype stores[] = {QR_F32, QR_BF16, QR_F16};
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    double first[3] = {0};
    for (int s = 0; s < 3; s++) {
        struct temp t = make(&c, stores[s], 1, 9);
        struct qr_backend *be;
        struct qr_tensor_files *st;
        struct qr_err err = {0};
        struct qr_weights w;
        struct qr_share share;
        const struct qr_backend_options o = {.isa = "ref", .n_threads = 1};
        qr_share_whole(&share, &c);
        cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_safetensors_open(&st, t.dir, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_weights_load(&w, st, &share, be, QR_F32, NULL, &err), 0, "%s", err.msg);
        float row[64];
        double sum = 0, squares = 0;
        for (int32_t id = 0; id < c.n_vocab; id++) {
            const struct qr_embed_args a = {.out = row, .table = &w.embed.t, .packed = w.embed.packed, .ids = &id, .out_stride = 64, .n_rows = 1, .scale = 1};
            be->k->embed(be->queue, &a);
            for (int i = 0; i < 64; i++) {
                sum += (double)row[i];
                squares += (double)row[i] * (double)row[i];
            }
            first[s] = id == 0 ? (double)row[0] : first[s];
        }
        double n = 256 * 64, deviation = sqrt(squares / n);
        cr_expect_lt(fabs(sum / n), 5 * 0.02 / 128);
        cr_expect_lt(fabs(deviation - 0.02), 5 * 0.02 / sqrt(2 * n), "%g", deviation);
        cr_expect_lt(fabs(first[s] - first[0]), 0.02 / 256, "type %d", s);
        qr_weights_release(&w);
        qr_backend_close(be);
        temp_remove(&t);
    }
}

Test(check, says_what_a_family_has_of_its_own)
{
    static const struct {
        enum qr_arch arch;
        const char *says[3];
    } rows[] = {{QR_ARCH_GPT2, {"a table of 512 positions", "LayerNorm, with biases", "GPT2LMHeadModel"}},
                {QR_ARCH_GEMMA2, {"scores 3, logits 2", "before and behind", "window 37"}},
                {QR_ARCH_GEMMA3, {"; 100 in a window", "before and behind", "q/k norm"}},
                {QR_ARCH_STABLELM, {"LayerNorm, with biases", "theta 10000", "StableLmForCausalLM"}}};
    for (int i = 0; i < QR_COUNT(rows); i++) {
        const struct qr_model_config c = qr_model_config_small(rows[i].arch);
        struct temp t = make(&c, QR_F32, 1, 1);
        struct qr_buf out = {0};
        struct qr_err err = {0};
        cr_expect_eq(check(&out, &t, false, &err), 0, "%s", err.msg);
        for (int k = 0; k < 3; k++)
            cr_expect(strstr(out.data, rows[i].says[k]) != NULL, "%s: \"%s\" is not in\n%s", c.arch_name, rows[i].says[k], out.data);
        cr_expect_eq(n_wide(out.data), 0, "%s", out.data);
        qr_buf_release(&out);
        temp_remove(&t);
    }
}
