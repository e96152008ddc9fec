#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "loader/stores/tensor_files.h"

/* A file with this header text and n_data zero bytes behind it; length -1: the true one. */
static struct qr_buf file_of(const char *header, size_t n_data, int64_t length)
{
    struct qr_buf b = {0};
    uint64_t n = length == -1 ? strlen(header) : (uint64_t)length;
    qr_buf_put(&b, &n, 8);
    qr_buf_put_str(&b, header);
    for (size_t i = 0; i < n_data; i++)
        qr_buf_put_byte(&b, 0);
    return b;
}

static int open_text(const char *header, size_t n_data, int64_t length, struct qr_err *err)
{
    struct qr_buf b = file_of(header, n_data, length);
    struct qr_tensor_files *st = NULL;
    int rc = qr_safetensors_open_memory(&st, b.data, b.len, "bad", err);
    if (!rc)
        qr_tensor_files_close(st);
    qr_buf_release(&b);
    return rc;
}

#define GOOD "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define T(name, dtype, shape, range) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}"

static const struct bad {
    const char *header;
    size_t n_data;
    int64_t length;
    const char *says[3]; /* each must be in the message */
} bad[] = {
    /* length */
    {"", 0, -1, {"byte 8", "the file ends here"}},
    {"{}", 0, 3, {"byte 0", "length is 3", "10 bytes"}},
    {"{}", 0, INT64_MIN, {"byte 0", "9223372036854775808"}},
    {"{}", 0, INT64_MAX, {"byte 0", "9223372036854775807"}},
    {"{}", 0, 0, {"byte 0", "length is 0"}},
    {"{}", 0, 1, {"byte 0", "length is 1"}},
    /* JSON */
    {" {}", 0, -1, {"byte 8", "0x20"}},
    {"[]", 0, -1, {"byte 8", "0x5B"}},
    {"{},", 0, -1, {"header", "column 3"}},
    {"{}{}", 0, -1, {"header", "column 3"}},
    {"{\"a\":", 0, -1, {"header", "column 6"}},
    {"{\"a\":1}", 0, -1, {"byte 13", "dtype, shape and data_offsets", "\"1\""}},
    {"{\"a\":{\"dtype\":\"\xff\"}}", 0, -1, {"header", "UTF-8"}},
    {"{\"a\\u0000\":{}}", 0, -1, {"header", "U+0000"}},
    {"{\"a\":[[[[[[[[]]]]]]]]}", 0, -1, {"byte 13", "expected"}},
    {"{\"__metadata__\":[]}", 0, -1, {"byte 24", "__metadata__"}},
    {"{\"__metadata__\":{\"a\":1}}", 0, -1, {"byte 29", "__metadata__"}},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, -1, {"byte 29", "__metadata__"}},
    /* names */
    {"{" T("", "U8", "[1]", "[0,1]") "}", 1, -1, {"byte 9", "0 bytes"}},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2, -1, {"twice"}},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("\\u0061", "U8", "[1]", "[1,2]") "}", 2, -1, {"twice"}},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, -1, {"twice"}},
    /* fields */
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, -1, {"byte 9", "tensor a", "no dtype"}},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, -1, {"byte 9", "no shape"}},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, -1, {"byte 9", "no data_offsets"}},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, -1, {"byte 9", "two numbers"}},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, -1, {"byte 59", "more than 2"}},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, -1, {"byte 60", "unknown field \"x\""}},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, -1, {"twice"}},
    {"{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, -1, {"byte 22", "dtype to be a string", "\"8\""}},
    {"{" T("a", "Q4_K", "[1]", "[0,1]") "}", 1, -1, {"byte 22", "unknown dtype \"Q4_K\""}},
    {"{" T("a", "f32", "[1]", "[0,4]") "}", 4, -1, {"byte 22", "unknown dtype \"f32\""}},
    {"{" T("a", "U8", "1", "[0,1]") "}", 1, -1, {"byte 35", "shape"}},
    {"{" T("a", "U8", "[-1]", "[0,1]") "}", 1, -1, {"byte 36", "shape", "\"-1\""}},
    {"{" T("a", "U8", "[1.5]", "[0,1]") "}", 1, -1, {"byte 36", "\"1.5\""}},
    {"{" T("a", "U8", "[1e0]", "[0,1]") "}", 1, -1, {"byte 36", "\"1e0\""}},
    {"{" T("a", "U8", "[\"1\"]", "[0,1]") "}", 1, -1, {"byte 36", "whole number"}},
    {"{" T("a", "U8", "[null]", "[0,1]") "}", 1, -1, {"byte 36", "null"}},
    {"{" T("a", "U8", "[[1]]", "[0,1]") "}", 1, -1, {"byte 36", "whole number"}},
    {"{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1, -1, {"byte 36", "9223372036854775808"}},
    {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, -1, {"shape", "more than 8"}},
    /* size arithmetic: every product that wraps to the length that is there */
    {"{" T("a", "F32", "[4611686018427387904]", "[0,0]") "}", 0, -1, {"byte 9", "no possible number of bytes"}},
    {"{" T("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, -1, {"byte 9", "no possible number of bytes"}},
    {"{" T("a", "U8", "[9223372036854775807,3]", "[0,1]") "}", 1, -1, {"byte 9", "no possible number of bytes"}},
    {"{" T("a", "F4", "[3]", "[0,1]") "}", 1, -1, {"byte 9", "no possible number of bytes"}},
    {"{" T("a", "F32", "[2]", "[0,7]") "}", 7, -1, {"byte 9", "span 7", "expected 8"}},
    {"{" T("a", "F32", "[]", "[0,8]") "}", 8, -1, {"byte 9", "span 8", "expected 4"}},
    {"{" T("a", "F32", "[0]", "[0,4]") "}", 4, -1, {"byte 9", "span 4", "expected 0"}},
    /* ranges */
    {"{" T("a", "U8", "[1]", "[1,0]") "}", 1, -1, {"byte 9", "[1, 0]", "in order"}},
    {"{" T("a", "U8", "[2]", "[0,2]") "}", 1, -1, {"byte 9", "[0, 2]", "end after the 1 bytes"}},
    {"{" T("a", "U8", "[1]", "[0,9223372036854775807]") "}", 1, -1, {"byte 9", "9223372036854775807"}},
    {"{" T("a", "U8", "[1]", "[-1,0]") "}", 1, -1, {"data_offsets", "\"-1\""}},
    {"{" T("a", "U8", "[1]", "[1,2]") "}", 2, -1, {"tensor a", "after a hole"}},
    {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", 3, -1, {"tensor b", "after a hole"}},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3, -1, {"tensor b", "inside the tensor before"}},
    {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}", 2, -1, {"inside the tensor before"}},
    {"{" T("a", "U8", "[1]", "[0,1]") "}", 2, -1, {"the tensors end here", "expected the end of the file"}},
    {"{}", 1, -1, {"the tensors end here"}},
};

Test(safetensors, refuses_damaged_headers_and_says_where_and_why)
{
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct qr_err err = {0};
        int rc = open_text(bad[i].header, bad[i].n_data, bad[i].length, &err);
        cr_expect_lt(rc, 0, "case %d loads: %s", i, bad[i].header);
        cr_expect(rc == 0 || strncmp(err.msg, "bad: ", 5) == 0, "case %d: %s", i, err.msg);
        for (int j = 0; j < QR_COUNT(bad[i].says) && bad[i].says[j]; j++)
            cr_expect(rc == 0 || strstr(err.msg, bad[i].says[j]), "case %d: \"%s\" does not say \"%s\"", i, err.msg, bad[i].says[j]);
    }
}

Test(safetensors, reads_what_the_format_allows)
{
    static const struct {
        const char *header;
        size_t n_data;
        int32_t n;
    } good[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {GOOD, 8, 1},
        {"{\"__metadata__\":{\"a\":\"b\",\"c\":\"\\u00e9\"}," T("a", "F64", "[]", "[0,8]") "}", 8, 1},
        {"{" T("b", "U8", "[1]", "[1,2]") "," T("a", "U8", "[1]", "[0,1]") "}", 2, 2},
        {"{" T("z", "F32", "[0,5]", "[1,1]") "," T("a", "U8", "[1]", "[0,1]") "," T("b", "BOOL", "[1]", "[1,2]") "}", 2, 3},
        {"{" T("a", "F4", "[3,2]", "[0,3]") "," T("b", "F8_E4M3", "[1,1,1,1,1,1,1,1]", "[3,4]") "}", 4, 2},
    };
    for (int i = 0; i < QR_COUNT(good); i++) {
        struct qr_buf b = file_of(good[i].header, good[i].n_data, -1);
        struct qr_tensor_files *st;
        struct qr_err err = {0};
        cr_assert_eq(qr_safetensors_open_memory(&st, b.data, b.len, "good", &err), 0, "case %d: %s", i, err.msg);
        cr_expect_eq(qr_tensor_files_count(st), good[i].n);
        uint64_t at = 8 + strlen(good[i].header);
        for (int32_t j = 0; j < good[i].n; j++) {
            const struct qr_stored_tensor *t = qr_tensor_files_at(st, j);
            cr_expect_eq(t->offset, at);
            cr_expect_eq(qr_tensor_files_find(st, t->name), t);
            cr_expect((qr_tensor_files_data(st, t) == NULL) == (t->n_bytes == 0));
            at += t->n_bytes;
        }
        cr_expect_null(qr_tensor_files_find(st, "nothing"));
        qr_tensor_files_close(st);
        qr_buf_release(&b);
    }
}

Test(safetensors, product_of_shape_and_type_equals_an_exact_reference_or_is_refused)
{
    struct qr_rng rng = {.seed = 99};
    static const int64_t edge[] = {0, 1, 2, 3, 255, 65536, 1 << 20, INT64_C(1) << 31, INT64_C(1) << 32, INT64_C(1) << 62, INT64_MAX};
    int32_t n_loaded = 0, n_refused = 0;
    printf("seed %d\n", 99);
    for (int32_t i = 0; i < 20000; i++) {
        char header[400];
        int32_t n_dims = (int32_t)qr_rng_below(&rng, 5), at = 0;
        unsigned __int128 bytes = 4; /* 128 bits hold four factors of 31 bits; larger ones are cut off at 2^64 below */
        at += snprintf(header, sizeof header, "{\"a\":{\"dtype\":\"F32\",\"shape\":[");
        bool zero = false, huge = false;
        for (int32_t d = 0; d < n_dims; d++) {
            int64_t v = edge[qr_rng_below(&rng, QR_COUNT(edge))];
            at += snprintf(header + at, sizeof header - (size_t)at, "%s%lld", d ? "," : "", (long long)v);
            zero |= v == 0;
            if (bytes <= UINT64_MAX)
                bytes *= (unsigned __int128)v;
            huge |= bytes > UINT64_MAX;
        }
        bool fits = !huge && (uint64_t)bytes <= 4096;
        uint64_t n = fits ? (uint64_t)bytes : 0;
        snprintf(header + at, sizeof header - (size_t)at, "],\"data_offsets\":[0,%llu]}}", (unsigned long long)n);
        struct qr_err err = {0};
        int rc = open_text(header, (size_t)n, -1, &err);
        /* A zero after an overflow: the reference says 0 bytes, we may refuse; anything else must agree. */
        if (fits)
            cr_assert_eq(rc, 0, "%s: %s", header, err.msg);
        else if (!zero)
            cr_assert_lt(rc, 0, "%s loads", header);
        n_loaded += rc == 0;
        n_refused += rc != 0;
    }
    cr_expect(n_loaded > 1000 && n_refused > 1000, "%d loaded, %d refused", n_loaded, n_refused);
}

Test(safetensors, pickle_is_called_that_whatever_its_name)
{
    static const struct {
        const char *bytes;
        size_t n;
        bool pickle;
    } t[] = {{"PK\3\4", 4, true}, {"PK\3\4\0\0\10\10\0\0\0\0\0\0", 14, true}, {"\x80\2}q\0.", 6, true}, {"\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8", 12, true},
             {"\x80\5\x95\0\0\0\0\0\0\0\0", 11, true}, {"\x80", 1, false}, {"\x80\2\0\0\0\0\0\0{}", 10, false}, {"PK", 2, false}, {"", 0, false}};
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_tensor_files *st;
        struct qr_err err = {0};
        const int rc = qr_safetensors_open_memory(&st, t[i].bytes, t[i].n, "model.bin", &err);
        cr_expect_eq(rc, t[i].pickle ? QR_E_UNSUPPORTED : QR_E_DAMAGED, "%d: %s", i, err.msg);
        cr_expect_eq(strstr(err.msg, "is pickle") != NULL, t[i].pickle, "%d: %s", i, err.msg);
    }
}

Test(safetensors, truncated_or_extended_files_are_refused_at_every_length)
{
    struct qr_buf b = file_of("{" T("a", "U8", "[3]", "[0,3]") "," T("b", "F16", "[2,2]", "[3,11]") "}", 11, -1);
    for (size_t n = 0; n <= b.len; n++) {
        char *copy = qr_alloc(n + 1, 1);
        memcpy(copy, b.data, n);
        struct qr_tensor_files *st;
        struct qr_err err = {0};
        int rc = qr_safetensors_open_memory(&st, copy, n, "cut", &err);
        cr_expect_eq(rc == 0, n == b.len, "length %zu: %s", n, err.msg);
        if (!rc)
            qr_tensor_files_close(st);
        qr_free(copy);
    }
    qr_buf_release(&b);
}

/* ---- directories ---- */

struct dir {
    char path[64];
};

static struct dir dir_new(void)
{
    struct dir d = {"/tmp/quire-st-XXXXXX"};
    cr_assert_not_null(mkdtemp(d.path));
    return d;
}

static void put_file(const struct dir *d, const char *name, const void *bytes, size_t n)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_model(const struct dir *d, const char *name, const char *header, size_t n_data)
{
    struct qr_buf b = file_of(header, n_data, -1);
    put_file(d, name, b.data, b.len);
    qr_buf_release(&b);
}

static void dir_remove(const struct dir *d)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", d->path);
    cr_assert_eq(system(command), 0);
}

