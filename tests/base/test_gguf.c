#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/gguf_make.h"

/* Two tensors and a key of every kind. at[] receives the offset of each number that says a count, a length, a kind, a type, a size or a place. */
#define PLACES_MAX 64
struct place {
    size_t at;
    int bytes;
    const char *what;
};
struct made {
    struct qr_buf b;
    struct place place[PLACES_MAX];
    int n;
};

static void mark(struct made *m, size_t at, int bytes, const char *what)
{
    cr_assert(m->n < PLACES_MAX);
    m->place[m->n++] = (struct place){at, bytes, what};
}

static void put_keys(struct made *m)
{
    struct qr_buf *b = &m->b;
    mark(m, b->len, 8, "length of a key's name");
    gguf_key_text(b, "general.architecture", "llama");
    gguf_key(b, "general.alignment", QR_GGUF_U32);
    mark(m, b->len - 4, 4, "kind of the alignment");
    mark(m, b->len, 4, "alignment");
    gguf_u32(b, 32);
    gguf_key(b, "a.u8", QR_GGUF_U8);
    qr_buf_put_byte(b, 7);
    gguf_key(b, "a.i16", QR_GGUF_I16);
    qr_buf_put(b, "\xfe\xff", 2);
    gguf_key(b, "a.u64", QR_GGUF_U64);
    gguf_u64(b, UINT64_MAX);
    gguf_key_f32(b, "a.f32", 1.5f);
    gguf_key_bool(b, "a.bool", 1);
    mark(m, b->len - 1, 1, "truth value");
    gguf_key_array(b, "a.ints", QR_GGUF_I32, 3);
    mark(m, b->len - 12, 4, "kind of an array's values");
    mark(m, b->len - 8, 8, "count of an array");
    for (uint32_t i = 0; i < 3; i++)
        gguf_u32(b, i);
    gguf_key_array(b, "a.texts", QR_GGUF_STRING, 2);
    mark(m, b->len - 8, 8, "count of texts");
    mark(m, b->len, 8, "length of a text");
    gguf_text(b, "one");
    gguf_text(b, "");
}

static void put_tensors(struct made *m)
{
    struct qr_buf *b = &m->b;
    mark(m, b->len, 8, "length of a tensor's name");
    mark(m, b->len + 8 + 1, 4, "number of dimensions");
    mark(m, b->len + 8 + 1 + 4, 8, "first dimension");
    mark(m, b->len + 8 + 1 + 12, 8, "second dimension");
    mark(m, b->len + 8 + 1 + 20, 4, "type");
    mark(m, b->len + 8 + 1 + 24, 8, "offset");
    gguf_tensor(b, "x", 2, (const uint64_t[]){64, 2}, QR_GGUF_T_Q4_0, 0);
    gguf_tensor(b, "y", 1, (const uint64_t[]){3}, QR_GGUF_T_F32, 96);
    gguf_align(b, 32);
    for (int i = 0; i < 96 + 12; i++)
        qr_buf_put_byte(b, (char)i);
}

static struct made make(void)
{
    struct made m = {0};
    gguf_begin(&m.b, 3, 2, 9);
    mark(&m, 4, 4, "version");
    mark(&m, 8, 8, "number of tensors");
    mark(&m, 16, 8, "number of keys");
    put_keys(&m);
    put_tensors(&m);
    return m;
}

/* Opens a copy that ends where its memory ends, so that a sanitizer sees a byte read beyond. */
static int try(const void *bytes, size_t n, struct qr_err *err)
{
    struct qr_gguf *g;
    char *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    *err = (struct qr_err){0};
    int rc = qr_gguf_open(&g, copy, n, "file", err);
    cr_assert(rc == 0 || (g == NULL && err->msg[0] && err->code == (enum qr_code)rc));
    qr_gguf_close(g);
    free(copy);
    return rc;
}

