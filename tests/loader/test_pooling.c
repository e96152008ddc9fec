/* modules.json and its Pooling module, and the key of a GGUF file: each way of pooling, and what is named that is not computed. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/rng.h"
#include "loader/config/hf_config.h"
#include "loader/write/make_model.h"
#include "loader/config/pooling.h"
#include "loader/write/safetensors_write.h"
#include "tests/gguf_make.h"
#include "tests/temp.h"

#define TRANSFORMER "{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}"
#define POOLING ", {\"idx\": 1, \"name\": \"1\", \"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}"
#define NORMALIZE ", {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Normalize\", \"type\": \"sentence_transformers.models.Normalize\"}"
#define LSTM ", {\"idx\": 2, \"name\": \"2\", \"path\": \"2_LSTM\", \"type\": \"sentence_transformers.models.LSTM\"}"
#define DENSE(dir) ", {\"path\": \"" dir "\", \"type\": \"sentence_transformers.models.Dense\"}"

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
        {"[" TRANSFORMER POOLING "]", "{\"embedding_dimension\": 8, \"pooling_mode\": \"mean\"}", QR_POOLING_NONE, QR_POOLING_MEAN, false},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode\": [\"cls\"]}", QR_POOLING_NONE, QR_POOLING_CLS, false},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode\": \"lasttoken\", \"include_prompt\": true}", QR_POOLING_NONE, QR_POOLING_LAST, false},
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
        {"[" TRANSFORMER POOLING "]", "{}", "no pooling_mode"},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode\": \"weightedmean\"}", "pooling_mode weightedmean is not computed here"},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode\": [\"cls\", \"mean\"]}", "pooling_mode mean is not computed here beside another"},
        {"[" TRANSFORMER POOLING "]", "{\"pooling_mode\": 1}", "no pooling_mode"},
        {"[" TRANSFORMER POOLING LSTM "]", "{\"pooling_mode_mean_tokens\": true}", "2_LSTM (LSTM)"},
        {"[" TRANSFORMER POOLING DENSE("2_Dense") "]", "{\"pooling_mode_mean_tokens\": true}", "2_Dense/config.json"},
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
    read_of(&c, "[" TRANSFORMER POOLING LSTM NORMALIZE "]", NULL, QR_POOLING_CLS);
    cr_assert(c.pooling == QR_POOLING_CLS && c.normalize && strstr(c.note, "left out") != NULL, "%s", c.note);
}

/* ---- stages behind the vector ---- */

#define N_ROWS 37 /* no whole number of lanes */

struct stages {
    char dir[64];
    struct qr_model_config model;
};

/* A model of rows of 64 numbers, without weights. */
static void stages_make(struct stages *s, const char *modules)
{
    struct qr_buf config = {0};
    temp_dir_make(s->dir, "stages");
    s->model = qr_model_config_small(QR_ARCH_LLAMA);
    s->model.n_embd = N_ROWS;
    qr_hf_config_write(&config, &s->model);
    put(s->dir, "config.json", config.data);
    qr_buf_release(&config);
    put(s->dir, "modules.json", modules);
}

