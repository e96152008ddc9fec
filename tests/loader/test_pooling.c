/* modules.json and its Pooling module: each way of pooling, and what is refused by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "loader/pooling.h"
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

static int read_of(struct qr_pooling_config *out, const char *modules, const char *config, enum qr_pooling wanted, struct qr_err *err)
{
    char dir[64], inner[100], file[200];
    temp_dir_make(dir, "pooling");
    snprintf(inner, sizeof inner, "%s/1_Pooling", dir);
    cr_assert_eq(mkdir(inner, 0700), 0);
    if (modules)
        put(dir, "modules.json", modules);
    if (config)
        put(inner, "config.json", config);
    int rc = qr_pooling_read(out, dir, wanted, err);
    snprintf(file, sizeof file, "%s/modules.json", dir);
    unlink(file);
    snprintf(file, sizeof file, "%s/config.json", inner);
    unlink(file);
    cr_assert(rmdir(inner) == 0 && rmdir(dir) == 0);
    return rc;
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
        struct qr_err err = {0};
        cr_assert_eq(read_of(&c, t[i].modules, t[i].config, t[i].wanted, &err), 0, "%d: %s", i, err.msg);
        cr_assert(c.pooling == t[i].pooling && c.normalize == t[i].normalize, "%d: %d %d", i, (int)c.pooling, c.normalize);
    }
}

Test(pooling, what_is_not_computed_is_refused_by_name)
{
    static const struct {
        const char *modules, *config;
        int code;
        const char *word;
    } t[] = {
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode_max_tokens\": true}", QR_E_UNSUPPORTED, "pooling_mode_max_tokens"},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true}", QR_E_UNSUPPORTED, "beside another"},
        {"[" TRANSFORMER POOLING "]", "{}", QR_E_INVALID, "no pooling_mode_"},
        {"[" TRANSFORMER POOLING DENSE "]", "{\"pooling_mode_mean_tokens\": true}", QR_E_UNSUPPORTED, "Dense"},
        {"[" TRANSFORMER POOLING "]", NULL, QR_E_NOT_FOUND, "1_Pooling/config.json"},
        {"[{\"path\": \"../x\", \"type\": \"a.Pooling\"}]", NULL, QR_E_INVALID, "../x"},
        {"{}", NULL, QR_E_INVALID, "expected an array"},
    };
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_pooling_config c;
        struct qr_err err = {0};
        cr_assert_eq(read_of(&c, t[i].modules, t[i].config, QR_POOLING_NONE, &err), t[i].code, "%d: %s", i, err.msg);
        cr_assert(strstr(err.msg, t[i].word) != NULL, "%d: %s", i, err.msg);
    }
}
