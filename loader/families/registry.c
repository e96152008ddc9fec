/* registry.c - finding a family by the names that files have, and naming one in files.
 *
 * A family's number is its place in registry.h's list; several families share a name in GGUF files.
 * Guarantee: of families with one GGUF name, the one that has experts, or has none, as the file does.
 * Thread: any; rows are constants. */
#include "loader/families/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/option.h"
#include "loader/families/family.h"

#define N_NAMES 2
#define NAMES_MAX (N_NAMES * QR_ARCH_COUNT)

#define ROW_OF(NUMBER, file) &qr_family_##file,
static const struct qr_family *const families[] = {QR_FAMILIES(ROW_OF)};

const struct qr_family *qr_family_of(enum qr_arch arch)
{
    QR_ASSERT((int)arch >= 0);
    QR_ASSERT(arch < QR_ARCH_COUNT);
    return families[arch];
}

/* ---- Hugging Face ---- */

void qr_arch_name(enum qr_arch arch, char text[64])
{
    QR_ASSERT(text != NULL);
    snprintf(text, 64, "%s", qr_family_of(arch)->name[0].architecture);
}

/* The family in a name: "Qwen3" of "Qwen3ForCausalLM". */
static const char *stem_of(char text[64], const char *name)
{
    static const char *const tails[] = {"ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSequenceClassification", "Model"};
    size_t n = strlen(name);
    for (int i = 0; i < QR_COUNT(tails); i++) {
        const char *tail = strstr(name, tails[i]);
        n = tail && (size_t)(tail - name) < n ? (size_t)(tail - name) : n;
    }
    snprintf(text, 64, "%.*s", (int)(n < 63 ? n : 63), name);
    return text;
}

const char *qr_family_published_name(char text[64], const struct qr_family *f, int i, enum qr_published as)
{
    QR_ASSERT(text != NULL && f != NULL);
    QR_ASSERT(i >= 0 && i < N_NAMES && as < QR_PUBLISHED_COUNT);
    char stem[64];
    if (as == QR_WITH_HEAD || (as == QR_WITHOUT_HEAD && f->name[i].headless))
        snprintf(text, 64, "%s", as == QR_WITH_HEAD ? f->name[i].architecture : f->name[i].headless);
    else
        snprintf(text, 64, "%.32s%s", stem_of(stem, f->name[i].architecture), as == QR_WITHOUT_HEAD ? "Model" : "ForSequenceClassification");
    return text;
}

/* Whether name number i of a family is meant, and as what it is published. */
static bool is_called(enum qr_published *as, const struct qr_family *f, int i, const char *name)
{
    char text[64];
    for (int k = 0; k < QR_PUBLISHED_COUNT; k++) {
        *as = (enum qr_published)k;
        if (strcmp(name, qr_family_published_name(text, f, i, *as)) == 0)
            return true;
    }
    return false;
}

bool qr_arch_find(enum qr_arch *out, const char *name, bool by_type, enum qr_published *as, char model[64])
{
    QR_ASSERT(out != NULL && name != NULL);
    QR_ASSERT(as != NULL);
    for (int a = 0; a < QR_ARCH_COUNT; a++)
        for (int i = 0; i < N_NAMES && families[a]->name[i].architecture; i++) {
            const struct qr_family *f = families[a];
            *as = QR_WITH_HEAD;
            if (by_type ? strcmp(name, f->name[i].model_type) != 0 : !is_called(as, f, i, name))
                continue;
            if (model)
                qr_family_published_name(model, f, *as == QR_WITH_HEAD ? 0 : i, *as);
            *out = (enum qr_arch)a;
            return true;
        }
    return false;
}

enum qr_arch qr_arch_of_type(const char *model_type)
{
    enum qr_arch arch = QR_ARCH_COUNT;
    enum qr_published as;
    const bool found = qr_arch_find(&arch, model_type, true, &as, NULL);
    QR_ASSERT(found);
    return arch;
}

/* Names of config.json, or of GGUF files, each once. Returns how many. */
static int32_t list_names(const char *name[NAMES_MAX], bool gguf)
{
    int32_t n = 0;
    for (int a = 0; a < QR_ARCH_COUNT; a++)
        for (int i = 0; i < N_NAMES; i++) {
            const char *own = gguf ? families[a]->gguf : families[a]->name[i].architecture;
            bool known = !own;
            for (int32_t k = 0; k < n && !known; k++)
                known = strcmp(name[k], own) == 0;
            if (!known)
                name[n++] = own;
        }
    return n;
}

