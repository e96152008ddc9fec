/* scorer.c - which models score pairs of texts, and by which weights (scorer.h).
 *
 * A classifier is one by its architecture. Qwen3-Reranker is recognised by what vLLM is told of it in config.json (classifier_from_token and
 * is_original_qwen3_reranker), or by the LogitScore stage that its publisher has beside it; else the command line says so.
 * Guarantee: weights have passed the checks of the model's own (weights.h).
 * Thread: any; qr_scorer_score only reads. */
#include "loader/config/scorer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"
#include "loader/config/pooling.h"
#include "loader/weights.h"

const char *const qr_scorer_word[QR_SCORER_WORDS] = {"no", "yes", "<|im_start|>", "<|im_end|>"};

/* ---- a classifier ---- */

/* Named as torch.nn.modules.activation.Sigmoid. Nothing is said: sigmoid, as of one label. */
static int read_activation(bool *sigmoid, const struct qr_json *config, struct qr_err *err)
{
    const struct qr_json *own = qr_json_find(qr_json_find(config, "sentence_transformers"), "activation_fn");
    const struct qr_json *older = qr_json_find(config, "sbert_ce_default_activation_function"), *v = qr_json_is_null(own) ? older : own;
    const char *text = qr_json_is_null(v) ? ".Sigmoid" : qr_json_text(v, NULL), *dot = text ? strrchr(text, '.') : NULL;
    *sigmoid = dot && strcmp(dot, ".Sigmoid") == 0;
    if (qr_json_says(qr_json_find(config, "problem_type"), "regression"))
        *sigmoid = false;
    else if (!*sigmoid && (!dot || strcmp(dot, ".Identity") != 0))
        return qr_err_set(err, QR_E_UNSUPPORTED, "config.json: the activation %.80s is not computed here, expected Identity or Sigmoid", text ? text : "");
    return 0;
}

static int read_classifier(struct qr_scorer *s, const struct qr_json *config, struct qr_err *err)
{
    const struct qr_json *apart = qr_json_find(config, "use_sep_token"), *pad = qr_json_find(config, "pad_token_id");
    int64_t id;
    s->joined = !qr_json_is_null(apart) && qr_json_type(apart) == QR_JSON_T_BOOL && !qr_json_bool(apart);
    if (!qr_json_is_null(pad) && qr_json_i64(pad, &id) && id >= 0 && id <= INT32_MAX)
        s->pad_id = (int32_t)id;
    s->kind = QR_SCORER_CLASSIFIER;
    return read_activation(&s->sigmoid, config, err);
}

/* ---- yes or no ---- */

static int read_overrides(bool *found, const struct qr_json *config, struct qr_err *err)
{
    const struct qr_json *tokens = qr_json_find(config, "classifier_from_token"), *original = qr_json_find(config, "is_original_qwen3_reranker");
    const struct qr_json *no = qr_json_is_null(tokens) ? NULL : qr_json_first(tokens), *yes = no ? qr_json_after(no) : NULL;
    if (qr_json_is_null(tokens))
        return 0;
    *found = yes && qr_json_count(tokens) == 2 && qr_json_says(no, "no") && qr_json_says(yes, "yes") && !qr_json_is_null(original) &&
             qr_json_type(original) == QR_JSON_T_BOOL && qr_json_bool(original);
    if (*found)
        return 0;
    return qr_err_set(err, QR_E_UNSUPPORTED, "config.json: classifier_from_token, expected [\"no\", \"yes\"] with is_original_qwen3_reranker true: of models "
                      "that answer with a word, only Qwen3-Reranker is known here");
}

static int read_id(int32_t *out, const struct qr_json *stage, const char *name, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(stage, name);
    int64_t id;
    if (qr_json_is_null(v) || !qr_json_i64(v, &id) || id < 0 || id > INT32_MAX)
        return qr_err_set(err, QR_E_UNSUPPORTED, "modules.json: the stage LogitScore has no %s, expected a token's id", name);
    *out = (int32_t)id;
    return 0;
}

