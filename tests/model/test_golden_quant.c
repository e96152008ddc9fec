/* stories260K, a trained model, with quantized weights and int8 caches, against logits that tools/golden/quant_model.py computed from the texts of
 * kernels.h and quant.h alone.
 *
 * Tolerance: the golden's prompts have no activation that f32 could round to another integer, so the integers are the same and what differs is f32's
 * error in norms, attention, units and scales: 1e-4, as without quantization (test_golden_stories.c). Where inputs are rounded to bf16 the golden
 * says what those within two units in the last place of a tie may add; for int8 caches, twice what queries and probabilities of 16 bits (tiles) add. */
#include "tests/model/rig.h"

#include "tests/model/golden_quant_model.h"

#define TOLERANCE 1e-4

static double worst_difference(int32_t which, const char *isa, const char *dir)
{
    struct rig r;
    rig_open(&r, dir, (struct rig_options){.isa = isa, .n_threads = 2, .compute = QR_COMPUTE_F32, .quantize = golden[which].quantize,
                                           .kv_cache = golden[which].int8_cache ? QR_KV_CACHE_INT8 : QR_KV_CACHE_F32});
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    const int32_t v = rig_vocab(&r);
    float *all = rig_prompt(&r, &s, golden[which].ids, GOLDEN_IDS, GOLDEN_IDS), *last = all + (size_t)(GOLDEN_IDS - 1) * (size_t)v;
    double worst = fabs(log_sum_exp(last, v) - golden[which].lse);
    for (int32_t i = 0; i < GOLDEN_SHOWN; i++)
        worst = fmax(worst, fabs((double)last[golden[which].first + i * GOLDEN_STEP] - golden[which].logit[i]));
    qr_free(all);
    rig_seq_free(&s);
    rig_close(&r);
    return worst;
}

Test(golden_quant, logits_of_every_format_equal_the_golden_on_every_level)
{
    char dir[1024];
    const char *names[8];
    const int32_t n_levels = levels(names);
    snprintf(dir, sizeof dir, "%s/models/stories260K", data_dir());
    for (int32_t l = 0; l < n_levels; l++)
        for (int32_t i = 0; i < QR_COUNT(golden); i++) {
            const double worst = worst_difference(i, names[l], dir);
            const double allowed = TOLERANCE + golden[i].slack;
            printf("%-7s format %2d%s: worst difference %.2e of %.2e\n", names[l], (int)golden[i].quantize, golden[i].int8_cache ? ", int8 cache" : "", worst,
                   allowed);
            cr_expect_leq(worst, allowed, "%s, format %d, case %d: %.3e", names[l], (int)golden[i].quantize, i, worst);
        }
}

/* Each format has its own golden: none is met by the logits of another one. Formats whose groups hold the same weights may agree. */
Test(golden_quant, logits_without_quantization_do_not_equal_the_golden_of_any_format)
{
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/models/stories260K", data_dir());
    for (int32_t i = 0; i < QR_COUNT(golden); i++) {
        if (golden[i].quantize == QR_QUANTIZE_NONE)
            continue;
        struct rig r;
        rig_open(&r, dir, (struct rig_options){.compute = QR_COMPUTE_F32});
        struct rig_seq s = rig_seq_new(&r, 0, NULL);
        const int32_t v = rig_vocab(&r);
        float *all = rig_prompt(&r, &s, golden[i].ids, GOLDEN_IDS, GOLDEN_IDS);
        double worst = 0;
        for (int32_t k = 0; k < GOLDEN_SHOWN; k++)
            worst = fmax(worst, fabs((double)all[(GOLDEN_IDS - 1) * v + golden[i].first + k * GOLDEN_STEP] - golden[i].logit[k]));
        cr_expect_gt(worst, TOLERANCE + golden[i].slack, "format %d: %.3e", (int)golden[i].quantize, worst);
        qr_free(all);
        rig_seq_free(&s);
        rig_close(&r);
    }
}