/* w [n_out, n_in], b [n_out] or NULL. */
static void stage_make(const struct stages *s, const char *name, const char *config, const float *w, const float *b, int32_t n_out, int32_t n_in)
{
    char dir[100], path[200];
    struct qr_st_out o;
    struct qr_err err = {0};
    const struct qr_st_entry e[] = {{.name = "linear.weight", .dtype = QR_F32, .n_dims = 2, .shape = {n_out, n_in}},
                                    {.name = "linear.bias", .dtype = QR_F32, .n_dims = 1, .shape = {n_out}}};
    snprintf(dir, sizeof dir, "%s/%s", s->dir, name);
    cr_assert_eq(mkdir(dir, 0700), 0);
    put(dir, "config.json", config);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_st_out_open(&o, path, e, b ? 2 : 1, NULL, 0, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_st_out_put(&o, w, (size_t)(n_out * n_in) * sizeof *w, &err), 0, "%s", err.msg);
    if (b)
        cr_assert_eq(qr_st_out_put(&o, b, (size_t)n_out * sizeof *b, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_st_out_close(&o, false, &err), 0, "%s", err.msg);
}

static void stages_remove(const struct stages *s)
{
    static const char *const name[] = {"2_Dense/config.json", "2_Dense/model.safetensors", "3_Dense/config.json", "3_Dense/model.safetensors",
                                       "config.json", "modules.json"};
    char path[200];
    for (int i = 0; i < QR_COUNT(name); i++) {
        snprintf(path, sizeof path, "%s/%s", s->dir, name[i]);
        unlink(path);
    }
    for (int i = 2; i <= 3; i++) {
        snprintf(path, sizeof path, "%s/%d_Dense", s->dir, i);
        rmdir(path);
    }
    cr_assert_eq(rmdir(s->dir), 0);
}

static void random_fill(struct qr_rng *rng, float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)qr_rng_below(rng, 2001) / 1000 - 1;
}

/* In double, of length 1 where that is wanted. */
static void expect_vector(const struct qr_pooling_config *c, const double *rows, const double *want, int32_t n)
{
    float got[8];
    double squares = 0;
    cr_assert(qr_pooling_finish(c, got, n, rows, N_ROWS));
    for (int32_t i = 0; i < n; i++)
        squares += want[i] * want[i];
    /* A sum of 37 products of numbers up to 1 in f32 is off by 8 roundings of 2^-24 of at most 37, the second stage passes on 19 such errors, through tanh
     * unless it is the identity, and adds 8 roundings of at most 19: below 19 * 8 * 37 * 2^-24 + 8 * 19 * 2^-24 = 4e-4 in the worst case, random signs leave
     * a tenth of that; lengths are above 0.1. */
    for (int32_t i = 0; i < n; i++)
        cr_assert(fabs((double)got[i] - want[i] / (c->normalize ? sqrt(squares) : 1)) < 1e-4, "%d of %d: %g", i, n, (double)got[i]);
}

/* As sentence-transformers 6.2 and earlier versions write them. */
Test(pooling, what_the_files_do_to_texts_before_the_model_is_named_as_it_is_not_done)
{
    static const struct {
        const char *file, *text, *says; /* says NULL: nothing stands against embeddings */
    } t[] = {
        {"sentence_bert_config.json", "{\"max_seq_length\": 512, \"do_lower_case\": false}", NULL},
        {"sentence_bert_config.json", "{\"modality_config\": {\"text\": {\"method\": \"forward\"}}}", NULL},
        {"sentence_bert_config.json", "{\"modality_config\": {\"text\": {}, \"message\": {\"method\": \"forward\", \"format\": \"flat\"}}}", "chat template"},
        {"sentence_bert_config.json", "{\"do_lower_case\": true}", "do_lower_case"},
        {"sentence_bert_config.json", "[]", NULL},
        {"config_sentence_transformers.json", "{\"prompts\": {\"query\": \"Q: \", \"document\": \"\"}, \"default_prompt_name\": null}", NULL},
        {"config_sentence_transformers.json", "{\"prompts\": {\"query\": \"Q: \", \"document\": \"\"}, \"default_prompt_name\": \"document\"}", NULL},
        {"config_sentence_transformers.json", "{\"prompts\": {\"query\": \"Q: \"}, \"default_prompt_name\": \"query\"}", "default_prompt_name \"query\""},
        {"config_sentence_transformers.json", "{", "line 1"},
    };
    char dir[64], inner[100], file[200];
    temp_dir_make(dir, "pooling");
    snprintf(inner, sizeof inner, "%s/1_Pooling", dir);
    cr_assert_eq(mkdir(inner, 0700), 0);
    put(dir, "modules.json", "[" TRANSFORMER POOLING NORMALIZE "]");
    put(inner, "config.json", "{\"pooling_mode\": \"mean\"}");
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_pooling_config c;
        put(dir, t[i].file, t[i].text);
        read_source(&c, dir, QR_POOLING_NONE);
        cr_expect_eq(c.pooling, t[i].says ? QR_POOLING_NONE : QR_POOLING_MEAN, "%d: %s", i, c.note);
        cr_expect(t[i].says ? strstr(c.note, t[i].says) && strstr(c.note, t[i].file) : c.note[0] == 0, "%d: %s", i, c.note);
        read_source(&c, dir, QR_POOLING_LAST);
        cr_expect(c.pooling == QR_POOLING_LAST && c.normalize && !c.note[0] == !t[i].says, "%d: %s", i, c.note);
        snprintf(file, sizeof file, "%s/%s", dir, t[i].file);
        unlink(file);
    }
    snprintf(file, sizeof file, "%s/modules.json", dir);
    unlink(file);
    snprintf(file, sizeof file, "%s/config.json", inner);
    unlink(file);
    cr_assert(rmdir(inner) == 0 && rmdir(dir) == 0);
}

