/* tok_test.h - what the tokenizer tests share: the conformance data, files, JSON lines, printable ids. */
#ifndef TESTS_TOKENIZER_TOK_TEST_H
#define TESTS_TOKENIZER_TOK_TEST_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "tokenizer/tokenizer.h"

static const char *const tok_names[] = {"gpt2", "llama-2", "mistral-v0.1", "qwen2.5", "llama-3.2"};
#define TOK_NAMES 5

/* The conformance data's directory, or NULL. */
static inline const char *tok_data(void)
{
    const char *dir = getenv("QUIRE_DATA");
    if (!dir || !*dir)
        dir = QUIRE_SOURCE_DIR "/../shared/data";
    return access(dir, R_OK) == 0 ? dir : NULL;
}

#define TOK_NEED_DATA()                                                                                                       \
    do {                                                                                                                      \
        if (!tok_data())                                                                                                      \
            cr_skip_test("no conformance data: set QUIRE_DATA to its directory");                                             \
    } while (0)

static inline void tok_read(struct qr_buf *out, const char *path)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f, "cannot open %s", path);
    char chunk[65536];
    size_t n;
    out->len = 0;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        qr_buf_put(out, chunk, n);
    fclose(f);
}

static inline void tok_read_data(struct qr_buf *out, const char *relative)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", tok_data(), relative);
    tok_read(out, path);
}

static inline struct qr_tokenizer *tok_open(const char *relative)
{
    char path[1024];
    struct qr_err err;
    struct qr_tokenizer *t = NULL;
    snprintf(path, sizeof path, "%s/%s", tok_data(), relative);
    int rc = qr_tokenizer_open(&t, path, &err);
    cr_assert(rc == 0, "%s: %s", path, rc ? err.msg : "");
    return t;
}

static inline struct qr_tokenizer *tok_open_name(const char *name)
{
    char relative[256];
    snprintf(relative, sizeof relative, "tokenizers/%s", name);
    return tok_open(relative);
}

/* Cuts the next line off text[*at..len) at '\n' only; false at the end. */
static inline bool tok_line(const struct qr_buf *text, size_t *at, const char **line, size_t *n)
{
    if (*at >= text->len)
        return false;
    const char *start = text->data + *at, *end = memchr(start, '\n', text->len - *at);
    *line = start;
    *n = end ? (size_t)(end - start) : text->len - *at;
    *at += *n + 1;
    return true;
}

static inline struct qr_json *tok_json(const char *s, size_t n)
{
    struct qr_err err;
    struct qr_json *v = NULL;
    int rc = qr_json_parse(&v, s, n, &qr_json_limits_file, &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
    return v;
}

static inline void tok_ids(struct qr_ids *out, const struct qr_json *list)
{
    out->n = 0;
    for (const struct qr_json *v = qr_json_first(list); v; v = qr_json_after(v)) {
        int64_t id;
        cr_assert(qr_json_i64(v, &id));
        qr_ids_push(out, (int32_t)id);
    }
}

static inline bool tok_same(const struct qr_ids *a, const struct qr_ids *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->id, b->id, (size_t)a->n * sizeof *a->id) == 0);
}

/* "[1, 2, 3]" in a buffer that lives until the fourth next call. */
static inline const char *tok_show(const struct qr_ids *v)
{
    static _Thread_local char buf[4][600];
    static _Thread_local int turn;
    char *s = buf[turn++ & 3];
    int at = snprintf(s, 600, "[");
    for (int32_t i = 0; i < v->n && at < 560; i++)
        at += snprintf(s + at, 600 - (size_t)at, "%s%d", i ? ", " : "", v->id[i]);
    snprintf(s + at, 600 - (size_t)at, "]");
    return s;
}

static inline void tok_encode(const struct qr_tokenizer *t, struct qr_ids *out, const char *text, size_t n, unsigned flags)
{
    struct qr_err err;
    out->n = 0;
    int rc = qr_tokenizer_encode(t, out, text, n, flags, &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
}

#endif