static int read_stage(struct qr_scorer *s, bool *found, const struct qr_source *source, struct qr_err *err)
{
    struct qr_json *stage;
    int rc = qr_pooling_stage_find(&stage, qr_source_model(source), "LogitScore", err);
    if (rc || !stage)
        return rc;
    rc = read_id(&s->yes_id, stage, "true_token_id", err);
    rc = rc ? rc : read_id(&s->no_id, stage, "false_token_id", err);
    *found = rc == 0;
    qr_json_free(stage);
    return rc;
}

static int read_yes_no(struct qr_scorer *s, const struct qr_model_config *c, const struct qr_json *config, const struct qr_source *source, bool wanted,
                       struct qr_err *err)
{
    bool found = wanted;
    int rc = wanted ? 0 : read_overrides(&found, config, err);
    rc = rc || found || qr_source_gguf(source) ? rc : read_stage(s, &found, source, err);
    if (rc || !found)
        return rc;
    if (c->headless || c->logits_softcap > 0)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s %s: it cannot answer yes or no", c->arch_name, c->headless ? "has no head" : "caps its logits");
    s->kind = QR_SCORER_YES_NO;
    s->sigmoid = true;
    return 0;
}

/* ---- both ---- */

static int read_files(struct qr_scorer *s, const struct qr_source *source, bool yes_no, struct qr_err *err)
{
    struct qr_model_config c;
    struct qr_buf text = {0};
    struct qr_json *config = NULL;
    int rc = qr_model_config_from(&c, source, err);
    rc = rc ? rc : qr_hf_config_text(&text, source, err);
    if (rc == 0 && text.len > 0)
        rc = qr_json_parse_file(&config, text.data, text.len, &qr_json_limits_request, "config.json", err);
    if (rc == 0)
        rc = c.classifier ? read_classifier(s, config, err) : read_yes_no(s, &c, config, source, yes_no, err);
    qr_json_free(config);
    qr_buf_release(&text);
    return rc;
}

/* There are no scores, for this reason. */
static void give_up(struct qr_scorer *s, const struct qr_source *source, const struct qr_err *why)
{
    qr_scorer_release(s);
    snprintf(s->note, sizeof s->note, "%.*s", (int)sizeof s->note - 1, qr_without_path(why->msg, qr_source_model(source)));
}

void qr_scorer_find(struct qr_scorer *out, const struct qr_source *source, bool yes_no)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(source != NULL);
    struct qr_err err = {0};
    *out = (struct qr_scorer){.pad_id = -1, .no_id = -1, .yes_id = -1};
    if (read_files(out, source, yes_no, &err) != 0)
        give_up(out, source, &err);
}

static const struct qr_stored_tensor *find_rows(const struct qr_scorer *s, const struct qr_tensor_files *st, const struct qr_model_config *c)
{
    struct qr_weight_walk table = qr_weight_walk_begin(c); /* whose first row is the embedding */
    if (s->kind == QR_SCORER_CLASSIFIER || !c->tied_head)
        return qr_weights_find_named(st, c->arch, s->kind == QR_SCORER_CLASSIFIER ? "score.weight" : "lm_head.weight");
    const bool any = qr_weight_walk_next(&table);
    QR_ASSERT(any);
    return qr_weights_find_named(st, c->arch, table.row->name);
}

/* Of tensors that have been checked. */
static void read_rows(struct qr_scorer *s, const struct qr_tensor_files *st, const struct qr_model_config *c)
{
    const struct qr_stored_tensor *t = find_rows(s, st, c);
    const bool asked = s->kind == QR_SCORER_YES_NO;
    const float scale = !asked && c->logits_divisor > 0 ? c->logits_divisor : 1; /* as rows leave the last norm divided by it */
    QR_ASSERT(t != NULL && t->n_dims == 2 && t->shape[1] == c->n_embd);
    s->n_embd = c->n_embd;
    s->weight = qr_alloc((size_t)s->n_embd, sizeof *s->weight);
    qr_tensor_files_decode(st, t, s->weight, asked ? s->yes_id : 0, 1);
    float *no = asked ? qr_alloc((size_t)s->n_embd, sizeof *no) : NULL;
    if (no)
        qr_tensor_files_decode(st, t, no, s->no_id, 1);
    for (int32_t i = 0; i < s->n_embd; i++)
        s->weight[i] = (s->weight[i] - (no ? no[i] : 0)) * scale;
    qr_free(no);
}

