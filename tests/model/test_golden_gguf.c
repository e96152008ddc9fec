/* GGUF files that llama.cpp's converter wrote of tiny random models of every family, against the logits that transformers computed in double for what was
 * converted (tools/golden/gguf.py): another program's names of tensors and keys, order of rows, and scaling of rotations.
 *
 * Tolerance: f32 sums of up to 64 products and up to seven layers of them: the worst seen is 3.9e-6 (Gemma 3, seven layers; 9e-7 of two) for logits of size
 * 1 to 3. */
#include "tests/model/rig.h"

#include "base/file.h"
#include "tests/golden_bytes.h"
#include "tests/model/golden_gguf.h"
#include "tests/temp.h"

#define TOLERANCE 1e-5

static void write_files(const struct golden_gguf *g, const char *dir)
{
    char path[512];
    struct qr_err err = {0};
    for (int i = 0; i < GOLDEN_PARTS && g->file[i].name; i++) {
        struct qr_buf bytes = {0};
        golden_bytes_put(&bytes, g->file[i].lines);
        snprintf(path, sizeof path, "%s/%s", dir, g->file[i].name);
        cr_assert_eq(qr_file_put(path, bytes.data, bytes.len, &err), 0, "%s", err.msg);
        qr_buf_release(&bytes);
    }
}

static double worst_difference(const struct golden_gguf *g, int32_t which, const char *dir, const char *isa)
{
    struct rig r;
    int32_t ids[GOLDEN_IDS];
    char path[512];
    double worst = 0;
    snprintf(path, sizeof path, "%s/%s", dir, g->file[0].name);
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
    char dir[64];
    struct qr_err err = {0};
    temp_dir_make(dir, "gguf");
    for (int32_t i = 0; i < QR_COUNT(golden); i++) {
        write_files(&golden[i], dir);
        for (int32_t l = 0; l < n_levels; l++) {
            const char *name = golden[i].file[0].name;
            const double worst = worst_difference(&golden[i], i, dir, names[l]);
            printf("%-7s %s: worst difference %.2e\n", names[l], name, worst);
            cr_expect_leq(worst, TOLERANCE, "%s, %s: %.3e", names[l], name, worst);
        }
    }
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}