#define INDEX "model.safetensors.index.json"
#define A "{" T("a", "U8", "[1]", "[0,1]") "}"
#define B "{" T("b", "U8", "[1]", "[0,1]") "}"

static void expect_index(const char *index, const char *says)
{
    struct dir d = dir_new();
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    put_model(&d, "1.safetensors", A, 1);
    put_model(&d, "2.safetensors", B, 1);
    put_model(&d, "\u00fc \U0001f600.safetensors", A, 1);
    put_model(&d, "both.safetensors", "{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[1,2]") "}", 2);
    put_file(&d, INDEX, index, strlen(index));
    int rc = qr_safetensors_open(&st, d.path, &err);
    if (says) {
        cr_expect_lt(rc, 0, "%s loads", index);
        cr_expect(rc == 0 || strstr(err.msg, says), "%s: \"%s\" does not say \"%s\"", index, err.msg, says);
    } else {
        cr_expect_eq(rc, 0, "%s: %s", index, err.msg);
        cr_expect(rc || qr_tensor_files_count(st) == 2);
    }
    if (!rc)
        qr_tensor_files_close(st);
    dir_remove(&d);
}

Test(safetensors, index_names_plain_files_and_every_tensor_once)
{
    expect_index("{\"metadata\":{\"total_size\":2},\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", NULL);
    expect_index("{\"weight_map\":{\"a\":\"both.safetensors\",\"b\":\"both.safetensors\"},\"x\":[1,{}]}", NULL);
    expect_index("{\"weight_map\":{\"a\":\"\\u00fc \\ud83d\\ude00.safetensors\",\"\\u0062\":\"\\u0032.safetensors\"}}", NULL);
    expect_index("{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "plain name");
    expect_index("{\"weight_map\":{\"a\":\"1.safetensors\\n\"}}", "plain name");
    expect_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "plain name");
    expect_index("{\"weight_map\":{\"a\":\"x/1.safetensors\"}}", "plain name");
    expect_index("{\"weight_map\":{\"a\":\"..\"}}", "plain name");
    expect_index("{\"weight_map\":{\"a\":\"\\u002e\\u002e/1.safetensors\"}}", "plain name");
    expect_index("{\"weight_map\":{\"a\":\"\"}}", "plain name");
    expect_index("{\"weight_map\":{\"a\":1}}", "plain name");
    expect_index("{\"weight_map\":[]}", "object");
    expect_index("{}", "no weight_map");
    expect_index("[]", "expected an object");
    expect_index("{\"weight_map\":{\"a\":\"1.safetensors\"", "line 1");
    expect_index("{\"weight_map\":{\"a\":\"1.safetensors\"}} x", "line 1");
    expect_index("{\"weight_map\":{\"a\":\"3.safetensors\"}}", "missing");
    expect_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"1.safetensors\"}}", "tensor c is not in 1.safetensors");
    expect_index("{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}", "but the index says");
    expect_index("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"both.safetensors\"}}", "one file only");
}

