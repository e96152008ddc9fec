/* data_rig.h - directories of prepared data for tests: random documents written, opened and removed. */
#ifndef QR_TESTS_TRAIN_DATA_RIG_H
#define QR_TESTS_TRAIN_DATA_RIG_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "train/data/data_writer.h"
#include "train/data/shards.h"
#include "tests/temp.h"

struct data_dir {
    char path[64];
};

static inline struct data_dir data_dir_make(void)
{
    struct data_dir d;
    temp_dir_make(d.path, "data");
    return d;
}

static inline void data_dir_remove(const struct data_dir *d)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", d->path);
    cr_assert_eq(system(command), 0);
}

static inline void data_dir_put(const char *dir, const char *name, const char *text, size_t n)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* Documents kept in memory to compare with. */
struct corpus {
    int32_t n_docs, vocab_size;
    int32_t n[64];
    int32_t *ids[64];
    bool *counts[64]; /* NULL: all count */
};

/* Lengths around `around`, some of them 1; with `masked` every other document has a mask, the fourth of them of nothing. */
static inline struct corpus corpus_make(int32_t n_docs, int32_t vocab_size, int32_t around, bool masked, uint64_t seed)
{
    struct corpus c = {.n_docs = n_docs, .vocab_size = vocab_size};
    struct qr_rng rng = {.seed = seed};
    for (int32_t d = 0; d < n_docs; d++) {
        c.n[d] = d % 7 == 3 ? 1 : d % 7 == 5 ? around : 1 + (int32_t)qr_rng_below(&rng, 3 * (uint32_t)around);
        c.ids[d] = qr_alloc((size_t)c.n[d], sizeof(int32_t));
        c.counts[d] = masked && d % 2 == 1 ? qr_alloc((size_t)c.n[d], sizeof(bool)) : NULL;
        for (int32_t i = 0; i < c.n[d]; i++) {
            c.ids[d][i] = (int32_t)qr_rng_below(&rng, (uint32_t)vocab_size);
            if (c.counts[d])
                c.counts[d][i] = d % 8 != 3 && qr_rng_below(&rng, 3) == 0;
        }
    }
    return c;
}

static inline void corpus_drop(struct corpus *c)
{
    for (int32_t d = 0; d < c->n_docs; d++) {
        qr_free(c->ids[d]);
        qr_free(c->counts[d]);
    }
}

static inline void corpus_write(const struct corpus *c, const char *dir, int64_t shard_tokens_max)
{
    struct qr_err err = {0};
    struct qr_data_writer *w = qr_data_writer_new(&(struct qr_data_writer_options){.dir = dir, .vocab_size = c->vocab_size, .tokenizer = 0x1234abcd,
                                                                                    .shard_tokens_max = shard_tokens_max});
    for (int32_t d = 0; d < c->n_docs; d++)
        cr_assert_eq(qr_data_writer_add(w, c->ids[d], c->counts[d], c->n[d], &err), 0, "%s", err.msg);
    cr_assert_eq(qr_data_writer_finish(w, &err), 0, "%s", err.msg);
    qr_data_writer_free(w);
}

static inline struct qr_shards *data_open(const char *dir)
{
    struct qr_err err = {0};
    struct qr_shards *s = NULL;
    cr_assert_eq(qr_shards_open(&s, dir, &err), 0, "%s", err.msg);
    return s;
}

#endif
