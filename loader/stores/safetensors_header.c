/* safetensors_header.c - the JSON header of a safetensors file, read as a stream of tokens straight into the list of tensors.
 *
 * Each field is checked where it is read, so that an error names the byte; then tensors are sorted by offset, and their ranges
 * have to follow one another to the end of the file.
 * Guarantee: shape, type and range of an accepted tensor agree, and its bytes are within the file.
 * Thread: any; it writes to the caller's list only. */
#include "loader/stores/safetensors_header.h"

#include <endian.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"

#define LENGTH_BYTES 8

#define COMPUTED(name, bits, dtype) {name, bits, true, dtype, false, 0}
#define STORED(name, bits) {name, bits, false, 0, false, 0}

/* Those of most tensors first: a header has thousands. */
static const struct qr_stored_type types[] = {
    COMPUTED("BF16", 16, QR_BF16), COMPUTED("F16", 16, QR_F16), STORED("I32", 32), STORED("F8_E4M3", 8), COMPUTED("F32", 32, QR_F32),
    STORED("F64", 64), STORED("BOOL", 8), STORED("U8", 8), STORED("I8", 8), STORED("U16", 16), STORED("I16", 16), STORED("U32", 32),
    STORED("U64", 64), STORED("I64", 64), STORED("C64", 64), STORED("F8_E5M2", 8), STORED("F8_E8M0", 8), STORED("F6_E2M3", 6),
    STORED("F6_E3M2", 6), STORED("F4", 4),
};

struct parser {
    struct qr_json_scan *scan;
    const char *file;
    struct qr_stored_list *list;
    struct qr_buf text; /* a name while it is being read */
    struct qr_err *err;
};

/* Every message about a header says where in the file the thing stands. */
static int refuse(struct parser *p, enum qr_code code, const struct qr_json_token *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int refuse(struct parser *p, enum qr_code code, const struct qr_json_token *at, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return qr_err_set(p->err, code, "%s: byte %zu: %s", p->file, LENGTH_BYTES + at->offset, what);
}

static int next(struct parser *p, struct qr_json_token *t)
{
    int rc = qr_json_next(p->scan, t, p->err);
    if (rc) {
        p->err->code = QR_E_DAMAGED;
        qr_err_prefix(p->err, "%s: header (JSON from byte %d on): ", p->file, LENGTH_BYTES);
        return QR_E_DAMAGED;
    }
    return 0;
}

/* What was found, for messages: the token's own text, shortened. */
static const char *shown(char out[64], const struct qr_json_token *t)
{
    int n = t->len < 48 ? (int)t->len : 48;
    snprintf(out, 64, "%.*s%s", n, t->text, t->len > 48 ? "..." : "");
    return out;
}

static int expect(struct parser *p, enum qr_json_event event, const char *what)
{
    struct qr_json_token t;
    char found[64];
    int rc = next(p, &t);
    if (rc)
        return rc;
    if (t.event != event)
        return refuse(p, QR_E_DAMAGED, &t, "expected %s, found \"%s\"", what, shown(found, &t));
    return 0;
}

static int read_metadata(struct parser *p)
{
    int rc = expect(p, QR_JSON_OBJECT_BEGIN, "an object of strings as __metadata__");
    while (!rc) {
        struct qr_json_token t;
        char found[64];
        if ((rc = next(p, &t)) || t.event == QR_JSON_OBJECT_END)
            break;
        if (t.event != QR_JSON_KEY && t.event != QR_JSON_STRING)
            rc = refuse(p, QR_E_DAMAGED, &t, "expected a string in __metadata__, found \"%s\"", shown(found, &t));
    }
    return rc;
}

static int read_dtype(struct parser *p, struct qr_stored_tensor *t)
{
    struct qr_json_token token;
    char found[64];
    int rc = next(p, &token);
    if (rc)
        return rc;
    if (token.event != QR_JSON_STRING)
        return refuse(p, QR_E_DAMAGED, &token, "tensor %s: expected dtype to be a string, found \"%s\"", t->name,
                      shown(found, &token));
    for (int i = 0; i < QR_COUNT(types) && !t->type; i++)
        if (qr_json_token_is(&token, types[i].name))
            t->type = &types[i];
    if (!t->type)
        return refuse(p, QR_E_UNSUPPORTED, &token, "tensor %s: unknown dtype \"%s\", expected F32, F16, BF16 or another "
                      "type of the safetensors format", t->name, shown(found, &token));
    return 0;
}

/* An array of at most n_max whole numbers >= 0. */
static int read_numbers(struct parser *p, const char *tensor, const char *what, int64_t *out, int32_t *n, int32_t n_max)
{
    int rc = expect(p, QR_JSON_ARRAY_BEGIN, what);
    *n = 0;
    while (!rc) {
        struct qr_json_token t;
        char found[64];
        if ((rc = next(p, &t)) || t.event == QR_JSON_ARRAY_END)
            break;
        int64_t v;
        if (t.event != QR_JSON_NUMBER || !qr_json_token_i64(&t, &v) || v < 0)
            return refuse(p, QR_E_DAMAGED, &t, "tensor %s: %s: expected a whole number of at least 0, found \"%s\"", tensor,
                          what, shown(found, &t));
        if (*n == n_max)
            return refuse(p, QR_E_DAMAGED, &t, "tensor %s: %s: has more than %d numbers", tensor, what, n_max);
        out[(*n)++] = v;
    }
    return rc;
}

/* Bytes of the logical tensor; false when the product does not fit or is no whole number of bytes. */
static bool logical_bytes(const struct qr_stored_tensor *t, uint64_t *out)
{
    uint64_t n = 1, bits;
    for (int32_t i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n))
            return false;
    if (__builtin_mul_overflow(n, (uint64_t)t->type->bits, &bits) || bits % 8 != 0)
        return false;
    *out = bits / 8;
    return true;
}

