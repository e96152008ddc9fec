/* gguf.c - opens a GGUF container: header, keys, table of tensors. Opening reads every count, length and offset once,
 * bounds it by the bytes that are there, and refuses overlapping tensors. Behind that nothing is checked again: readers
 * of keys and tensors trust the table. Nothing is copied from the file. The lists are the container's own; it is
 * immutable once open, so any thread may read. */
#include "base/files/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"

#define HEADER_BYTES 24
#define KEY_BYTES_MIN 13     /* length, kind, one byte of value */
#define TENSOR_BYTES_MIN 33  /* length, a name of one byte, number of dimensions, one of them, type, offset; rounded down */
#define KEY_NAME_MAX 65535   /* the format's limit */
#define NESTED_MAX 4         /* arrays of arrays */
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MAX (1 << 20)

struct qr_gguf {
    const uint8_t *bytes;        /* borrowed */
    size_t n_bytes;
    char *file;                  /* owned */
    int32_t version;
    struct qr_gguf_key *key;     /* owned [n_keys] */
    struct qr_gguf_tensor *tensor; /* owned [n_tensors] */
    int32_t n_keys, n_tensors;
    struct qr_map key_of, tensor_of;
};

static const struct qr_gguf_layout layouts[] = {
    [QR_GGUF_T_F32] = {"F32", 1, 4}, [QR_GGUF_T_F16] = {"F16", 1, 2}, [QR_GGUF_T_BF16] = {"BF16", 1, 2}, [QR_GGUF_T_F64] = {"F64", 1, 8},
    [QR_GGUF_T_I8] = {"I8", 1, 1}, [QR_GGUF_T_I16] = {"I16", 1, 2}, [QR_GGUF_T_I32] = {"I32", 1, 4}, [QR_GGUF_T_I64] = {"I64", 1, 8},
    [QR_GGUF_T_Q4_0] = {"Q4_0", 32, 18}, [QR_GGUF_T_Q4_1] = {"Q4_1", 32, 20}, [QR_GGUF_T_Q5_0] = {"Q5_0", 32, 22}, [QR_GGUF_T_Q5_1] = {"Q5_1", 32, 24},
    [QR_GGUF_T_Q8_0] = {"Q8_0", 32, 34}, [QR_GGUF_T_Q8_1] = {"Q8_1", 32, 36}, [QR_GGUF_T_MXFP4] = {"MXFP4", 32, 17}, [QR_GGUF_T_IQ4_NL] = {"IQ4_NL", 32, 18},
    [QR_GGUF_T_Q2_K] = {"Q2_K", 256, 84}, [QR_GGUF_T_Q3_K] = {"Q3_K", 256, 110}, [QR_GGUF_T_Q4_K] = {"Q4_K", 256, 144}, [QR_GGUF_T_Q5_K] = {"Q5_K", 256, 176},
    [QR_GGUF_T_Q6_K] = {"Q6_K", 256, 210}, [QR_GGUF_T_Q8_K] = {"Q8_K", 256, 292}, [QR_GGUF_T_IQ4_XS] = {"IQ4_XS", 256, 136},
    [QR_GGUF_T_IQ2_XXS] = {"IQ2_XXS", 256, 66}, [QR_GGUF_T_IQ2_XS] = {"IQ2_XS", 256, 74}, [QR_GGUF_T_IQ2_S] = {"IQ2_S", 256, 82},
    [QR_GGUF_T_IQ3_XXS] = {"IQ3_XXS", 256, 98}, [QR_GGUF_T_IQ3_S] = {"IQ3_S", 256, 110}, [QR_GGUF_T_IQ1_S] = {"IQ1_S", 256, 50},
    [QR_GGUF_T_IQ1_M] = {"IQ1_M", 256, 56}, [QR_GGUF_T_TQ1_0] = {"TQ1_0", 256, 54}, [QR_GGUF_T_TQ2_0] = {"TQ2_0", 256, 66},
    [QR_GGUF_T_NVFP4] = {"NVFP4", 64, 36}, [QR_GGUF_T_Q1_0] = {"Q1_0", 128, 18}, [QR_GGUF_T_Q2_0] = {"Q2_0", 64, 18},
};

