/* Which models score pairs of texts by what their files say, and what is named that is not computed. Weights are compared with transformers' scores in
 * tests/e2e/test_rerank.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "loader/config/hf_config.h"
#include "loader/config/scorer.h"
#include "tests/temp.h"

#define SIZES "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, " \
              "\"vocab_size\": 300"
#define CLASSIFIER "{\"architectures\": [\"LlamaForSequenceClassification\"], " SIZES
#define CAUSAL(name) "{\"architectures\": [\"" name "\"], " SIZES
#define STAGE(class) "[{\"path\": \"1_Stage\", \"type\": \"sentence_transformers.cross_encoder.modules.logit_score." class "\"}]"

static void put(const char *dir, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    cr_assert(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

static void find(struct qr_scorer *out, const char *config, const char *modules, const char *stage, bool yes_no)
{
    static const char *const files[] = {"config.json", "modules.json", "1_Stage/config.json"};
    const char *const text[] = {config, modules, stage};
    struct qr_source *source;
    struct qr_err err = {0};
    char dir[64], path[200];
    temp_dir_make(dir, "scorer");
    snprintf(path, sizeof path, "%s/1_Stage", dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    for (int i = 0; i < QR_COUNT(files); i++)
        if (text[i])
            put(dir, files[i], text[i]);
    cr_assert_eq(qr_source_open(&source, dir, &err), 0, "%s", err.msg);
    qr_scorer_find(out, source, yes_no);
    qr_source_unref(source);
    cr_expect(strstr(out->note, dir) == NULL, "%s: clients see no paths", out->note);
    for (int i = 0; i < QR_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/1_Stage", dir);
    cr_assert(rmdir(path) == 0 && rmdir(dir) == 0);
}

Test(scorer, the_files_say_what_makes_scores)
{
    static const struct {
        const char *config, *modules, *stage;
        bool asked;
        enum qr_scorer_kind kind;
        bool sigmoid, joined;
        int32_t pad, yes;
    } t[] = {
        {CLASSIFIER "}", NULL, NULL, false, QR_SCORER_CLASSIFIER, true, false, -1, -1},
        {CLASSIFIER "}", NULL, NULL, true, QR_SCORER_CLASSIFIER, true, false, -1, -1},
        {CLASSIFIER ", \"pad_token_id\": 7, \"use_sep_token\": false}", NULL, NULL, false, QR_SCORER_CLASSIFIER, true, true, 7, -1},
        {CLASSIFIER ", \"pad_token_id\": null, \"problem_type\": \"regression\"}", NULL, NULL, false, QR_SCORER_CLASSIFIER, false, false, -1, -1},
        {CLASSIFIER ", \"sentence_transformers\": {\"activation_fn\": \"torch.nn.modules.linear.Identity\"}}", NULL, NULL, false, QR_SCORER_CLASSIFIER, false,
         false, -1, -1},
        {CLASSIFIER ", \"sbert_ce_default_activation_function\": \"torch.nn.modules.activation.Sigmoid\"}", NULL, NULL, false, QR_SCORER_CLASSIFIER, true,
         false, -1, -1},
        {CAUSAL("Qwen3ForCausalLM") "}", NULL, NULL, false, QR_SCORER_NONE, false, false, -1, -1},
        {CAUSAL("Qwen3ForCausalLM") "}", NULL, NULL, true, QR_SCORER_YES_NO, true, false, -1, -1},
        {CAUSAL("Qwen3ForCausalLM") "}", STAGE("LogitScore"), "{\"true_token_id\": 5, \"false_token_id\": 6}", false, QR_SCORER_YES_NO, true, false, -1, 5},
        {CAUSAL("Qwen3ForCausalLM") "}", STAGE("Pooling"), "{}", false, QR_SCORER_NONE, false, false, -1, -1},
        {CAUSAL("Qwen3ForSequenceClassification") ", \"classifier_from_token\": [\"no\", \"yes\"], \"is_original_qwen3_reranker\": true}", NULL, NULL, false,
         QR_SCORER_YES_NO, true, false, -1, -1},
    };
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_scorer s;
        find(&s, t[i].config, t[i].modules, t[i].stage, t[i].asked);
        cr_expect(s.kind == t[i].kind && s.note[0] == 0, "%d: %d %s", i, (int)s.kind, s.note);
        if (s.kind != QR_SCORER_NONE)
            cr_expect(s.sigmoid == t[i].sigmoid && s.joined == t[i].joined && s.pad_id == t[i].pad && s.yes_id == t[i].yes, "%d", i);
        cr_expect((qr_scorer_name(&s) == NULL) == (s.kind == QR_SCORER_NONE));
    }
}

Test(scorer, what_is_not_computed_is_named)
{
    static const struct {
        const char *config, *modules, *stage, *word;
        bool asked;
    } t[] = {
        {CLASSIFIER ", \"sentence_transformers\": {\"activation_fn\": \"torch.nn.modules.activation.Tanh\"}}", NULL, NULL, "activation.Tanh", false},
        {CLASSIFIER ", \"sbert_ce_default_activation_function\": 5}", NULL, NULL, "activation", false},
        {CAUSAL("Qwen2ForSequenceClassification") ", \"classifier_from_token\": [\"0\", \"1\"], \"method\": \"from_2_way_softmax\"}", NULL, NULL,
         "classifier_from_token", false},
        {CAUSAL("Qwen3ForCausalLM") ", \"classifier_from_token\": [\"no\", \"yes\"]}", NULL, NULL, "is_original_qwen3_reranker", false},
        {CAUSAL("Qwen3ForCausalLM") ", \"classifier_from_token\": \"yes\", \"is_original_qwen3_reranker\": true}", NULL, NULL, "classifier_from_token", false},
        {CAUSAL("Qwen3ForCausalLM") "}", STAGE("LogitScore"), "{\"true_token_id\": 5}", "false_token_id", false},
        {CAUSAL("Qwen3ForCausalLM") "}", STAGE("LogitScore"), "{\"true_token_id\": -5, \"false_token_id\": 6}", "true_token_id", false},
        {CAUSAL("Qwen3ForCausalLM") "}", STAGE("LogitScore"), "[", "1_Stage/config.json", false},
        {CAUSAL("Qwen3Model") "}", NULL, NULL, "no head", true},
    };
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_scorer s;
        find(&s, t[i].config, t[i].modules, t[i].stage, t[i].asked);
        cr_expect(s.kind == QR_SCORER_NONE && strstr(s.note, t[i].word) != NULL, "%d: %d %s", i, (int)s.kind, s.note);
    }
}

Test(scorer, a_classifier_is_one_of_every_family_and_is_written_as_such)
{
    for (int a = 0; a < QR_ARCH_COUNT; a++) {
        char name[64];
        enum qr_arch found;
        enum qr_published as;
        qr_arch_name((enum qr_arch)a, name);
        char *tail = strstr(name, "For") ? strstr(name, "For") : strstr(name, "LMHead");
        cr_assert(tail != NULL, "%s", name);
        strcpy(tail, "ForSequenceClassification");
        cr_expect(qr_arch_find(&found, name, false, &as, NULL) && (int)found == a && as == QR_WITH_CLASSIFIER, "%s", name);
    }
    struct qr_model_config c;
    struct qr_buf text = {0};
    struct qr_err err = {0};
    cr_assert_eq(qr_hf_config_parse(&c, CLASSIFIER "}", strlen(CLASSIFIER "}"), NULL, 0, &err), 0, "%s", err.msg);
    cr_expect(c.classifier && c.headless && c.tied_head);
    qr_hf_config_write(&text, &c);
    cr_expect(strstr(text.data, "LlamaForSequenceClassification") != NULL, "%s", text.data);
    qr_buf_release(&text);
}
