/* tune.h - the choices in kernels/cpu that are a matter of speed alone, and a table of what was measured to be best.
 *
 * Every kernel computes each output in one fixed order (kernels.h), so how a launch is cut into items, blocks and slices, how far ahead memory is
 * asked for and who takes part are free. `struct qr_tunables` names them; any values in their ranges give the same bits. A table holds those of
 * the shapes that were measured, for one instruction-set level and number of threads; it is kept in a file per processor model (tune_file.c).
 * Owned by the backend; written while no kernel runs, by worker 0; kernels only look up. Nothing outside kernels/ depends on a value.
 */
#ifndef QR_KERNELS_TUNE_H
#define QR_KERNELS_TUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "kernels/dtype.h"

/* 0 is the kernel's own choice, which may depend on the shape in ways that a number does not say. */
struct qr_tunables {
    int32_t items_per_thread; /* that a thread should find: fewer, larger items cost less, more of them end together */
    int32_t item_panels;      /* of 16 outputs, in one item at most */
    int32_t block_rows;       /* of a register block; tiles: 16 or 32 */
    int32_t slice_steps;      /* tiles of k that stay in the first-level cache */
    int32_t ahead_lines;      /* cache lines: how far ahead weights that are used once are asked for */
    int32_t chunk_rows;       /* of x that are packed at once */
    int32_t unit;             /* enum qr_tune_unit: what multiplies integers */
    int32_t spread;           /* enum qr_tune_spread: who multiplies or attends */
    int32_t pack_spread;      /* likewise, who packs x */
    int32_t queries;          /* rows times heads of a tile of attention */
    int32_t owned_rows;       /* that one thread takes through a chain of products; 1: chains are done product by product */
    int32_t item_elements;    /* of an item of the way of q, k, v to the cache */
};
enum qr_tune_unit { QR_UNIT_OWN, QR_UNIT_VECTORS, QR_UNIT_TILES };
enum qr_tune_spread { QR_SPREAD_OWN, QR_SPREAD_CALLER, QR_SPREAD_ALL };

/* What a tunable is called in files and reports, its range, and the values worth trying (0 ends them). */
struct qr_tune_field {
    const char *name;
    size_t offset; /* in struct qr_tunables */
    int32_t min, max;
    uint32_t uses; /* enum qr_tune_use: where it has an effect */
    int32_t tries[7];
};
enum qr_tune_use {
    QR_USE_VECTORS = 1,   /* products of vectors with f32 or bf16 weights */
    QR_USE_INTEGERS = 2,  /* of vectors, quantized activations */
    QR_USE_TILES = 4,     /* of tiles, more than two row tiles */
    QR_USE_TILES_FEW = 8, /* of tiles, fewer */
    QR_USE_EITHER = 16,   /* integers at a level that has tiles: vectors or tiles */
    QR_USE_ATTENTION = 32,
    QR_USE_CHAIN = 64,    /* of tiles, with more rows than a few */
};
#define QR_TUNE_FIELDS 12
extern const struct qr_tune_field qr_tune_fields[QR_TUNE_FIELDS];

/* *qr_tune_value(t, f): number f of qr_tune_fields. */
static inline int32_t *qr_tune_value(struct qr_tunables *t, int f)
{
    return (int32_t *)(void *)((char *)t + qr_tune_fields[f].offset);
}

/* What a launch looks like from outside. Linear: type of the packed weights, n_in, n_out, 0. Attention: type of the cache, query heads, kv heads,
 * head dim. Chain: its first product's type, n_in and n_out, and how many products. rows: QR_TUNE_BUCKETS in the order of qr_tune_bucket_rows. */
enum qr_tune_op { QR_TUNE_LINEAR, QR_TUNE_ATTENTION, QR_TUNE_CHAIN };
struct qr_tune_key {
    uint8_t op, type, bucket;
    int32_t a, b, c;
};
#define QR_TUNE_BUCKETS 6
extern const int32_t qr_tune_bucket_rows[QR_TUNE_BUCKETS]; /* the most rows of each bucket; INT32_MAX in the last */
int32_t qr_tune_bucket(int32_t n_rows);
bool qr_tune_same_key(const struct qr_tune_key *x, const struct qr_tune_key *y);