Test(gguf, keys_of_every_kind_and_tensors_are_read)
{
    struct made m = make();
    struct qr_gguf *g;
    struct qr_err err = {0};
    cr_assert_eq(qr_gguf_open(&g, m.b.data, m.b.len, "file", &err), 0, "%s", err.msg);
    int64_t v;
    double d;
    bool yes = false, found;
    struct qr_gguf_text t;
    cr_assert(qr_gguf_int(g, "a.u8", 0, 10, &v, NULL, &err) == 0 && v == 7);
    cr_assert(qr_gguf_int(g, "a.i16", -5, 5, &v, NULL, &err) == 0 && v == -2);
    cr_assert(qr_gguf_int(g, "a.u64", 0, INT64_MAX, &v, NULL, &err) == 0 && v == INT64_MAX);
    cr_assert(qr_gguf_real(g, "a.f32", &d, &found, &err) == 0 && found && d == 1.5);
    cr_assert(qr_gguf_real(g, "a.u8", &d, NULL, &err) == 0 && d == 7.0);
    cr_assert(qr_gguf_bool(g, "a.bool", &yes, NULL, &err) == 0 && yes);
    cr_assert(qr_gguf_string(g, "general.architecture", &t, NULL, &err) == 0 && t.n == 5 && memcmp(t.at, "llama", 5) == 0);
    cr_assert(qr_gguf_int(g, "none", 0, 1, &v, &found, &err) == 0 && !found);
    const struct qr_gguf_key *ints = qr_gguf_array(g, "a.ints", QR_GGUF_I32, &err), *texts = qr_gguf_array(g, "a.texts", QR_GGUF_STRING, &err);
    cr_assert(ints && ints->count == 3 && qr_gguf_array_int(ints, 2) == 2);
    const uint8_t *at = texts->data;
    t = qr_gguf_next_text(&at);
    cr_assert(texts->count == 2 && t.n == 3 && memcmp(t.at, "one", 3) == 0 && qr_gguf_next_text(&at).n == 0);
    const struct qr_gguf_tensor *x = qr_gguf_tensor_find(g, "x"), *y = qr_gguf_tensor_at(g, 1);
    cr_assert(x->n_bytes == 2 * 2 * 18 && x->dim[0] == 64 && x->dim[1] == 2 && x->dim[2] == 1 && strcmp(x->layout->name, "Q4_0") == 0);
    cr_assert(y->n_bytes == 12 && y->offset == x->offset + 96 && y->offset + 12 == m.b.len);
    qr_gguf_close(g);
    qr_buf_release(&m.b);
}

Test(gguf, a_value_of_another_kind_or_range_is_refused_by_name)
{
    struct made m = make();
    struct qr_gguf *g;
    struct qr_err err = {0};
    int64_t v = 99;
    double d;
    bool b;
    struct qr_gguf_text t;
    cr_assert_eq(qr_gguf_open(&g, m.b.data, m.b.len, "file", &err), 0, "%s", err.msg);
    cr_assert(qr_gguf_int(g, "a.u8", 0, 6, &v, NULL, &err) == QR_E_DAMAGED && strstr(err.msg, "a.u8 is 7, expected 0 to 6") && v == 99);
    cr_assert(qr_gguf_int(g, "a.f32", 0, 6, &v, NULL, &err) == QR_E_DAMAGED && strstr(err.msg, "a.f32 is of kind f32, expected a whole number"));
    cr_assert(qr_gguf_real(g, "a.bool", &d, NULL, &err) == QR_E_DAMAGED && qr_gguf_bool(g, "a.u8", &b, NULL, &err) == QR_E_DAMAGED);
    cr_assert(qr_gguf_string(g, "a.ints", &t, NULL, &err) == QR_E_DAMAGED && strstr(err.msg, "kind array"));
    err.code = QR_OK;
    cr_assert(!qr_gguf_array(g, "none", QR_GGUF_I32, &err) && err.code == QR_OK);
    cr_assert(!qr_gguf_array(g, "a.ints", QR_GGUF_STRING, &err) && strstr(err.msg, "array of i32, expected an array of string"));
    qr_gguf_close(g);
    qr_buf_release(&m.b);
}

