/* GGUF files that llama.cpp's converter wrote of tiny random models of every family, against the logits that transformers computed in double for what was
 * converted (tools/golden/gguf.py): another program's names of tensors and keys, order of rows, and scaling of rotations.
 *
 * Likewise adapters that its converter wrote of PEFT's, against llama.cpp's own logits with them (tools/golden/gguf_lora.py).
 *
 * Tolerance: f32 sums of up to 64 products and up to seven layers of them: the worst seen is 3.9e-6 (Gemma 3, seven layers; 9e-7 of two) for logits of size
 * 1 to 3. */
#include "tests/model/rig.h"

#include "model/lora.h"
#include "tests/model/golden_gguf.h"
#include "tests/model/golden_gguf_lora.h"

#define FILES QUIRE_SOURCE_DIR "/tests/model/gguf"
#define TOLERANCE 1e-5

static double worst_difference(const struct golden_gguf *g, int32_t which, const char *isa)
{
    struct rig r;
    int32_t ids[GOLDEN_IDS];
    char path[512];
    double worst = 0;
    snprintf(path, sizeof path, FILES "/%s", g->file);
    rig_open(&r, path, (struct rig_options){.isa = isa, .compute = QR_COMPUTE_F32});
    cr_assert_eq(rig_vocab(&r), GOLDEN_VOCAB);
    for (int32_t i = 0; i < GOLDEN_IDS; i++)
        ids[i] = (1 + 37 * i * (which + 1) + i * i) % GOLDEN_VOCAB;
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *all = rig_prompt(&r, &s, ids, GOLDEN_IDS, 13);
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < GOLDEN_VOCAB; i++)
            worst = fmax(worst, fabs((double)all[(k == 0 ? GOLDEN_IDS / 2 : GOLDEN_IDS - 1) * GOLDEN_VOCAB + i] - g->logit[k][i]));
    qr_free(all);
    rig_seq_free(&s);
    rig_close(&r);
    return worst;
}

Test(golden_gguf, files_of_another_converter_give_the_logits_of_what_was_converted_on_every_level)
{
    const char *names[8];
    const int32_t n_levels = levels(names);
    for (int32_t i = 0; i < QR_COUNT(golden); i++) {
        for (int32_t l = 0; l < n_levels; l++) {
            const char *name = golden[i].file;
            const double worst = worst_difference(&golden[i], i, names[l]);
            printf("%-7s %s: worst difference %.2e\n", names[l], name, worst);
            cr_expect_leq(worst, TOLERANCE, "%s, %s: %.3e", names[l], name, worst);
        }
    }
}

/* ---- adapters ---- */

static int32_t model_of(const struct golden_lora *g)
{
    const size_t n = strlen(g->model);
    for (int32_t i = 0; i < QR_COUNT(golden); i++)
        if (strncmp(golden[i].file, g->model, n) == 0 && strchr(".-", golden[i].file[n]))
            return i;
    cr_assert_fail("no model %s", g->model);
    return -1;
}

/* Both forms of it. */
static struct qr_lora *open_adapters(const struct rig *r, const char *name)
{
    struct qr_err err = {0};
    struct qr_lora *l;
    char dir[512], file[600];
    snprintf(dir, sizeof dir, FILES "/lora/%s", name);
    snprintf(file, sizeof file, "%s/adapter.gguf", dir);
    const char *const path[] = {file, dir};
    cr_assert_eq(qr_lora_open(&l, r->model, r->be, path, 2, GOLDEN_IDS, &err), 0, "%s", err.msg);
    return l;
}

static float *run_adapter(struct rig *r, int32_t adapter, int32_t which)
{
    int32_t ids[GOLDEN_IDS];
    for (int32_t i = 0; i < GOLDEN_IDS; i++)
        ids[i] = (1 + 37 * i * (which + 1) + i * i) % GOLDEN_VOCAB;
    struct rig_seq s = rig_seq_new(r, 0, NULL);
    s.adapter = adapter;
    float *all = rig_prompt(r, &s, ids, GOLDEN_IDS, 13);
    rig_seq_free(&s);
    return all;
}

static void check_adapter(const struct golden_lora *g, const char *isa)
{
    struct rig r;
    char path[512];
    double worst = 0;
    const int32_t which = model_of(g);
    const size_t n_bytes = (size_t)GOLDEN_IDS * GOLDEN_VOCAB * sizeof(float);
    snprintf(path, sizeof path, FILES "/%s", golden[which].file);
    rig_open(&r, path, (struct rig_options){.isa = isa, .compute = QR_COMPUTE_F32});
    struct qr_lora *lora = open_adapters(&r, g->model);
    r.exec.lora = lora;
    float *gguf = run_adapter(&r, 1, which), *peft = run_adapter(&r, 2, which), *bare = run_adapter(&r, 0, which);
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < GOLDEN_VOCAB; i++)
            worst = fmax(worst, fabs((double)gguf[(k == 0 ? GOLDEN_IDS / 2 : GOLDEN_IDS - 1) * GOLDEN_VOCAB + i] - g->logit[k][i]));
    printf("%-7s %s with an adapter: worst difference %.2e\n", isa, g->model, worst);
    cr_expect_leq(worst, TOLERANCE, "%s, %s: %.3e", isa, g->model, worst);
    cr_expect(memcmp(gguf, peft, n_bytes) == 0, "%s, %s: PEFT's files and the one made of them differ", isa, g->model);
    cr_expect(memcmp(gguf, bare, n_bytes) != 0, "%s, %s: the adapter changes nothing", isa, g->model);
    qr_free(gguf);
    qr_free(peft);
    qr_free(bare);
    qr_lora_free(lora);
    rig_close(&r);
}

Test(golden_gguf, adapters_of_llama_cpp_give_its_logits_and_the_bits_of_what_they_were_made_from)
{
    const char *names[8];
    const int32_t n_levels = levels(names);
    for (int32_t i = 0; i < QR_COUNT(golden_lora); i++)
        for (int32_t l = 0; l < n_levels; l++)
            check_adapter(&golden_lora[i], names[l]);
}