static const struct {
    const char *name;
    uint8_t bytes; /* 0: not of one size */
} kinds[QR_GGUF_KIND_COUNT] = {
    {"u8", 1}, {"i8", 1}, {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8},
    {"f64", 8},
};

const struct qr_gguf_layout *qr_gguf_layout(uint32_t type)
{
    if (type >= (uint32_t)QR_COUNT(layouts) || !layouts[type].name)
        return NULL;
    QR_ASSERT(layouts[type].elements > 0 && layouts[type].bytes > 0);
    return &layouts[type];
}

/* ---- reading ---- */

struct reader {
    struct qr_gguf *g;
    uint64_t at;
    const struct qr_gguf_text *key; /* whose value is being read; NULL: none */
    struct qr_err *err;
};

static uint64_t left(const struct reader *r)
{
    return r->g->n_bytes - r->at;
}

/* A name as messages show it: what is not printable ASCII becomes '?'. */
static const char *shown(char out[72], struct qr_gguf_text t)
{
    size_t n = t.n < 64 ? (size_t)t.n : 64;
    for (size_t i = 0; i < n; i++)
        out[i] = t.at[i] >= 0x20 && t.at[i] < 0x7f ? t.at[i] : '?';
    snprintf(out + n, 72 - n, "%s", t.n > 64 ? "..." : "");
    return out;
}