static int check_words(struct qr_scorer *s, const struct qr_model_config *c, const int32_t id[QR_SCORER_WORDS], struct qr_err *err)
{
    if (s->kind != QR_SCORER_YES_NO)
        return 0;
    for (int i = 0; i < QR_SCORER_WORDS; i++)
        if (id[i] < 0 || id[i] >= c->n_vocab)
            return qr_err_set(err, QR_E_UNSUPPORTED, "the vocabulary has no token \"%s\", which Qwen3-Reranker needs", qr_scorer_word[i]);
    if (s->yes_id >= 0 && (s->yes_id != id[QR_SCORER_YES] || s->no_id != id[QR_SCORER_NO]))
        return qr_err_set(err, QR_E_UNSUPPORTED, "modules.json: the stage LogitScore compares tokens %d and %d, expected \"yes\" (%d) and \"no\" (%d): of "
                          "models that answer with a word, only Qwen3-Reranker is known here", s->yes_id, s->no_id, id[QR_SCORER_YES], id[QR_SCORER_NO]);
    s->yes_id = id[QR_SCORER_YES];
    s->no_id = id[QR_SCORER_NO];
    return 0;
}

static int load(struct qr_scorer *s, struct qr_source *source, const int32_t id[QR_SCORER_WORDS], struct qr_err *err)
{
    struct qr_model_config c;
    struct qr_tensor_files *st = NULL;
    int rc = qr_model_config_from(&c, source, err);
    rc = rc ? rc : check_words(s, &c, id, err);
    rc = rc ? rc : qr_tensor_files_open_from(&st, source, &c.quant, err);
    if (rc)
        return rc;
    qr_weights_fit(&c, st);
    rc = qr_weights_check(st, &c, err);
    if (rc == 0)
        read_rows(s, st, &c);
    for (int32_t i = 0; rc == 0 && i < s->n_embd; i++)
        if (!isfinite(s->weight[i]))
            rc = qr_err_set(err, QR_E_DAMAGED, "number %d of what makes scores is not finite", i);
    qr_tensor_files_close(st);
    return rc;
}

void qr_scorer_load(struct qr_scorer *s, struct qr_source *source, const int32_t id[QR_SCORER_WORDS])
{
    QR_ASSERT(s != NULL && s->weight == NULL);
    QR_ASSERT(s->kind != QR_SCORER_NONE && source != NULL);
    struct qr_err err = {0};
    if (load(s, source, id, &err) != 0)
        give_up(s, source, &err);
}

void qr_scorer_release(struct qr_scorer *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->weight == NULL || s->n_embd > 0);
    qr_free(s->weight);
    *s = (struct qr_scorer){.kind = QR_SCORER_NONE};
}

const char *qr_scorer_name(const struct qr_scorer *s)
{
    static const char *const name[] = {NULL, "a classifier of one label", "Qwen3-Reranker: the probability of \"yes\" against \"no\""};
    QR_ASSERT(s != NULL);
    QR_ASSERT((int)s->kind >= 0 && s->kind < (int)QR_COUNT(name));
    return name[s->kind];
}

double qr_scorer_score(const struct qr_scorer *s, const double *row, bool raw)
{
    QR_ASSERT(s != NULL && s->weight != NULL);
    QR_ASSERT(row != NULL);
    double sum = 0;
    for (int32_t i = 0; i < s->n_embd; i++)
        sum += (double)s->weight[i] * row[i];
    return s->sigmoid && !raw ? 1 / (1 + exp(-sum)) : sum;
}