Test(gguf, every_number_of_the_header_with_every_extreme_value_is_refused_or_read_within_the_file)
{
    static const uint64_t extreme[] = {0, 1, 2, 5, 255, 1ull << 31, UINT32_MAX, 1ull << 32, 1ull << 62, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
    struct made m = make();
    struct qr_err err;
    int n_refused = 0;
    for (int i = 0; i < m.n; i++)
        for (int k = 0; k < QR_COUNT(extreme); k++) {
            char old[8];
            memcpy(old, m.b.data + m.place[i].at, (size_t)m.place[i].bytes);
            memcpy(m.b.data + m.place[i].at, &extreme[k], (size_t)m.place[i].bytes);
            n_refused += try(m.b.data, m.b.len, &err) != 0;
            int64_t best = INT64_MAX; /* of ten, if need be: a busy machine may take the processor away */
            for (int tries = 0; tries < 10 && best >= 100000; tries++) {
                const int64_t began = qr_clock_us();
                try(m.b.data, m.b.len, &err);
                best = qr_clock_us() - began < best ? qr_clock_us() - began : best;
            }
            cr_assert(best < 100000, "%s = %llu takes %lld us", m.place[i].what, (unsigned long long)extreme[k], (long long)best);
            memcpy(m.b.data + m.place[i].at, old, (size_t)m.place[i].bytes);
        }
    cr_assert(n_refused > m.n * 8, "%d of %d", n_refused, m.n * QR_COUNT(extreme));
    cr_assert_eq(try(m.b.data, m.b.len, &err), 0);
    qr_buf_release(&m.b);
}

Test(gguf, a_file_cut_anywhere_is_refused)
{
    struct made m = make();
    struct qr_err err;
    for (size_t n = 0; n < m.b.len; n++)
        cr_assert_neq(try(m.b.data, n, &err), 0, "%zu bytes", n);
    qr_buf_release(&m.b);
}

Test(gguf, flipped_bits_are_refused_or_read_within_the_file)
{
    struct made m = make();
    struct qr_err err;
    for (size_t i = 0; i < m.b.len * 8; i++) {
        m.b.data[i / 8] = (char)(m.b.data[i / 8] ^ (1 << (i % 8)));
        try(m.b.data, m.b.len, &err);
        m.b.data[i / 8] = (char)(m.b.data[i / 8] ^ (1 << (i % 8)));
    }
    qr_buf_release(&m.b);
}

static const struct bad {
    const char *what, *says;
    uint32_t version, type;
    const char *second_key, *second_tensor;
    uint64_t alignment, dim, second_offset;
} bad[] = {
    {"version 1", "version 1, expected 2 or 3", 1, 0, "b", "y", 32, 8, 32},
    {"big-endian", "big-endian", 0x03000000, 0, "b", "y", 32, 8, 32},
    {"a key twice", "key general.alignment is there twice", 3, 0, "general.alignment", "y", 32, 8, 32},
    {"a tensor twice", "tensor x is there twice", 3, 0, "b", "x", 32, 8, 32},
    {"a name that is no text", "is empty, or no text", 3, 0, "b", "\xff", 32, 8, 32},
    {"an unknown type", "of type 77", 3, 77, "b", "y", 32, 8, 32},
    {"half a block", "a multiple of 32", 3, QR_GGUF_T_Q8_0, "b", "y", 32, 8, 32},
    {"alignment 0", "general.alignment is 0", 3, 0, "b", "y", 0, 8, 32},
    {"alignment 24", "a power of two", 3, 0, "b", "y", 24, 8, 32},
    {"overlap", "begins inside tensor x", 3, 0, "b", "y", 32, 9, 32},
    {"unaligned", "expected a multiple of 32", 3, 0, "b", "y", 32, 8, 33},
    {"outside", "the file ends at", 3, 0, "b", "y", 32, 8, 64},
};

Test(gguf, what_contradicts_the_format_is_named)
{
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct qr_buf b = {0};
        struct qr_err err;
        gguf_begin(&b, bad[i].version, 2, 2);
        gguf_key_u32(&b, "general.alignment", (uint32_t)bad[i].alignment);
        gguf_key_u32(&b, bad[i].second_key, 1);
        gguf_tensor(&b, "x", 1, &bad[i].dim, bad[i].type, 0);
        gguf_tensor(&b, bad[i].second_tensor, 1, (const uint64_t[]){8}, QR_GGUF_T_F32, bad[i].second_offset);
        gguf_align(&b, 32);
        for (int k = 0; k < 64; k++)
            qr_buf_put_byte(&b, 0);
        cr_assert_neq(try(b.data, b.len, &err), 0, "%s", bad[i].what);
        cr_assert(strstr(err.msg, bad[i].says), "%s: %s", bad[i].what, err.msg);
        qr_buf_release(&b);
    }
}

Test(gguf, nested_arrays_are_read_up_to_a_depth)
{
    for (int depth = 1; depth < 8; depth++) {
        struct qr_buf b = {0};
        struct qr_err err;
        gguf_begin(&b, 3, 0, 1);
        gguf_key(&b, "k", QR_GGUF_ARRAY);
        for (int i = 1; i < depth; i++) {
            gguf_u32(&b, QR_GGUF_ARRAY);
            gguf_u64(&b, 1);
        }
        gguf_u32(&b, QR_GGUF_U8);
        gguf_u64(&b, 1);
        qr_buf_put_byte(&b, 1);
        cr_assert_eq(try(b.data, b.len, &err) == 0, depth <= 4, "%d deep: %s", depth, err.msg);
        qr_buf_release(&b);
    }
}