/* Every message says where in the file the thing stands. */
static int refuse(struct reader *r, enum qr_code code, uint64_t at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int refuse(struct reader *r, enum qr_code code, uint64_t at, const char *fmt, ...)
{
    char what[400], name[72];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return qr_err_set(r->err, code, "%s: byte %" PRIu64 ": %s%s%s%s", r->g->file, at, r->key ? "key " : "", r->key ? shown(name, *r->key) : "",
                      r->key ? ": " : "", what);
}

static int need(struct reader *r, uint64_t n, const char *what)
{
    if (n <= left(r))
        return 0;
    return refuse(r, QR_E_DAMAGED, r->at, "the file ends inside %s: %" PRIu64 " bytes are needed, %" PRIu64 " are left", what, n, left(r));
}

static int read_u32(struct reader *r, uint32_t *out, const char *what)
{
    int rc = need(r, 4, what);
    if (rc)
        return rc;
    memcpy(out, r->g->bytes + r->at, 4);
    r->at += 4;
    return 0;
}

static int read_u64(struct reader *r, uint64_t *out, const char *what)
{
    int rc = need(r, 8, what);
    if (rc)
        return rc;
    memcpy(out, r->g->bytes + r->at, 8);
    r->at += 8;
    return 0;
}

static int read_text(struct reader *r, struct qr_gguf_text *out, uint64_t most, const char *what)
{
    const uint64_t at = r->at;
    uint64_t n;
    int rc = read_u64(r, &n, what);
    if (rc)
        return rc;
    if (n > most)
        return refuse(r, QR_E_TOO_LARGE, at, "%s has %" PRIu64 " bytes, expected at most %" PRIu64, what, n, most);
    if ((rc = need(r, n, what)))
        return rc;
    *out = (struct qr_gguf_text){.at = (const char *)r->g->bytes + r->at, .n = n};
    r->at += n;
    return 0;
}

static int skip_value(struct reader *r, enum qr_gguf_kind kind, uint64_t count, int depth);

/* Behind the kind and count of an array. */
static int skip_array(struct reader *r, int depth)
{
    const uint64_t at = r->at;
    uint32_t of;
    uint64_t count;
    int rc = read_u32(r, &of, "an array's kind");
    rc = rc ? rc : read_u64(r, &count, "an array's count");
    if (rc)
        return rc;
    if (of >= QR_GGUF_KIND_COUNT)
        return refuse(r, QR_E_DAMAGED, at, "an array of kind %" PRIu32 ", expected 0 to %d", of, QR_GGUF_KIND_COUNT - 1);
    if (of == QR_GGUF_ARRAY && depth == NESTED_MAX)
        return refuse(r, QR_E_TOO_LARGE, at, "arrays in arrays, more than %d deep", NESTED_MAX);
    return skip_value(r, (enum qr_gguf_kind)of, count, depth + 1);
}

/* Texts that lie inside the file, at most `count`; returns how many. A vocabulary has 100,000: a call for each would be a third of a small model's opening. */
static uint64_t skip_texts(struct reader *r, uint64_t count)
{
    const uint8_t *bytes = r->g->bytes;
    uint64_t i = 0, at = r->at, rest = left(r);
    for (; i < count && rest >= 8; i++) {
        uint64_t n;
        memcpy(&n, bytes + at, 8);
        if (n > rest - 8)
            break;
        at += 8 + n;
        rest -= 8 + n;
    }
    r->at = at;
    return i;
}

/* `count` values of a kind, all inside the file. */
static int skip_value(struct reader *r, enum qr_gguf_kind kind, uint64_t count, int depth)
{
    const uint64_t size = kinds[kind].bytes;
    struct qr_gguf_text text;
    int rc = 0;
    if (size > 0) {
        if (count > left(r) / size)
            return refuse(r, QR_E_DAMAGED, r->at, "%" PRIu64 " values of kind %s do not fit into the %" PRIu64 " bytes that are left", count, kinds[kind].name,
                          left(r));
        r->at += count * size;
        return 0;
    }
    if (count > left(r) / 8)
        return refuse(r, QR_E_DAMAGED, r->at, "%" PRIu64 " values of kind %s do not fit into the %" PRIu64 " bytes that are left", count, kinds[kind].name,
                      left(r));
    for (uint64_t i = kind == QR_GGUF_STRING ? skip_texts(r, count) : 0; i < count && !rc; i++) /* the first text that is not whole is what is wrong */
        rc = kind == QR_GGUF_STRING ? read_text(r, &text, UINT64_MAX, "a string") : skip_array(r, depth);
    return rc;
}

/* ---- metadata ---- */

static int read_key(struct reader *r, struct qr_gguf_key *k)
{
    uint32_t kind;
    int rc = read_text(r, &k->name, KEY_NAME_MAX, "a key's name");
    if (rc)
        return rc;
    r->key = &k->name;
    const uint64_t at = r->at;
    if ((rc = read_u32(r, &kind, "its kind")))
        return rc;
    if (kind >= QR_GGUF_KIND_COUNT)
        return refuse(r, QR_E_DAMAGED, at, "is of kind %" PRIu32 ", expected 0 to %d", kind, QR_GGUF_KIND_COUNT - 1);
    k->kind = (enum qr_gguf_kind)kind;
    k->count = 1;
    if (k->kind == QR_GGUF_ARRAY) {
        uint32_t of;
        uint64_t count;
        const uint64_t back = r->at;
        if ((rc = read_u32(r, &of, "an array's kind")) || (rc = read_u64(r, &count, "an array's count")))
            return rc;
        k->of = of < QR_GGUF_KIND_COUNT ? (enum qr_gguf_kind)of : QR_GGUF_U8;
        k->count = count;
        k->data = r->g->bytes + r->at;
        k->offset = r->at;
        r->at = back;
        rc = skip_array(r, 1);
    } else {
        k->data = r->g->bytes + r->at;
        k->offset = r->at;
        rc = skip_value(r, k->kind, 1, 0);
    }
    if (!rc && k->kind == QR_GGUF_BOOL && *k->data > 1)
        rc = refuse(r, QR_E_DAMAGED, k->offset, "a truth value of %d, expected 0 or 1", (int)*k->data);
    r->key = NULL;
    return rc;
}

static int read_keys(struct reader *r, uint64_t n)
{
    struct qr_gguf *g = r->g;
    char name[72];
    if (n > QR_GGUF_KEYS_MAX || n > left(r) / KEY_BYTES_MIN)
        return refuse(r, n > QR_GGUF_KEYS_MAX ? QR_E_TOO_LARGE : QR_E_DAMAGED, 16, "%" PRIu64 " keys, expected at most %d and no more than %" PRIu64
                      " bytes hold", n, QR_GGUF_KEYS_MAX, left(r));
    g->key = qr_alloc((size_t)n + 1, sizeof *g->key);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = r->at;
        struct qr_gguf_key *k = &g->key[i];
        int rc = read_key(r, k);
        if (rc)
            return rc;
        if (!qr_map_add(&g->key_of, k->name.at, (size_t)k->name.n, (int32_t)i))
            return refuse(r, QR_E_DAMAGED, at, "key %s is there twice", shown(name, k->name));
        g->n_keys = (int32_t)i + 1;
    }
    return 0;
}