static int check_range(struct parser *p, const struct qr_json_token *at, struct qr_stored_tensor *t, const int64_t range[2],
                       uint64_t data_bytes)
{
    uint64_t need;
    if (range[0] <= range[1] && (uint64_t)range[0] <= data_bytes && (uint64_t)range[1] > data_bytes)
        return refuse(p, QR_E_DAMAGED, at, "tensor %s: data_offsets [%" PRId64 ", %" PRId64 "] end after the %" PRIu64 " bytes of data that the file has; "
                      "truncated; download it again", t->name, range[0], range[1], data_bytes);
    if (range[0] > range[1] || (uint64_t)range[1] > data_bytes)
        return refuse(p, QR_E_DAMAGED, at, "tensor %s: data_offsets [%" PRId64 ", %" PRId64 "] do not lie in order inside the "
                      "%" PRIu64 " bytes of data", t->name, range[0], range[1], data_bytes);
    const bool possible = logical_bytes(t, &need);
    if (!possible || need != (uint64_t)(range[1] - range[0])) {
        char shape[160];
        qr_shape_text(shape, sizeof shape, t->shape, t->n_dims);
        if (!possible)
            return refuse(p, QR_E_DAMAGED, at, "tensor %s: shape %s of %s is no possible number of bytes", t->name, shape, t->type->name);
        return refuse(p, QR_E_DAMAGED, at, "tensor %s: data_offsets span %" PRId64 " bytes, expected %" PRIu64 " for shape %s of %s", t->name,
                      range[1] - range[0], need, shape, t->type->name);
    }
    t->offset = (uint64_t)range[0];
    t->n_bytes = need;
    return 0;
}

