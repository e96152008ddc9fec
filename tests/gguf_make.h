/* gguf_make.h - GGUF files for tests, put together value by value; every place that a test wants to break has an offset in the buffer. */
#ifndef QR_TESTS_GGUF_MAKE_H
#define QR_TESTS_GGUF_MAKE_H

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/files/gguf.h"

static inline void gguf_u32(struct qr_buf *b, uint32_t v)
{
    qr_buf_put(b, &v, sizeof v);
}

static inline void gguf_u64(struct qr_buf *b, uint64_t v)
{
    qr_buf_put(b, &v, sizeof v);
}

static inline void gguf_text(struct qr_buf *b, const char *s)
{
    gguf_u64(b, strlen(s));
    qr_buf_put(b, s, strlen(s));
}

static inline void gguf_begin(struct qr_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    qr_buf_put(b, "GGUF", 4);
    gguf_u32(b, version);
    gguf_u64(b, n_tensors);
    gguf_u64(b, n_keys);
}

static inline void gguf_key(struct qr_buf *b, const char *name, enum qr_gguf_kind kind)
{
    gguf_text(b, name);
    gguf_u32(b, (uint32_t)kind);
}

static inline void gguf_key_u32(struct qr_buf *b, const char *name, uint32_t v)
{
    gguf_key(b, name, QR_GGUF_U32);
    gguf_u32(b, v);
}

static inline void gguf_key_f32(struct qr_buf *b, const char *name, float v)
{
    gguf_key(b, name, QR_GGUF_F32);
    qr_buf_put(b, &v, sizeof v);
}

static inline void gguf_key_bool(struct qr_buf *b, const char *name, unsigned char v)
{
    gguf_key(b, name, QR_GGUF_BOOL);
    qr_buf_put(b, &v, 1);
}

static inline void gguf_key_text(struct qr_buf *b, const char *name, const char *v)
{
    gguf_key(b, name, QR_GGUF_STRING);
    gguf_text(b, v);
}

static inline void gguf_key_array(struct qr_buf *b, const char *name, enum qr_gguf_kind of, uint64_t count)
{
    gguf_key(b, name, QR_GGUF_ARRAY);
    gguf_u32(b, (uint32_t)of);
    gguf_u64(b, count);
}

static inline void gguf_tensor(struct qr_buf *b, const char *name, int n_dims, const uint64_t *dim, uint32_t type, uint64_t offset)
{
    gguf_text(b, name);
    gguf_u32(b, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        gguf_u64(b, dim[i]);
    gguf_u32(b, type);
    gguf_u64(b, offset);
}

/* Zeros up to a multiple of n. */
static inline void gguf_align(struct qr_buf *b, size_t n)
{
    while (b->len % n)
        qr_buf_put_byte(b, 0);
}

#endif