struct qr_tune; /* opaque: the table */

/* level: a name that lives as long as the process. */
struct qr_tune *qr_tune_new(const char *level, int32_t n_threads);
void qr_tune_free(struct qr_tune *t); /* NULL is fine */
const char *qr_tune_level(const struct qr_tune *t);
int32_t qr_tune_threads(const struct qr_tune *t);

struct qr_tune_shape {
    struct qr_tune_key key;
    struct qr_tunables value;
};
int32_t qr_tune_count(const struct qr_tune *t);               /* shapes in it; NULL has none */
struct qr_tune_shape *qr_tune_sorted(const struct qr_tune *t); /* all of them in the order of keys; qr_free it */

/* What is best for a launch; the defaults (all 0) where nothing is known, or t is NULL. About 10 ns. */
const struct qr_tunables *qr_tune_find(const struct qr_tune *t, struct qr_tune_key key);

/* Requires qr_tune_valid. Returns false when the table is full (QR_TUNE_SHAPES_MAX). */
#define QR_TUNE_SHAPES_MAX 4096
bool qr_tune_set(struct qr_tune *t, struct qr_tune_key key, const struct qr_tunables *value);
bool qr_tune_valid(const struct qr_tune_key *key, const struct qr_tunables *value); /* names something, and is in range */
void qr_tune_merge(struct qr_tune *t, const struct qr_tune *from); /* entries of `from` replace those of t */

/* enum qr_tune_use of a launch at the table's level; 0: nothing to choose. */
uint32_t qr_tune_uses(const struct qr_tune *t, struct qr_tune_key key);

/* "items_per_thread=12 queries=128", or "" for the defaults; cut at the end when too long. */
void qr_tune_describe(char *out, size_t size, const struct qr_tunables *value);

/* ---- as a file ---- */

/* Text: a line with the format's version and a checksum of the rest, one with the processor, one with level and threads, one for each shape. */
void qr_tune_format(struct qr_buf *out, const struct qr_tune *t, const char *processor);
/* The first line and `body` behind it (for tests, which put nonsense there). */
void qr_tune_seal(struct qr_buf *out, const char *body, size_t n_bytes);
/* All of it or nothing into t. Errors: QR_E_DAMAGED (any byte changed or missing), QR_E_UNSUPPORTED (another version, processor, level or number of
 * threads). */
int qr_tune_parse(struct qr_tune *t, const char *text, size_t n_bytes, const char *processor, struct qr_err *err);

/* The processor's vendor, family, model, stepping, name and caches, in one line. */
#define QR_PROCESSOR_MAX 160
void qr_processor_describe(char out[QR_PROCESSOR_MAX]);

/* Where tables are kept: ${XDG_CACHE_HOME:-$HOME/.cache}/quire. False when neither names an absolute directory. */
bool qr_tune_dir(char *out, size_t size);
bool qr_tune_make_dir(const char *dir); /* it, and those above it; false: errno says why not */
void qr_tune_path(char *out, size_t size, const char *dir, const struct qr_tune *t); /* DIR/tune-PROCESSOR-LEVEL-THREADS.txt */

/* Reads the file of this processor, t's level and threads. No such file is no error. Errors leave t as it is: QR_E_IO, QR_E_DAMAGED, QR_E_UNSUPPORTED. */
int qr_tune_load(struct qr_tune *t, const char *dir, struct qr_err *err);
/* Adds t's shapes to that file: as a whole, by renaming, so that no reader sees half of it; others that save at the same time lose nothing.
 * Makes the directory. Errors leave the file as it was: QR_E_IO; QR_E_BUSY when somebody holds the directory's lock for a second. */
int qr_tune_save(const struct qr_tune *t, const char *dir, struct qr_err *err);

#endif