static int read_entry(struct parser *p, const struct qr_json_token *at, struct qr_stored_tensor *t, uint64_t data_bytes)
{
    int64_t range[2];
    int32_t n_range = -1;
    bool has_shape = false;
    char found[64];
    int rc = expect(p, QR_JSON_OBJECT_BEGIN, "an object with dtype, shape and data_offsets");
    while (!rc) {
        struct qr_json_token key;
        if ((rc = next(p, &key)) || key.event == QR_JSON_OBJECT_END)
            break;
        if (qr_json_token_is(&key, "dtype"))
            rc = read_dtype(p, t);
        else if (qr_json_token_is(&key, "shape")) {
            rc = read_numbers(p, t->name, "shape", t->shape, &t->n_dims, QR_STORED_DIMS_MAX);
            has_shape = true;
        } else if (qr_json_token_is(&key, "data_offsets"))
            rc = read_numbers(p, t->name, "data_offsets", range, &n_range, 2);
        else
            rc = refuse(p, QR_E_DAMAGED, &key, "tensor %s: unknown field \"%s\", expected dtype, shape or data_offsets",
                        t->name, shown(found, &key));
    }
    if (rc)
        return rc;
    if (!t->type || !has_shape || n_range != 2)
        return refuse(p, QR_E_DAMAGED, at, "tensor %s: %s", t->name, !t->type ? "has no dtype" : !has_shape ? "has no shape" :
                      n_range < 0 ? "has no data_offsets" : "data_offsets: expected two numbers");
    return check_range(p, at, t, range, data_bytes);
}

static int add_tensor(struct parser *p, const struct qr_json_token *key, int32_t shard, uint64_t data_bytes)
{
    struct qr_stored_list *list = p->list;
    qr_buf_clear(&p->text);
    qr_json_unescape(&p->text, key);
    if (p->text.len == 0 || p->text.len > QR_STORED_NAME_MAX)
        return refuse(p, QR_E_DAMAGED, key, "a tensor's name has %zu bytes, expected 1 to %d", p->text.len, QR_STORED_NAME_MAX);
    if (list->n == QR_STORED_TENSORS_MAX)
        return refuse(p, QR_E_TOO_LARGE, key, "more than %d tensors", QR_STORED_TENSORS_MAX);
    const char *name = qr_stored_list_name(list, p->text.data, p->text.len);
    struct qr_stored_tensor *t = qr_stored_list_add(list);
    *t = (struct qr_stored_tensor){.name = name, .shard = shard};
    return read_entry(p, key, t, data_bytes);
}

static int read_header(struct parser *p, int32_t shard, uint64_t data_bytes)
{
    int rc = expect(p, QR_JSON_OBJECT_BEGIN, "an object");
    struct qr_json_token t;
    while (!rc) {
        if ((rc = next(p, &t)) || t.event == QR_JSON_OBJECT_END)
            break;
        QR_ASSERT(t.event == QR_JSON_KEY);
        rc = qr_json_token_is(&t, "__metadata__") ? read_metadata(p) : add_tensor(p, &t, shard, data_bytes);
    }
    return rc ? rc : expect(p, QR_JSON_DONE, "nothing but spaces after the header's object");
}

static int by_offset(const void *a, const void *b)
{
    const struct qr_stored_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes) /* an empty tensor stands before the one that begins where it ends */
        return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool in_order(const struct qr_stored_tensor *t, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        if (by_offset(&t[i - 1], &t[i]) > 0)
            return false;
    return true;
}

