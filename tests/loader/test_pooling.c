/* modules.json and its Pooling module, and the key of a GGUF file: each way of pooling, and what is named that is not computed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "loader/pooling.h"
#include "tests/gguf_make.h"
#include "tests/temp.h"

#define TRANSFORMER "{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}"
#define POOLING ", {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}"
#define NORMALIZE ", {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Normalize\", \"type\": \"sentence_transformers.models.Normalize\"}"
#define DENSE ", {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Dense\", \"type\": \"sentence_transformers.models.Dense\"}"

static void put(const char *dir, const char *name, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    cr_assert(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

static void read_source(struct qr_pooling_config *out, const char *path, enum qr_pooling wanted)
{
    struct qr_source *source;
    struct qr_err err = {0};
    cr_assert_eq(qr_source_open(&source, path, &err), 0, "%s", err.msg);
    qr_pooling_read(out, source, wanted);
    qr_source_unref(source);
    cr_assert(strstr(out->note, path) == NULL, "%s: clients see no paths", out->note);
}

static void read_of(struct qr_pooling_config *out, const char *modules, const char *config, enum qr_pooling wanted)
{
    char dir[64], inner[100], file[200];
    temp_dir_make(dir, "pooling");
    snprintf(inner, sizeof inner, "%s/1_Pooling", dir);
    cr_assert_eq(mkdir(inner, 0700), 0);
    if (modules)
        put(dir, "modules.json", modules);
    if (config)
        put(inner, "config.json", config);
    read_source(out, dir, wanted);
    snprintf(file, sizeof file, "%s/modules.json", dir);
    unlink(file);
    snprintf(file, sizeof file, "%s/config.json", inner);
    unlink(file);
    cr_assert(rmdir(inner) == 0 && rmdir(dir) == 0);
}

Test(pooling, the_files_say_which_rows_and_whether_to_normalise)
{
    static const struct {
        const char *modules, *config;
        enum qr_pooling wanted, pooling;
        bool normalize;
    } t[] = {
        {NULL, NULL, QR_POOLING_NONE, QR_POOLING_LAST, true},
        {NULL, NULL, QR_POOLING_MEAN, QR_POOLING_MEAN, true},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}", QR_POOLING_NONE, QR_POOLING_CLS, false},
        {"[" TRANSFORMER POOLING NORMALIZE "]", "{\"pooling_mode_mean_tokens\": true}", QR_POOLING_NONE, QR_POOLING_MEAN, true},
        {"[" TRANSFORMER POOLING NORMALIZE "]", "{\"pooling_mode_lasttoken\": true, \"include_prompt\": true}", QR_POOLING_NONE, QR_POOLING_LAST, true},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode_max_tokens\": true}", QR_POOLING_CLS, QR_POOLING_CLS, false},
    };
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_pooling_config c;
        read_of(&c, t[i].modules, t[i].config, t[i].wanted);
        cr_assert(c.pooling == t[i].pooling && c.normalize == t[i].normalize && !c.note[0], "%d: %d %d %s", i, (int)c.pooling, c.normalize, c.note);
    }
}

Test(pooling, what_is_not_computed_leaves_text_and_is_named)
{
    static const struct {
        const char *modules, *config, *word;
    } t[] = {
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode_max_tokens\": true}", "pooling_mode_max_tokens"},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true}", "beside another"},
        {"[" TRANSFORMER POOLING "]", "{}", "no pooling_mode_"},
        {"[" TRANSFORMER POOLING DENSE "]", "{\"pooling_mode_mean_tokens\": true}", "2_Dense (Dense)"},
        {"[" TRANSFORMER POOLING "]", NULL, "1_Pooling/config.json"},
        {"[{\"path\": \"../x\", \"type\": \"a.Pooling\"}]", NULL, "../x"},
        {"{}", NULL, "expected an array"},
        {"[", NULL, "modules.json"},
    };
    struct qr_pooling_config c;
    for (int i = 0; i < QR_COUNT(t); i++) {
        read_of(&c, t[i].modules, t[i].config, QR_POOLING_NONE);
        cr_assert(c.pooling == QR_POOLING_NONE && strstr(c.note, t[i].word) != NULL, "%d: %s", i, c.note);
    }
    read_of(&c, "[" TRANSFORMER POOLING DENSE NORMALIZE "]", NULL, QR_POOLING_CLS);
    cr_assert(c.pooling == QR_POOLING_CLS && c.normalize && strstr(c.note, "left out") != NULL, "%s", c.note);
}

Test(pooling, a_gguf_file_says_it_by_a_number)
{
    static const struct {
        int64_t way; /* -1: no key */
        enum qr_pooling wanted, pooling;
        const char *word;
    } t[] = {{-1, QR_POOLING_NONE, QR_POOLING_LAST, ""}, {1, QR_POOLING_NONE, QR_POOLING_MEAN, ""}, {2, QR_POOLING_NONE, QR_POOLING_CLS, ""},
             {3, QR_POOLING_NONE, QR_POOLING_LAST, ""}, {3, QR_POOLING_MEAN, QR_POOLING_MEAN, ""}, {0, QR_POOLING_NONE, QR_POOLING_NONE, "0 (none)"},
             {4, QR_POOLING_NONE, QR_POOLING_NONE, "llama.pooling_type is 4 (rank)"}, {5, QR_POOLING_NONE, QR_POOLING_NONE, "5 (unknown)"},
             {4, QR_POOLING_LAST, QR_POOLING_LAST, ""}};
    char dir[64], path[100];
    temp_dir_make(dir, "pooling");
    snprintf(path, sizeof path, "%s/a.gguf", dir);
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_buf b = {0};
        struct qr_err err = {0};
        struct qr_pooling_config c;
        gguf_begin(&b, 3, 0, t[i].way < 0 ? 1 : 2);
        gguf_key_text(&b, "general.architecture", "llama");
        if (t[i].way >= 0)
            gguf_key_u32(&b, "llama.pooling_type", (uint32_t)t[i].way);
        gguf_align(&b, 32);
        cr_assert_eq(qr_file_write(path, b.data, b.len, false, &err), 0, "%s", err.msg);
        qr_buf_release(&b);
        read_source(&c, path, t[i].wanted);
        unlink(path);
        cr_assert(c.pooling == t[i].pooling && c.normalize && (t[i].word[0] ? strstr(c.note, t[i].word) != NULL : !c.note[0]), "%d: %s", i, c.note);
    }
    cr_assert_eq(rmdir(dir), 0);
}