/* ---- tensors ---- */

static int read_shape(struct reader *r, struct qr_gguf_tensor *t)
{
    char name[72];
    uint32_t n_dims;
    const uint64_t at = r->at;
    int rc = read_u32(r, &n_dims, "a tensor's number of dimensions");
    if (rc)
        return rc;
    if (n_dims < 1 || n_dims > QR_GGUF_DIMS_MAX)
        return refuse(r, QR_E_DAMAGED, at, "tensor %s has %" PRIu32 " dimensions, expected 1 to %d", shown(name, t->name), n_dims, QR_GGUF_DIMS_MAX);
    t->n_dims = (int32_t)n_dims;
    for (uint32_t i = 0; i < QR_GGUF_DIMS_MAX; i++)
        t->dim[i] = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t d;
        const uint64_t here = r->at;
        if ((rc = read_u64(r, &d, "a tensor's dimension")))
            return rc;
        if (d < 1 || d > INT64_MAX / 8)
            return refuse(r, QR_E_DAMAGED, here, "tensor %s: dimension %" PRIu32 " is %" PRIu64 ", expected a size", shown(name, t->name), i, d);
        t->dim[i] = (int64_t)d;
    }
    return 0;
}

/* Bytes of its data. */
static int size_of(struct reader *r, struct qr_gguf_tensor *t, uint64_t at)
{
    char name[72];
    size_t n = 1;
    for (int i = 0; i < QR_GGUF_DIMS_MAX; i++)
        if (!qr_mul_size(n, (size_t)t->dim[i], &n) || n > INT64_MAX / 8)
            return refuse(r, QR_E_DAMAGED, at, "tensor %s: its dimensions have too large a product", shown(name, t->name));
    if (t->dim[0] % t->layout->elements != 0)
        return refuse(r, QR_E_DAMAGED, at, "tensor %s: rows of %" PRId64 " numbers, expected a multiple of %d, which a block of %s has", shown(name, t->name),
                      t->dim[0], (int)t->layout->elements, t->layout->name);
    if (!qr_mul_size(n / (size_t)t->layout->elements, (size_t)t->layout->bytes, &n))
        return refuse(r, QR_E_DAMAGED, at, "tensor %s: its dimensions have too large a product", shown(name, t->name));
    t->n_bytes = n;
    return 0;
}

/* Text without control characters; at least one character. */
static bool is_name(struct qr_gguf_text t)
{
    for (uint64_t i = 0; i < t.n; i++)
        if ((unsigned char)t.at[i] < 0x20)
            return false;
    return t.n > 0 && qr_utf8_is_valid(t.at, (size_t)t.n);
}

static int read_tensor(struct reader *r, struct qr_gguf_tensor *t)
{
    char name[72];
    const uint64_t at = r->at;
    int rc = read_text(r, &t->name, QR_GGUF_NAME_MAX, "a tensor's name");
    if (rc)
        return rc;
    if (!is_name(t->name))
        return refuse(r, QR_E_DAMAGED, at, "a tensor's name (%s) is empty, or no text", shown(name, t->name));
    if ((rc = read_shape(r, t)))
        return rc;
    const uint64_t type_at = r->at;
    if ((rc = read_u32(r, &t->type, "a tensor's type")) || (rc = read_u64(r, &t->offset, "a tensor's offset")))
        return rc;
    t->layout = qr_gguf_layout(t->type);
    if (!t->layout)
        return refuse(r, QR_E_UNSUPPORTED, type_at, "tensor %s is of type %" PRIu32 ", which this program does not know", shown(name, t->name), t->type);
    return size_of(r, t, at);
}

