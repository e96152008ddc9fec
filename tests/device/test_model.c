/* A model on a device whose memory the host cannot reach computes the bits that the same kernels compute on the processor. */
#include "tests/device/device.h"
#include "tests/model/rig.h"

enum { N_IDS = 40, N_NEXT = 3, SEED = 5 };

/* A prompt in chunks beside another sequence that has blocks in any order, then tokens of both together. */
static float *play(struct rig *r, const int32_t *ids)
{
    struct qr_rng rng = {.seed = SEED};
    struct rig_seq a = rig_seq_new(r, 3, NULL), b = rig_seq_new(r, 0, &rng);
    const size_t v = (size_t)rig_vocab(r);
    float *all = qr_alloc((N_IDS + 2 * N_NEXT) * v, sizeof *all), *part = rig_prompt(r, &a, ids, N_IDS, 17);
    memcpy(all, part, N_IDS * v * sizeof *all);
    qr_free(part);
    qr_free(rig_step(r, &(struct rig_item){&b, ids + 2, N_IDS - 9, RIG_NONE}, 1));
    for (int32_t i = 0; i < N_NEXT; i++) {
        const struct rig_item both[2] = {{&b, ids + i, 1, RIG_LAST}, {&a, ids + 5 + i, 1, RIG_LAST}};
        part = rig_step(r, both, 2);
        memcpy(all + (size_t)(N_IDS + 2 * i) * v, part, 2 * v * sizeof *all);
        qr_free(part);
    }
    rig_seq_free(&a);
    rig_seq_free(&b);
    return all;
}

/* The device's logits are the processor's; offset: the file's tensors begin at odd bytes. */
static void same(const struct temp_model *t, struct rig_options o)
{
    struct rig cpu, device;
    struct qr_rng rng = {.seed = SEED};
    o.n_blocks = 24;
    rig_open(&cpu, t->dir, o);
    o.device = "cuda";
    o.isa = NULL;
    rig_open(&device, t->dir, o);
    cr_assert_str_eq(device.be->name, "cuda");
    int32_t *ids = random_ids(&rng, N_IDS, rig_vocab(&cpu));
    float *x = play(&cpu, ids), *y = play(&device, ids);
    const size_t n = (size_t)(N_IDS + 2 * N_NEXT) * (size_t)rig_vocab(&cpu);
    for (size_t i = 0; i < n; i++)
        cr_assert(memcmp(&x[i], &y[i], sizeof *x) == 0, "logit %zu of %zu: %g on the processor, %g on the device", i, n, (double)x[i], (double)y[i]);
    qr_free(x), qr_free(y), qr_free(ids);
    rig_close(&device);
    rig_close(&cpu);
}

Test(model, is_computed_by_a_device_that_the_host_cannot_look_into)
{
    static const enum qr_arch arch[] = {QR_ARCH_LLAMA, QR_ARCH_MISTRAL, QR_ARCH_QWEN2, QR_ARCH_QWEN3, /* biases, norms of heads, windows, tied heads, */
                                        QR_ARCH_GEMMA2, QR_ARCH_GEMMA3, QR_ARCH_GPT2,                      /* caps, two rotations, positions in a table, */
                                        QR_ARCH_OLMO3};                                                   /* norms of whole rows */
    use_discrete("ref", NULL);
    for (int a = 0; a < QR_COUNT(arch); a++)
        for (int tied = 0; tied < 2; tied++) {
            struct qr_model_config c = qr_model_config_small(arch[a]);
            c.tied_head = tied;
            struct temp_model t = temp_model_make(&c, QR_BF16);
            same(&t, (struct rig_options){.isa = "ref"});
            same(&t, (struct rig_options){.isa = "ref", .plain = true});
            if (a == 0)
                same(&t, (struct rig_options){.isa = "ref", .compute = QR_COMPUTE_F32});
            temp_model_remove(&t);
        }
}

Test(model, is_rounded_to_integers_on_its_way_to_a_device)
{
    use_discrete("ref", NULL);
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp_model t = temp_model_make(&c, QR_F16);
    same(&t, (struct rig_options){.isa = "ref", .quantize = QR_QUANTIZE_INT8});
    same(&t, (struct rig_options){.isa = "ref", .quantize = QR_QUANTIZE_INT4, .kv_cache = QR_KV_CACHE_INT8});
    temp_model_remove(&t);
}

/* With the level that packs into panels and computes layers in chains. */
Test(model, is_computed_by_a_device_with_the_fastest_kernels)
{
    const char *names[8];
    const char *best = names[qr_cpu_levels(names) - 1];
    use_discrete(best, NULL);
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3);
    struct temp_model t = temp_model_make(&c, QR_BF16);
    same(&t, (struct rig_options){.isa = best, .n_threads = 1});
    temp_model_remove(&t);
}