static void expect_dir(const char *name, const char *says, int code)
{
    struct dir d = dir_new();
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    if (name)
        put_file(&d, name, "x", 1);
    cr_expect_eq(qr_safetensors_open(&st, d.path, &err), code, "%s", err.msg);
    cr_expect(strstr(err.msg, says), "\"%s\" does not say \"%s\"", err.msg, says);
    dir_remove(&d);
}

Test(safetensors, directories_without_safetensors_are_explained)
{
    expect_dir(NULL, "has no weights", QR_E_NOT_FOUND);
    expect_dir("pytorch_model.bin", "pickle", QR_E_UNSUPPORTED);
    expect_dir("consolidated.00.pth", "pickle", QR_E_UNSUPPORTED);
    expect_dir("consolidated.safetensors", "rename", QR_E_NOT_FOUND);
    expect_dir("a.gguf", "to run a GGUF file, name the file", QR_E_NOT_FOUND);
}

Test(safetensors, a_link_to_a_file_that_is_gone_is_called_that)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (int i = 0; i < 2; i++) {
        struct dir d = dir_new();
        struct qr_tensor_files *st;
        struct qr_err err = {0};
        char path[200];
        snprintf(path, sizeof path, "%s/%s", d.path, names[i]);
        cr_assert_eq(symlink("../../blobs/gone", path), 0);
        cr_expect_eq(qr_safetensors_open(&st, d.path, &err), QR_E_NOT_FOUND);
        cr_expect(strstr(err.msg, names[i]) && strstr(err.msg, "is a link to a file that cannot be read: No such file or directory; download it again"), "%s",
                  err.msg);
        unlink(path);
        dir_remove(&d);
    }
}

Test(safetensors, things_that_are_no_files_are_refused_without_waiting)
{
    struct dir d = dir_new();
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    char path[200];
    snprintf(path, sizeof path, "%s/model.safetensors", d.path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(qr_safetensors_open(&st, d.path, &err), QR_E_IO);
    cr_expect(strstr(err.msg, "a pipe or a device"), "%s", err.msg);
    cr_expect_eq(qr_safetensors_open(&st, "/nowhere/at/all", &err), QR_E_NOT_FOUND);
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_eq(qr_safetensors_open(&st, d.path, &err), QR_E_IO);
    cr_expect(strstr(err.msg, "a directory"), "%s", err.msg);
    dir_remove(&d);
    d = dir_new();
    put_file(&d, "model.safetensors", "", 0);
    cr_expect_eq(qr_safetensors_open(&st, d.path, &err), QR_E_DAMAGED);
    cr_expect(strstr(err.msg, "byte 0"), "%s", err.msg);
    dir_remove(&d);
}