static int by_offset(const void *a, const void *b)
{
    const struct qr_gguf_tensor *x = *(const struct qr_gguf_tensor *const *)a, *y = *(const struct qr_gguf_tensor *const *)b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : 0;
}

/* No two tensors share a byte. */
static int check_overlap(struct reader *r)
{
    const struct qr_gguf *g = r->g;
    char one[72], two[72];
    int rc = 0;
    const struct qr_gguf_tensor **t = qr_alloc((size_t)g->n_tensors + 1, sizeof *t);
    for (int32_t i = 0; i < g->n_tensors; i++)
        t[i] = &g->tensor[i];
    qsort(t, (size_t)g->n_tensors, sizeof *t, by_offset);
    for (int32_t i = 1; i < g->n_tensors && !rc; i++)
        if (t[i]->offset - t[i - 1]->offset < t[i - 1]->n_bytes)
            rc = refuse(r, QR_E_DAMAGED, t[i]->offset, "tensor %s begins inside tensor %s, which has %" PRIu64 " bytes from %" PRIu64 " on",
                        shown(one, t[i]->name), shown(two, t[i - 1]->name), t[i - 1]->n_bytes, t[i - 1]->offset);
    qr_free(t);
    return rc;
}

static int read_tensors(struct reader *r, uint64_t n)
{
    struct qr_gguf *g = r->g;
    char name[72];
    if (n > QR_GGUF_TENSORS_MAX || n > left(r) / TENSOR_BYTES_MIN)
        return refuse(r, n > QR_GGUF_TENSORS_MAX ? QR_E_TOO_LARGE : QR_E_DAMAGED, 8, "%" PRIu64 " tensors, expected at most %d and no more than %" PRIu64
                      " bytes hold", n, QR_GGUF_TENSORS_MAX, left(r));
    g->tensor = qr_alloc((size_t)n + 1, sizeof *g->tensor);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = r->at;
        struct qr_gguf_tensor *t = &g->tensor[i];
        int rc = read_tensor(r, t);
        if (rc)
            return rc;
        if (!qr_map_add(&g->tensor_of, t->name.at, (size_t)t->name.n, (int32_t)i))
            return refuse(r, QR_E_DAMAGED, at, "tensor %s is there twice", shown(name, t->name));
        g->n_tensors = (int32_t)i + 1;
    }
    return 0;
}

/* From offsets behind the header to offsets in the file, each inside it and aligned. */
static int place_tensors(struct reader *r)
{
    struct qr_gguf *g = r->g;
    int64_t alignment = ALIGNMENT_DEFAULT;
    bool found;
    char name[72];
    int rc = qr_gguf_int(g, "general.alignment", 1, ALIGNMENT_MAX, &alignment, &found, r->err);
    if (rc)
        return rc;
    if (alignment % 8 != 0 || (alignment & (alignment - 1)) != 0)
        return qr_err_set(r->err, QR_E_DAMAGED, "%s: key general.alignment is %" PRId64 ", expected a power of two from 8 on", g->file, alignment);
    const uint64_t base = qr_align_up((size_t)r->at, (size_t)alignment);
    for (int32_t i = 0; i < g->n_tensors; i++) {
        struct qr_gguf_tensor *t = &g->tensor[i];
        if (t->offset % (uint64_t)alignment != 0)
            return refuse(r, QR_E_DAMAGED, r->at, "tensor %s has the offset %" PRIu64 ", expected a multiple of %" PRId64, shown(name, t->name), t->offset,
                          alignment);
        if (base > g->n_bytes || t->offset > g->n_bytes - base || t->n_bytes > g->n_bytes - base - t->offset)
            return refuse(r, QR_E_DAMAGED, r->at, "tensor %s has %" PRIu64 " bytes from %" PRIu64 " + %" PRIu64 " on, but the file ends at %zu; "
                          "truncated; download it again", shown(name, t->name), t->n_bytes, base, t->offset, g->n_bytes);
        t->offset += base;
    }
    return check_overlap(r);
}