Test(pooling, dense_stages_follow_each_other_before_the_vector_is_cut_and_normalised)
{
    static float w[2][19 * N_ROWS], b[19];
    double rows[N_ROWS], huge[N_ROWS], mid[19], want[5];
    struct qr_pooling_config c;
    struct qr_rng rng = {.seed = 41};
    random_fill(&rng, w[0], 19 * N_ROWS);
    random_fill(&rng, w[1], 5 * 19);
    random_fill(&rng, b, 19);
    for (int i = 0; i < N_ROWS; i++) {
        rows[i] = (double)((float)qr_rng_below(&rng, 2001) / 1000 - 1);
        huge[i] = 3e38;
    }
    for (int o = 0; o < 19; o++) {
        mid[o] = (double)b[o];
        for (int i = 0; i < N_ROWS; i++)
            mid[o] += (double)w[0][o * N_ROWS + i] * rows[i];
        mid[o] = tanh(mid[o]);
    }
    for (int o = 0; o < 5; o++) {
        want[o] = 0;
        for (int i = 0; i < 19; i++)
            want[o] += (double)w[1][o * 19 + i] * mid[i];
    }
    for (int unit = 0; unit < 2; unit++) {
        struct stages s;
        stages_make(&s, unit ? "[" TRANSFORMER DENSE("2_Dense") DENSE("3_Dense") NORMALIZE "]" : "[" TRANSFORMER DENSE("2_Dense") DENSE("3_Dense") "]");
        stage_make(&s, "2_Dense", "{\"in_features\": 37, \"out_features\": 19}", w[0], b, 19, N_ROWS); /* silent: Tanh, with a bias */
        stage_make(&s, "3_Dense", "{\"in_features\": 19, \"out_features\": 5, \"bias\": false, \"activation_function\": \"torch.nn.modules.linear.Identity\","
                                  "\"module_input_name\": \"sentence_embedding\"}", w[1], NULL, 5, 19);
        read_source(&c, s.dir, QR_POOLING_MEAN);
        cr_assert(!c.note[0] && c.n_dense == 2 && c.normalize == unit && qr_pooling_width(&c, N_ROWS) == 5, "%s", c.note);
        cr_assert_eq(qr_pooling_bytes(&c), 4 * (19 * (N_ROWS + 1) + 5 * 19));
        expect_vector(&c, rows, want, 5);
        expect_vector(&c, rows, want, 2);
        float got[5];
        c.dense[0].tanh = false;
        cr_assert(!qr_pooling_finish(&c, got, 5, huge, N_ROWS), "what is no number any more is said to be none");
        qr_pooling_release(&c);
        stages_remove(&s);
    }
}

