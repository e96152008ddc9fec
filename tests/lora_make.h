/* lora_make.h - PEFT's adapter directories with random matrices, for tests. */
#ifndef QR_TESTS_LORA_MAKE_H
#define QR_TESTS_LORA_MAKE_H

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "loader/adapters/lora.h"
#include "loader/write/safetensors_write.h"

struct lora_make {
    int32_t rank;
    double alpha;
    uint64_t seed;
    const char *only;     /* part of the names of matrices that are adapted; NULL: all of the layers */
    const char *settings; /* more of adapter_config.json: ", \"use_rslora\": true"; or NULL */
    enum qr_dtype dtype;  /* f32 (0) or bf16 */
    double size;          /* of A's and B's numbers; 0: 0.2 */
};

static inline void lora_put_matrix(struct qr_st_out *out, const struct qr_st_entry *e, struct qr_rng *r, double size)
{
    struct qr_err err = {0};
    const int64_t n = qr_st_entry_count(e);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)((qr_rng_unit(r->seed, 0, r->pos++) * 2 - 1) * size);
        const uint16_t half = qr_f32_to_bf16(x);
        const bool f32 = e->dtype == QR_F32;
        QR_ASSERT(qr_st_out_put(out, f32 ? (const void *)&x : (const void *)&half, f32 ? sizeof x : sizeof half, &err) == 0);
    }
}

/* Makes `dir` if need be; what is there is written over. */
static inline void lora_make(const char *dir, const struct qr_model_config *c, const struct lora_make *o)
{
    enum { MOST = 512 };
    struct qr_st_entry *entry = qr_alloc(MOST, sizeof *entry);
    char(*name)[QR_WEIGHT_NAME_MAX] = qr_alloc(MOST, sizeof *name), matrix[QR_WEIGHT_NAME_MAX], path[1024], config[1024];
    struct qr_err err = {0};
    int32_t n = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); qr_weight_walk_next(&k);) {
        int64_t shape[2];
        if (!k.row->per_layer || k.row->kind != QR_KIND_MATRIX || k.row->stacked || (o->only && !strstr(k.row->name, o->only)))
            continue;
        shape[0] = qr_dim_value(c, k.row->n_out);
        shape[1] = qr_dim_value(c, k.row->n_in);
        QR_ASSERT(n + 2 <= MOST);
        qr_lora_name(name[n], qr_weight_walk_name(matrix, &k), QR_LORA_A);
        qr_lora_name(name[n + 1], matrix, QR_LORA_B);
        entry[n] = (struct qr_st_entry){.name = name[n], .dtype = o->dtype, .n_dims = 2, .shape = {o->rank, shape[1]}};
        entry[n + 1] = (struct qr_st_entry){.name = name[n + 1], .dtype = o->dtype, .n_dims = 2, .shape = {shape[0], o->rank}};
        n += 2;
    }
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/" QR_LORA_CONFIG, dir);
    snprintf(config, sizeof config, "{\"peft_type\": \"LORA\", \"r\": %d, \"lora_alpha\": %.17g%s}\n", o->rank, o->alpha, o->settings ? o->settings : "");
    QR_ASSERT(qr_file_put(path, config, strlen(config), &err) == 0);
    snprintf(path, sizeof path, "%s/" QR_LORA_WEIGHTS, dir);
    remove(path);
    struct qr_st_out out;
    struct qr_rng r = {.seed = o->seed};
    QR_ASSERT(qr_st_out_open(&out, path, entry, n, NULL, 0, &err) == 0);
    for (int32_t i = 0; i < n; i++)
        lora_put_matrix(&out, &entry[i], &r, o->size > 0 ? o->size : 0.2);
    QR_ASSERT(qr_st_out_close(&out, false, &err) == 0);
    qr_free(entry);
    qr_free(name);
}

#endif