/* ---- opening ---- */

bool qr_gguf_is(const void *bytes, size_t n_bytes)
{
    return n_bytes >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

static int read_header(struct reader *r, uint64_t *n_tensors, uint64_t *n_keys)
{
    struct qr_gguf *g = r->g;
    uint32_t version;
    if (!qr_gguf_is(g->bytes, g->n_bytes))
        return refuse(r, QR_E_DAMAGED, 0, "this is no GGUF file: it does not begin with \"GGUF\"");
    r->at = 4;
    int rc = read_u32(r, &version, "the version");
    if (rc)
        return rc;
    if (version != 2 && version != 3)
        return refuse(r, QR_E_UNSUPPORTED, 4, "version %" PRIu32 "%s, expected 2 or 3", version,
                      version == 0x02000000 || version == 0x03000000 ? " (the file is big-endian)" : "");
    g->version = (int32_t)version;
    rc = read_u64(r, n_tensors, "the number of tensors");
    return rc ? rc : read_u64(r, n_keys, "the number of keys");
}

int qr_gguf_open(struct qr_gguf **out, const void *bytes, size_t n_bytes, const char *file, struct qr_err *err)
{
    QR_ASSERT(out != NULL && (bytes != NULL || n_bytes == 0));
    QR_ASSERT(file != NULL && err != NULL);
    struct qr_gguf *g = qr_alloc(1, sizeof *g);
    g->bytes = bytes;
    g->n_bytes = n_bytes;
    g->file = qr_strdup(file);
    qr_map_init(&g->key_of, 64);
    qr_map_init(&g->tensor_of, 512);
    struct reader r = {.g = g, .err = err};
    uint64_t n_tensors = 0, n_keys = 0;
    int rc = read_header(&r, &n_tensors, &n_keys);
    rc = rc ? rc : read_keys(&r, n_keys);
    rc = rc ? rc : read_tensors(&r, n_tensors);
    rc = rc ? rc : place_tensors(&r);
    if (rc) {
        qr_gguf_close(g);
        g = NULL;
    }
    *out = g;
    return rc;
}

void qr_gguf_close(struct qr_gguf *g)
{
    if (!g)
        return;
    qr_map_release(&g->key_of);
    qr_map_release(&g->tensor_of);
    qr_free(g->key);
    qr_free(g->tensor);
    qr_free(g->file);
    qr_free(g);
}

/* ---- looking up ---- */

int32_t qr_gguf_version(const struct qr_gguf *g)
{
    QR_ASSERT(g != NULL);
    return g->version;
}

int32_t qr_gguf_n_keys(const struct qr_gguf *g)
{
    QR_ASSERT(g != NULL);
    return g->n_keys;
}

const struct qr_gguf_key *qr_gguf_key_at(const struct qr_gguf *g, int32_t i)
{
    QR_ASSERT(g != NULL);
    QR_ASSERT(i >= 0 && i < g->n_keys);
    return &g->key[i];
}

const struct qr_gguf_key *qr_gguf_find(const struct qr_gguf *g, const char *name)
{
    QR_ASSERT(g != NULL && name != NULL);
    int32_t i = qr_map_find(&g->key_of, name, strlen(name), -1);
    return i < 0 ? NULL : &g->key[i];
}

int32_t qr_gguf_n_tensors(const struct qr_gguf *g)
{
    QR_ASSERT(g != NULL);
    return g->n_tensors;
}

const struct qr_gguf_tensor *qr_gguf_tensor_at(const struct qr_gguf *g, int32_t i)
{
    QR_ASSERT(g != NULL);
    QR_ASSERT(i >= 0 && i < g->n_tensors);
    return &g->tensor[i];
}

const struct qr_gguf_tensor *qr_gguf_tensor_find(const struct qr_gguf *g, const char *name)
{
    QR_ASSERT(g != NULL && name != NULL);
    int32_t i = qr_map_find(&g->tensor_of, name, strlen(name), -1);
    return i < 0 ? NULL : &g->tensor[i];
}

const void *qr_gguf_tensor_data(const struct qr_gguf *g, const struct qr_gguf_tensor *t)
{
    QR_ASSERT(g != NULL && t != NULL);
    QR_ASSERT(t->offset <= g->n_bytes && t->n_bytes <= g->n_bytes - t->offset);
    return g->bytes + t->offset;
}

/* ---- values ---- */

static bool is_int(enum qr_gguf_kind k)
{
    return k != QR_GGUF_F32 && k != QR_GGUF_F64 && k != QR_GGUF_BOOL && kinds[k].bytes > 0;
}

/* A whole number of kind k; u64 beyond int64 becomes its largest. */
static int64_t int_at(enum qr_gguf_kind k, const uint8_t *p)
{
    uint64_t u = 0;
    QR_ASSERT(is_int(k));
    memcpy(&u, p, kinds[k].bytes);
    switch (k) {
    case QR_GGUF_I8: return (int8_t)u;
    case QR_GGUF_I16: return (int16_t)u;
    case QR_GGUF_I32: return (int32_t)u;
    case QR_GGUF_U64: return u > INT64_MAX ? INT64_MAX : (int64_t)u;
    default: return (int64_t)u;
    }
}

static double real_at(enum qr_gguf_kind k, const uint8_t *p)
{
    float f;
    double d;
    if (is_int(k))
        return (double)int_at(k, p);
    QR_ASSERT(k == QR_GGUF_F32 || k == QR_GGUF_F64);
    memcpy(&f, p, sizeof f);
    if (k == QR_GGUF_F32)
        return (double)f;
    memcpy(&d, p, sizeof d);
    return d;
}

/* The key, which must be of a kind that `fits`; NULL when it is not there (then *rc is 0) or does not fit. */
static const struct qr_gguf_key *value_of(const struct qr_gguf *g, const char *name, bool *found, bool fits(enum qr_gguf_kind k), const char *expected, int *rc,
                                          struct qr_err *err)
{
    const struct qr_gguf_key *k = qr_gguf_find(g, name);
    if (found)
        *found = k != NULL;
    *rc = 0;
    if (!k || fits(k->kind))
        return k;
    *rc = qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": key %s is of kind %s, expected %s", g->file, k->offset, name, kinds[k->kind].name, expected);
    return NULL;
}