int qr_arch_refuse(struct qr_err *err, const char *where, const char *found, const char *more, bool gguf)
{
    QR_ASSERT(err != NULL && where != NULL);
    QR_ASSERT(found != NULL && more != NULL);
    char stem[NAMES_MAX][64], own[64];
    const char *known[NAMES_MAX], *name[NAMES_MAX], *near = NULL;
    const int32_t n = list_names(name, gguf);
    struct qr_buf all = {0};
    for (int32_t i = 0; i < n; i++) {
        known[i] = stem_of(stem[i], name[i]);
        qr_buf_printf(&all, "%s%s", i ? ", " : "", name[i]);
    }
    const char *spelt = qr_nearest(stem_of(own, found), known, n);
    for (int32_t i = 0; i < n && !near; i++)
        if (spelt ? known[i] == spelt : strncmp(own, known[i], strlen(known[i])) == 0)
            near = name[i];
    qr_err_set(err, QR_E_UNSUPPORTED, "%s is \"%.80s\"%s%s%s, expected one of %s", where, found, more,
               near ? "; the closest that is supported is " : "", near ? near : "", all.data);
    qr_buf_release(&all);
    return QR_E_UNSUPPORTED;
}

struct qr_family_fields qr_family_fields(const struct qr_family *f)
{
    QR_ASSERT(f != NULL);
    const struct qr_family_fields own = f->field;
    return (struct qr_family_fields){
        .layers = own.layers ? own.layers : "num_hidden_layers",
        .width = own.width ? own.width : "hidden_size",
        .heads = own.heads ? own.heads : "num_attention_heads",
        .ffn = own.ffn ? own.ffn : "intermediate_size",
        .ctx = own.ctx ? own.ctx : "max_position_embeddings",
        .eps = own.eps ? own.eps : "rms_norm_eps",
        .act = own.act ? own.act : "hidden_act",
    };
}

void qr_family_flags(struct qr_model_config *c, const struct qr_family *f)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(f != NULL);
    c->act = f->act;
    c->clamp = f->clamp;
    c->sinks = f->sinks;
    c->layer_norm = f->layer_norm;
    c->post_norms = f->post_norms;
    c->ungated = f->ungated;
    c->qk_norm_rows = f->qk_norm_rows;
    c->local_theta = f->local_theta;
}

float qr_family_embed_scale(int32_t width, bool as_bf16)
{
    QR_ASSERT(width > 0);
    const float root = (float)sqrt((double)width);
    return as_bf16 ? qr_bf16_to_f32(qr_f32_to_bf16(root)) : root;
}

/* ---- GGUF ---- */

bool qr_arch_find_gguf(enum qr_arch *out, const char *name, bool experts)
{
    QR_ASSERT(out != NULL && name != NULL);
    bool found = false;
    for (int a = 0; a < QR_ARCH_COUNT; a++) {
        if (!families[a]->gguf || strcmp(families[a]->gguf, name) != 0)
            continue;
        const bool exactly = (families[a]->experts != NULL) == experts;
        *out = exactly || !found ? (enum qr_arch)a : *out;
        found = true;
        if (exactly)
            break;
    }
    return found;
}

const struct qr_family *qr_family_in_gguf(const char *name)
{
    enum qr_arch arch;
    return qr_arch_find_gguf(&arch, name, true) ? families[arch] : NULL;
}

const char *qr_family_expert_name(const struct qr_family *f, const char *gguf_stem, const char **stem)
{
    QR_ASSERT(gguf_stem != NULL);
    const struct qr_family_experts *e = f ? f->experts : NULL;
    if (!e)
        return NULL;
    *stem = e->stem ? e->stem : "mlp.experts";
    if (strcmp(gguf_stem, "ffn_gate_exps") == 0)
        return e->gate ? e->gate : "gate_proj";
    if (strcmp(gguf_stem, "ffn_up_exps") == 0)
        return e->up ? e->up : "up_proj";
    return strcmp(gguf_stem, "ffn_down_exps") != 0 ? NULL : e->down ? e->down : "down_proj";
}
