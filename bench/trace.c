/* trace.c - reads recorded traces: CSV by the names in its header, JSON lines by their keys. Files come from outside:
 * sizes, times and lengths are bounded, and an error names file and line. Equal hash ids give equal prompt tokens, so
 * prefix hits are those of the recording. Everything is read before the first request. One owner. */
#include "bench/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { FILE_MAX = 256 << 20, TOKENS_MAX = 1 << 24, HASH_TOKENS = 512, COLUMNS_MAX = 32 };

/* The file while it is read: a line at a time. */
struct reader {
    const char *path, *at, *end;
    int32_t line;
    struct qr_trace *out;
    int32_t n_cap, hashes_cap;
    int64_t first_us;
};

static int damaged(const struct reader *r, const char *what, struct qr_err *err)
{
    return qr_err_set(err, QR_E_DAMAGED, "%s, line %d: %s", r->path, r->line, what);
}

/* The next line without its end, or false. */
static bool next_line(struct reader *r, const char **line, size_t *len)
{
    if (r->at == r->end)
        return false;
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    *line = r->at;
    *len = (size_t)((stop ? stop : r->end) - r->at);
    r->at = stop ? stop + 1 : r->end;
    r->line++;
    if (*len > 0 && (*line)[*len - 1] == '\r')
        --*len;
    return true;
}

static int put_entry(struct reader *r, int64_t at_us, int64_t n_prompt, int64_t n_new, int32_t n_hashes, struct qr_err *err)
{
    struct qr_trace *t = r->out;
    if (n_prompt < 1 || n_prompt > TOKENS_MAX || n_new < 1 || n_new > TOKENS_MAX)
        return damaged(r, "the numbers of tokens must be from 1 to 16777216", err);
    if (t->n == 0)
        r->first_us = at_us;
    int64_t arrival = at_us - r->first_us;
    if (t->n > 0 && arrival < t->entry[t->n - 1].arrival_us)
        return damaged(r, "the time goes backwards", err);
    if (n_hashes > 0 && (int64_t)n_hashes * HASH_TOKENS < n_prompt)
        return damaged(r, "hash_ids are fewer than the prompt's blocks of 512 tokens", err);
    if (t->n == r->n_cap) {
        r->n_cap = r->n_cap ? 2 * r->n_cap : 1024;
        t->entry = qr_realloc(t->entry, (size_t)r->n_cap, sizeof *t->entry);
    }
    t->entry[t->n++] = (struct qr_trace_entry){.arrival_us = arrival,
                                               .n_prompt = (int32_t)n_prompt,
                                               .n_new = (int32_t)n_new,
                                               .first_hash = t->n_hashes - n_hashes,
                                               .n_hashes = n_hashes};
    return 0;
}

/* ---- CSV ---- */

struct columns {
    int time, prompt, new_tokens; /* position, -1: not there */
    int n;
};

/* Splits at commas. Returns the number of fields, or -1 when there are more than COLUMNS_MAX. */
static int split(const char *line, size_t len, const char **field, size_t *field_len)
{
    int n = 0;
    for (size_t i = 0, from = 0; i <= len; i++) {
        if (i < len && line[i] != ',')
            continue;
        if (n == COLUMNS_MAX)
            return -1;
        field[n] = line + from;
        field_len[n++] = i - from;
        from = i + 1;
    }
    return n;
}

static bool is(const char *s, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(s, name, len) == 0;
}

static int read_header(struct reader *r, const char *line, size_t len, struct columns *c, struct qr_err *err)
{
    const char *field[COLUMNS_MAX];
    size_t field_len[COLUMNS_MAX];
    *c = (struct columns){.time = -1, .prompt = -1, .new_tokens = -1, .n = split(line, len, field, field_len)};
    for (int i = 0; i < c->n; i++) {
        if (is(field[i], field_len[i], "TIMESTAMP"))
            c->time = i;
        else if (is(field[i], field_len[i], "ContextTokens") || is(field[i], field_len[i], "num_prefill_tokens"))
            c->prompt = i;
        else if (is(field[i], field_len[i], "GeneratedTokens") || is(field[i], field_len[i], "num_decode_tokens"))
            c->new_tokens = i;
    }
    if (c->prompt < 0 || c->new_tokens < 0)
        return damaged(r, "the header names neither ContextTokens and GeneratedTokens nor num_prefill_tokens and num_decode_tokens", err);
    return 0;
}

