#include "loader/write/safetensors_write.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/json.h"

#define DATA_ALIGN 64

static const char *type_name(const struct qr_st_entry *e)
{
    static const char *const name[] = {[QR_F32] = "F32", [QR_F16] = "F16", [QR_BF16] = "BF16", [QR_I8] = "I8", [QR_I32] = "I32"};
    if (e->type)
        return e->type;
    QR_ASSERT((int)e->dtype >= 0 && (int)e->dtype < QR_COUNT(name));
    return name[e->dtype];
}

int64_t qr_st_entry_count(const struct qr_st_entry *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->n_dims >= 1 && e->n_dims <= QR_COUNT(e->shape));
    int64_t n = 1;
    for (int32_t i = 0; i < e->n_dims; i++)
        n *= e->shape[i];
    return n;
}

uint64_t qr_st_entry_bytes(const struct qr_st_entry *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(qr_st_entry_count(e) >= 0);
    return (uint64_t)qr_st_entry_count(e) * (e->type ? (uint64_t)e->type_bytes : qr_dtype_bytes(e->dtype));
}

static void put_pair(struct qr_buf *out, const char *key, const char *value)
{
    qr_json_put_str(out, key, strlen(key));
    qr_buf_put_byte(out, ':');
    qr_json_put_str(out, value, strlen(value));
}

/* The header with its length in front and spaces behind. Returns the bytes of data that it announces. */
static uint64_t put_header(struct qr_buf *out, const struct qr_st_entry *entry, int32_t n, const struct qr_st_note *note, int32_t n_notes)
{
    uint64_t begin = 0;
    qr_buf_put(out, "\0\0\0\0\0\0\0\0", 8);
    qr_buf_put_str(out, "{\"__metadata__\":{");
    put_pair(out, "format", "pt");
    for (int32_t i = 0; i < n_notes; i++) {
        qr_buf_put_byte(out, ',');
        put_pair(out, note[i].key, note[i].value);
    }
    qr_buf_put_byte(out, '}');
    for (int32_t i = 0; i < n; i++) {
        const struct qr_st_entry *e = &entry[i];
        const uint64_t end = begin + qr_st_entry_bytes(e);
        qr_buf_put_byte(out, ',');
        qr_json_put_str(out, e->name, strlen(e->name));
        qr_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[%" PRId64, type_name(e), e->shape[0]);
        for (int32_t k = 1; k < e->n_dims; k++)
            qr_buf_printf(out, ",%" PRId64, e->shape[k]);
        qr_buf_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
        begin = end;
    }
    qr_buf_put_byte(out, '}');
    while (out->len % DATA_ALIGN != 0)
        qr_buf_put_byte(out, ' ');
    const uint64_t len = htole64(out->len - 8);
    memcpy(out->data, &len, 8);
    return begin;
}

int qr_st_out_open(struct qr_st_out *o, const char *path, const struct qr_st_entry *entry, int32_t n, const struct qr_st_note *note, int32_t n_notes,
                   struct qr_err *err)
{
    QR_ASSERT(o != NULL && path != NULL && err != NULL);
    QR_ASSERT((entry != NULL || n == 0) && (note != NULL || n_notes == 0));
    struct qr_buf header = {0};
    int rc = qr_file_out_open(&o->file, path, err);
    if (rc)
        return rc;
    o->left = put_header(&header, entry, n, note, n_notes);
    rc = qr_file_out_put(&o->file, header.data, header.len, err);
    qr_buf_release(&header);
    if (rc)
        qr_st_out_abandon(o);
    return rc;
}

int qr_st_out_put(struct qr_st_out *o, const void *bytes, size_t n, struct qr_err *err)
{
    QR_ASSERT(o != NULL && err != NULL);
    QR_ASSERT(n <= o->left);
    o->left -= n;
    return qr_file_out_put(&o->file, bytes, n, err);
}

int qr_st_out_close(struct qr_st_out *o, bool sync, struct qr_err *err)
{
    QR_ASSERT(o != NULL && err != NULL);
    QR_ASSERT(o->left == 0);
    return qr_file_out_close(&o->file, sync, err);
}

void qr_st_out_abandon(struct qr_st_out *o)
{
    QR_ASSERT(o != NULL);
    qr_file_out_abandon(&o->file);
}