/* Sorted ranges follow one another from the first byte of data to the last; then offsets count from the file's beginning. */
static int check_cover(struct parser *p, int32_t first, uint64_t data_start, uint64_t data_bytes)
{
    struct qr_stored_list *list = p->list;
    uint64_t at = 0;
    if (list->n > first && !in_order(list->item + first, list->n - first)) /* as nearly all writers leave them */
        qsort(list->item + first, (size_t)(list->n - first), sizeof *list->item, by_offset);
    for (int32_t i = first; i < list->n; i++) {
        struct qr_stored_tensor *t = &list->item[i];
        if (t->offset != at)
            return qr_err_set(p->err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": tensor %s begins %s, expected byte %" PRIu64
                              " (ranges must follow one another)", p->file, data_start + t->offset, t->name,
                              t->offset < at ? "inside the tensor before it" : "after a hole", data_start + at);
        at += t->n_bytes;
        t->offset += data_start;
    }
    if (at != data_bytes)
        return qr_err_set(p->err, QR_E_DAMAGED, "%s: byte %" PRIu64 ": the tensors end here, expected the end of the file at "
                          "byte %" PRIu64, p->file, data_start + at, data_start + data_bytes);
    return 0;
}

/* As torch.save begins its files: a zip archive of pickle, before version 1.6 pickle itself. */
static bool is_pickle(const uint8_t *bytes, size_t n)
{
    return (n >= 4 && memcmp(bytes, "PK\3\4", 4) == 0) || (n >= 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5);
}

static int check_length(const uint8_t *bytes, size_t n_bytes, const char *file, size_t *header_bytes, struct qr_err *err)
{
    uint64_t n;
    if (is_pickle(bytes, n_bytes) && (n_bytes < LENGTH_BYTES + 2 || bytes[LENGTH_BYTES] != '{'))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: byte 0: is pickle, or an archive of it, which can run code and is never read: convert it to safetensors",
                          file);
    if (n_bytes < LENGTH_BYTES + 2)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %zu: the file ends here, expected a safetensors header (at least %d "
                          "bytes)", file, n_bytes, LENGTH_BYTES + 2);
    memcpy(&n, bytes, sizeof n);
    n = le64toh(n);
    uint64_t most = n_bytes - LENGTH_BYTES < QR_SAFETENSORS_HEADER_MAX ? n_bytes - LENGTH_BYTES : QR_SAFETENSORS_HEADER_MAX;
    if ((n > most || n < 2) && bytes[LENGTH_BYTES] != '{')
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte 0: is neither a safetensors file (8 bytes that say a header's length, then '{') nor a GGUF file, which "
                          "begins with \"GGUF\"; if it should be one, download it again", file);
    if (n > most || n < 2)
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte 0: the header's length is %" PRIu64 ", expected 2 to %" PRIu64
                          " in a file of %zu bytes; truncated; download it again", file, n, most, n_bytes);
    if (bytes[LENGTH_BYTES] != '{')
        return qr_err_set(err, QR_E_DAMAGED, "%s: byte %d: found byte 0x%02X, expected the '{' that begins a safetensors "
                          "header", file, LENGTH_BYTES, bytes[LENGTH_BYTES]);
    *header_bytes = (size_t)n;
    return 0;
}

int qr_safetensors_header_parse(struct qr_stored_list *list, const uint8_t *bytes, size_t n_bytes, int32_t shard, const char *file,
                       struct qr_err *err)
{
    QR_ASSERT(list != NULL && (bytes != NULL || n_bytes == 0));
    QR_ASSERT(file != NULL && err != NULL);
    size_t header_bytes;
    int rc = check_length(bytes, n_bytes, file, &header_bytes, err);
    if (rc)
        return rc;
    struct qr_json_limits limits = {.bytes_max = QR_SAFETENSORS_HEADER_MAX,
                                    .values_max = (int64_t)header_bytes, .depth_max = 4, .nul_ok = false};
    struct parser p = {.file = file, .list = list, .err = err};
    p.scan = qr_json_scan_new((const char *)bytes + LENGTH_BYTES, header_bytes, &limits);
    int32_t first = list->n;
    uint64_t data_start = LENGTH_BYTES + header_bytes;
    rc = read_header(&p, shard, n_bytes - data_start);
    if (!rc)
        rc = check_cover(&p, first, data_start, n_bytes - data_start);
    qr_buf_release(&p.text);
    qr_json_scan_free(p.scan);
    return rc;
}