static bool is_real(enum qr_gguf_kind k)
{
    return is_int(k) || k == QR_GGUF_F32 || k == QR_GGUF_F64;
}

static bool is_bool(enum qr_gguf_kind k)
{
    return k == QR_GGUF_BOOL;
}

static bool is_string(enum qr_gguf_kind k)
{
    return k == QR_GGUF_STRING;
}

int qr_gguf_int(const struct qr_gguf *g, const char *name, int64_t least, int64_t most, int64_t *out, bool *found, struct qr_err *err)
{
    QR_ASSERT(out != NULL && least <= most);
    int rc;
    const struct qr_gguf_key *k = value_of(g, name, found, is_int, "a whole number", &rc, err);
    if (!k)
        return rc;
    int64_t v = int_at(k->kind, k->data);
    if (v < least || v > most)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": key %s is %" PRId64 ", expected %" PRId64 " to %" PRId64, g->file, k->offset, name, v,
                          least, most);
    *out = v;
    return 0;
}

bool qr_gguf_text_is(struct qr_gguf_text t, const char *s)
{
    QR_ASSERT(t.at != NULL && s != NULL);
    return t.n == strlen(s) && memcmp(t.at, s, (size_t)t.n) == 0;
}

int qr_gguf_same_int(const struct qr_gguf *g, const char *name, int32_t n_layers, int64_t least, int64_t most, int64_t *out, bool *found,
                     struct qr_err *err)
{
    QR_ASSERT(g != NULL && name != NULL && n_layers >= 0);
    QR_ASSERT(out != NULL && least <= most);
    const struct qr_gguf_key *k = qr_gguf_find(g, name);
    if (!k || k->kind != QR_GGUF_ARRAY || !is_int(k->of) || k->count == 0)
        return qr_gguf_int(g, name, least, most, out, found, err);
    if (n_layers > 0 && k->count != (uint64_t)n_layers)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": key %s has %" PRIu64 " entries, expected one for each of %d layers", g->file, k->offset,
                          name, k->count, n_layers);
    const int64_t v = qr_gguf_array_int(k, 0);
    for (uint64_t i = 0; i < k->count; i++) {
        const int64_t u = qr_gguf_array_int(k, i);
        if (u < least || u > most)
            return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": key %s, entry %" PRIu64 " is %" PRId64 ", expected %" PRId64 " to %" PRId64, g->file,
                              k->offset, name, i, u, least, most);
        if (u != v)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: byte %" PRIu64 ": key %s differs from layer to layer (%" PRId64 " in the first, %" PRId64
                              " in layer %" PRIu64 "), expected one number for all", g->file, k->offset, name, v, u, i);
    }
    if (found)
        *found = true;
    *out = v;
    return 0;
}