Test(pooling, a_dense_stage_that_cannot_be_computed_is_named_and_left_out_where_a_way_of_pooling_is_asked_for)
{
    static const struct {
        const char *modules, *config, *word;
    } t[] = {
        {NULL, "{\"in_features\": 37, \"out_features\": 2, \"activation_function\": \"torch.nn.modules.activation.ReLU\"}", "activation.ReLU is not computed"},
        {NULL, "{\"out_features\": 2}", "in_features, expected"},
        {NULL, "{\"in_features\": 37, \"out_features\": 0}", "out_features, expected"},
        {NULL, "{\"in_features\": 37, \"out_features\": 3, \"bias\": false}", "linear.weight is [2, 37], expected [3, 37]"},
        {NULL, "{\"in_features\": 37, \"out_features\": 2, \"bias\": true}", "no tensor linear.bias"},
        {NULL, "{\"in_features\": 37, \"out_features\": 2, \"bias\": 1}", "bias, expected true or false"},
        {NULL, "{\"in_features\": 37, \"out_features\": 2, \"bias\": false, \"module_output_name\": \"x\"}", "module_output_name"},
        {NULL, "{\"in_features\": 37, \"out_features\": 2, \"bias\": false, \"use_residual\": true}", "use_residual is set"},
        {NULL, "{\"in_features\": 37, \"out_features\": 2, \"activation_function\": null}", "null is not computed"},
        {NULL, "[", "2_Dense/config.json"},
        {"[" TRANSFORMER NORMALIZE DENSE("2_Dense") "]", "{\"in_features\": 37, \"out_features\": 2, \"bias\": false}", "behind Normalize"},
        {"[" TRANSFORMER DENSE("2_Dense") DENSE("2_Dense") "]", "{\"in_features\": 37, \"out_features\": 2, \"bias\": false}", "in_features is 37, expected 2"},
        {"[" TRANSFORMER DENSE("/2_Dense") "]", "{}", "a module's path"},
    };
    static float w[2 * N_ROWS];
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_pooling_config c;
        struct stages s;
        stages_make(&s, t[i].modules ? t[i].modules : "[" TRANSFORMER DENSE("2_Dense") NORMALIZE "]");
        stage_make(&s, "2_Dense", t[i].config, w, NULL, 2, N_ROWS);
        read_source(&c, s.dir, QR_POOLING_NONE);
        cr_assert(c.pooling == QR_POOLING_NONE && c.n_dense == 0 && strstr(c.note, t[i].word) && strstr(c.note, "--pooling"), "%d: %s", i, c.note);
        read_source(&c, s.dir, QR_POOLING_LAST);
        cr_assert(c.pooling == QR_POOLING_LAST && c.n_dense == 0 && strstr(c.note, t[i].word) && strstr(c.note, "left out"), "%d: %s", i, c.note);
        cr_assert_eq(c.normalize, strstr(t[i].modules ? t[i].modules : NORMALIZE, "Normalize") != NULL);
        stages_remove(&s);
    }
}

Test(pooling, a_dense_stage_of_another_model_and_one_without_weights_are_named)
{
    static float w[2 * (N_ROWS + 1)];
    struct qr_pooling_config c;
    struct stages s;
    char path[200];
    stages_make(&s, "[" TRANSFORMER DENSE("2_Dense") "]");
    stage_make(&s, "2_Dense", "{\"in_features\": 38, \"out_features\": 2, \"bias\": false}", w, NULL, 2, N_ROWS + 1);
    read_source(&c, s.dir, QR_POOLING_NONE);
    cr_assert(c.n_dense == 0 && strstr(c.note, "takes 38 features, expected 37"), "%s", c.note);
    snprintf(path, sizeof path, "%s/2_Dense/model.safetensors", s.dir);
    unlink(path);
    read_source(&c, s.dir, QR_POOLING_NONE);
    cr_assert(c.n_dense == 0 && strstr(c.note, "pickles"), "%s", c.note);
    stages_remove(&s);
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