/* Up to 9 digits at *s, moved behind them; -1 when there is none. */
static int64_t digits(const char **s, const char *end)
{
    int64_t v = 0;
    const char *from = *s;
    while (*s < end && **s >= '0' && **s <= '9' && *s - from < 9)
        v = v * 10 + *(*s)++ - '0';
    return *s > from ? v : -1;
}

static bool number(const char *s, size_t len, int64_t *out)
{
    const char *end = s + len;
    *out = digits(&s, end);
    return *out >= 0 && s == end;
}

/* Days since 1970-01-01 in the proleptic Gregorian calendar; years are counted from March, so that leap days come last. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year, m = month <= 2 ? month + 9 : month - 3;
    return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 719469;
}

/* "2023-11-16 18:17:03.9799600": microseconds since 1970. */
static bool timestamp(const char *s, size_t len, int64_t *out_us)
{
    static const char after[6] = {'-', '-', ' ', ':', ':', '.'};
    static const int64_t most[6] = {9999, 12, 31, 23, 59, 60};
    const char *end = s + len;
    int64_t part[6], us = 0;
    for (int i = 0; i < 6; i++) {
        part[i] = digits(&s, end);
        if (part[i] < (i == 1 || i == 2) || part[i] > most[i] || (i < 5 && (s == end || *s++ != after[i])))
            return false;
    }
    if (s < end && *s++ != '.')
        return false;
    for (int64_t unit = 100000; s < end; s++, unit /= 10) {
        if (*s < '0' || *s > '9')
            return false;
        us += (*s - '0') * unit;
    }
    *out_us = (((days_of(part[0], part[1], part[2]) * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) * 1000000 + us;
    return true;
}

static int read_csv(struct reader *r, int32_t n_max, struct qr_err *err)
{
    struct columns c = {.n = 0};
    const char *line, *field[COLUMNS_MAX];
    size_t len, field_len[COLUMNS_MAX];
    int rc = next_line(r, &line, &len) ? read_header(r, line, len, &c, err) : damaged(r, "the file is empty", err);
    while (rc == 0 && r->out->n < n_max && next_line(r, &line, &len)) {
        int64_t at_us = 0, n_prompt, n_new;
        if (len == 0)
            continue;
        if (split(line, len, field, field_len) != c.n)
            rc = damaged(r, "another number of fields than in the header", err);
        else if (c.time >= 0 && !timestamp(field[c.time], field_len[c.time], &at_us))
            rc = damaged(r, "TIMESTAMP is not like 2023-11-16 18:17:03.979", err);
        else if (!number(field[c.prompt], field_len[c.prompt], &n_prompt) ||
                 !number(field[c.new_tokens], field_len[c.new_tokens], &n_new))
            rc = damaged(r, "a number of tokens is not a number", err);
        else
            rc = put_entry(r, at_us, n_prompt, n_new, 0, err);
    }
    return rc;
}

/* ---- JSON lines ---- */

static int put_hashes(struct reader *r, const struct qr_json *ids, struct qr_err *err)
{
    struct qr_trace *t = r->out;
    int32_t n = qr_json_count(ids);
    while (t->n_hashes + n > r->hashes_cap) {
        r->hashes_cap = r->hashes_cap ? 2 * r->hashes_cap : 4096;
        t->hashes = qr_realloc(t->hashes, (size_t)r->hashes_cap, sizeof *t->hashes);
    }
    for (const struct qr_json *v = qr_json_first(ids); v != NULL; v = qr_json_after(v)) {
        int64_t id;
        if (!qr_json_i64(v, &id) || id < 0 || id > INT32_MAX)
            return damaged(r, "a hash id is not an integer from 0 to 2147483647", err);
        t->hashes[t->n_hashes++] = (int32_t)id;
    }
    return 0;
}

static int read_json_line(struct reader *r, const struct qr_json *v, struct qr_err *err)
{
    const struct qr_json *field[3] = {qr_json_find(v, "timestamp"), qr_json_find(v, "input_length"), qr_json_find(v, "output_length")};
    const struct qr_json *ids = qr_json_find(v, "hash_ids");
    int64_t value[3];
    for (int i = 0; i < 3; i++) {
        if (field[i] == NULL || !qr_json_i64(field[i], &value[i]) || value[i] < 0 || value[i] > INT64_MAX / 2000)
            return damaged(r, "timestamp, input_length and output_length must be integers from 0", err);
    }
    if (ids != NULL && qr_json_type(ids) != QR_JSON_T_ARRAY)
        return damaged(r, "hash_ids is not an array", err);
    int rc = ids != NULL ? put_hashes(r, ids, err) : 0;
    return rc < 0 ? rc : put_entry(r, value[0] * 1000, value[1], value[2], ids != NULL ? qr_json_count(ids) : 0, err);
}

static int read_jsonl(struct reader *r, int32_t n_max, struct qr_err *err)
{
    const char *line;
    size_t len;
    int rc = 0;
    while (rc == 0 && r->out->n < n_max && next_line(r, &line, &len)) {
        struct qr_json *doc = NULL;
        if (len == 0)
            continue;
        rc = qr_json_parse(&doc, line, len, &qr_json_limits_request, err);
        if (rc < 0)
            qr_err_prefix(err, "%s, line %d: ", r->path, r->line);
        else
            rc = read_json_line(r, doc, err);
        qr_json_free(doc);
    }
    return rc;
}

int qr_trace_read(struct qr_trace *out, const char *path, int32_t n_max, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(n_max >= 1 && err != NULL);
    *out = (struct qr_trace){.hash_tokens = HASH_TOKENS};
    struct qr_buf buf = {0};
    int rc = qr_file_read(&buf, path, QR_FILE_ANY, FILE_MAX, err);
    if (rc == 0) {
        struct reader r = {.path = path, .at = buf.data, .end = buf.data + buf.len, .out = out};
        bool json = buf.len > 0 && buf.data[0] == '{';
        rc = json ? read_jsonl(&r, n_max, err) : read_csv(&r, n_max, err);
        if (rc == 0 && out->n == 0)
            rc = damaged(&r, "there is no entry", err);
    }
    qr_buf_release(&buf);
    if (rc < 0)
        qr_trace_release(out);
    return rc;
}

void qr_trace_release(struct qr_trace *t)
{
    QR_ASSERT(t != NULL);
    qr_free(t->entry);
    qr_free(t->hashes);
    *t = (struct qr_trace){0};
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

void qr_trace_prompt(const struct qr_trace *t, int32_t entry, int32_t *tokens, int32_t vocab)
{
    QR_ASSERT(t != NULL && tokens != NULL);
    QR_ASSERT(entry >= 0 && entry < t->n);
    QR_ASSERT(vocab >= 1);
    const struct qr_trace_entry *e = &t->entry[entry];
    for (int32_t i = 0; i < e->n_prompt; i++) {
        uint64_t stream = e->n_hashes > 0 ? (uint64_t)t->hashes[e->first_hash + i / t->hash_tokens]
                                          : (uint64_t)entry + (1ull << 40);
        uint64_t j = (uint64_t)(e->n_hashes > 0 ? i % t->hash_tokens : i);
        tokens[i] = (int32_t)(mix(stream << 20 ^ j) % (uint64_t)vocab);
    }
}