int qr_gguf_real(const struct qr_gguf *g, const char *name, double *out, bool *found, struct qr_err *err)
{
    QR_ASSERT(out != NULL);
    int rc;
    const struct qr_gguf_key *k = value_of(g, name, found, is_real, "a number", &rc, err);
    if (!k)
        return rc;
    double v = real_at(k->kind, k->data);
    if (!isfinite(v))
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": key %s is %g, expected a finite number", g->file, k->offset, name, v);
    *out = v;
    return 0;
}

int qr_gguf_bool(const struct qr_gguf *g, const char *name, bool *out, bool *found, struct qr_err *err)
{
    QR_ASSERT(out != NULL);
    int rc;
    const struct qr_gguf_key *k = value_of(g, name, found, is_bool, "a truth value", &rc, err);
    if (k)
        *out = *k->data != 0;
    return rc;
}

int qr_gguf_string(const struct qr_gguf *g, const char *name, struct qr_gguf_text *out, bool *found, struct qr_err *err)
{
    QR_ASSERT(out != NULL);
    int rc;
    const struct qr_gguf_key *k = value_of(g, name, found, is_string, "a string", &rc, err);
    const uint8_t *at = k ? k->data : NULL;
    if (k)
        *out = qr_gguf_next_text(&at);
    return rc;
}

const struct qr_gguf_key *qr_gguf_array(const struct qr_gguf *g, const char *name, enum qr_gguf_kind of, struct qr_err *err)
{
    QR_ASSERT(err != NULL);
    QR_ASSERT(of >= 0 && of < QR_GGUF_KIND_COUNT);
    const struct qr_gguf_key *k = qr_gguf_find(g, name);
    if (!k || (k->kind == QR_GGUF_ARRAY && k->of == of))
        return k;
    qr_err_set(err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": key %s is %s%s, expected an array of %s", g->file, k->offset, name,
               k->kind == QR_GGUF_ARRAY ? "an array of " : "of kind ", kinds[k->kind == QR_GGUF_ARRAY ? k->of : k->kind].name, kinds[of].name);
    return NULL;
}

double qr_gguf_key_number(const struct qr_gguf_key *k)
{
    QR_ASSERT(k != NULL);
    QR_ASSERT(is_real(k->kind));
    return real_at(k->kind, k->data);
}

int64_t qr_gguf_array_int(const struct qr_gguf_key *k, uint64_t i)
{
    QR_ASSERT(k != NULL && k->kind == QR_GGUF_ARRAY);
    QR_ASSERT(i < k->count && is_int(k->of));
    return int_at(k->of, k->data + i * kinds[k->of].bytes);
}

double qr_gguf_array_real(const struct qr_gguf_key *k, uint64_t i)
{
    QR_ASSERT(k != NULL && k->kind == QR_GGUF_ARRAY);
    QR_ASSERT(i < k->count && is_real(k->of));
    return real_at(k->of, k->data + i * kinds[k->of].bytes);
}

struct qr_gguf_text qr_gguf_next_text(const uint8_t **at)
{
    QR_ASSERT(at != NULL && *at != NULL);
    struct qr_gguf_text t;
    memcpy(&t.n, *at, 8);
    t.at = (const char *)*at + 8;
    *at += 8 + t.n;
    return t;
}
