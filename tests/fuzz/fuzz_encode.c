/* Arbitrary text through four small tokenizers. The first byte picks one, the second where trust ends; the rest is text.
 * Byte level and byte fallback lose nothing; untrusted text makes no special token; streaming equals decoding; a text of one
 * trusted segment has the ids of the whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/bytechar.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ADDED "\"added_tokens\":[{\"id\":900,\"content\":\"<s>\",\"special\":true},{\"id\":901,\"content\":\"<|e|>\",\"special\":true,\"rstrip\":true}," \
              "{\"id\":902,\"content\":\"  \",\"special\":false},{\"id\":903,\"content\":\"abc\",\"special\":true,\"normalized\":true}],"

static const char *const head[] = {
    "{" ADDED "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
    "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
    "\"decoder\":{\"type\":\"ByteLevel\"}",
    "{" ADDED "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false},{\"type\":\"Digits\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9][0-9][0-9]\"},"
    "\"behavior\":\"Isolated\"}]},\"decoder\":{\"type\":\"ByteLevel\"}",
    "{" ADDED "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}",
    "{" ADDED "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"},"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}",
};

static struct qr_tokenizer *make(int kind)
{
    struct qr_bytechar b;
    struct qr_buf json = {0};
    struct qr_err err = {0};
    struct qr_tokenizer *t = NULL;
    qr_bytechar_init(&b);
    qr_buf_printf(&json, "%s,\"model\":{\"byte_fallback\":%s,\"ignore_merges\":%s,\"vocab\":{", head[kind], kind >= 2 ? "true" : "false",
                  kind == 0 ? "true" : "false");
    for (int c = 0; c < 256; c++) {
        if (kind < 2)
            qr_buf_printf(&json, "\"%s%.*s\":%d,", c == '"' || c == '\\' ? "\\" : "", (int)b.len[c], b.utf8[c], c);
        else
            qr_buf_printf(&json, "\"<0x%02X>\":%d,", (unsigned)c, c);
    }
    qr_buf_printf(&json,
            "%s\"aa\":300,\"aaaa\":301,\"ab\":302,\"<s\":303,\"<s>\":900,\"abc\":903},\"merges\":[\"a a\",\"aa aa\",\"a b\",\"< s\",\"<s >\",\"ab c\"]}}",
                  kind < 2 ? "" : "\"a\":310,\"b\":311,\"c\":312,\"<\":313,\"s\":314,\">\":315,\"_\":316,");
    int rc = qr_tokenizer_parse(&t, json.data, json.len, NULL, 0, &err);
    if (rc != 0)
        qr_panic("fuzz_encode: tokenizer %d: %s", kind, err.msg);
    qr_buf_release(&json);
    return t;
}

static void check_stream(const struct qr_tokenizer *t, const struct qr_ids *ids, const struct qr_buf *whole)
{
    struct qr_detok d;
    char *piece = malloc(qr_detok_piece_max(t));
    size_t n = 0;
    qr_detok_init(&d, t, NULL, 0, false);
    for (int32_t i = 0; i <= ids->n; i++) {
        size_t len = i < ids->n ? qr_detok_push(&d, piece, ids->id[i]) : qr_detok_flush(&d, piece);
        QR_ASSERT(n + len <= whole->len && (len == 0 || memcmp(whole->data + n, piece, len) == 0));
        n += len;
    }
    QR_ASSERT(n == whole->len);
    free(piece);
}

static bool has_special(const struct qr_tokenizer *t, const struct qr_ids *ids)
{
    for (int32_t i = 0; i < ids->n; i++)
        if (qr_tokenizer_is_special(t, ids->id[i]))
            return true;
    return false;
}

static void check_text(const struct qr_tokenizer *t, int kind, const char *text, size_t n, size_t border)
{
    struct qr_ids ids = {0}, other = {0};
    struct qr_buf whole = {0};
    struct qr_err err;
    struct qr_segment one = {0, n, false}, two[2] = {{0, border, true}, {border, n - border, false}};
    QR_ASSERT(qr_tokenizer_encode(t, &ids, text, n, 0, &err) == 0);
    QR_ASSERT(!has_special(t, &ids));
    QR_ASSERT(qr_tokenizer_encode_segments(t, &other, text, n, &one, 1, 0, &err) == 0);
    QR_ASSERT(ids.n == other.n && (ids.n == 0 || memcmp(ids.id, other.id, (size_t)ids.n * sizeof *ids.id) == 0));
    qr_tokenizer_decode(t, &whole, ids.id, ids.n, false);
    check_stream(t, &ids, &whole);
    if (kind == 1 && qr_utf8_valid_prefix(text, n) == n)
        QR_ASSERT(whole.len == n && (n == 0 || memcmp(whole.data, text, n) == 0));
    if (kind == 2 && qr_utf8_valid_prefix(text, n) == n && !memchr(text, '_', n))
        QR_ASSERT(whole.len == n && (n == 0 || memcmp(whole.data, text, n) == 0));
    other.n = 0;
    QR_ASSERT(qr_tokenizer_encode_segments(t, &other, text, n, two, 2, QR_ENCODE_ADD_SPECIAL, &err) == 0);
    other.n = ids.n = 0;
    one.trusted = true;
    QR_ASSERT(qr_tokenizer_encode(t, &ids, text, n, QR_ENCODE_PARSE_SPECIAL, &err) == 0);
    QR_ASSERT(qr_tokenizer_encode_segments(t, &other, text, n, &one, 1, 0, &err) == 0);
    QR_ASSERT(ids.n == other.n && (ids.n == 0 || memcmp(ids.id, other.id, (size_t)ids.n * sizeof *ids.id) == 0));
    qr_ids_release(&ids);
    qr_ids_release(&other);
    qr_buf_release(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct qr_tokenizer *t[4];
    if (size < 2)
        return 0;
    int kind = data[0] & 3;
    if (!t[kind])
        t[kind] = make(kind);
    size_t n = size - 2, border = data[1] < n ? data[1] : n;
    char *text = malloc(n + 1);
    memcpy(text, data + 2, n);
    check_text(t[kind], kind, text, n, border);
    free(text);
    return 0;
}
