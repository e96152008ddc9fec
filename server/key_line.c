/* What a line of a key file says. Pure; a message names the field by its place, as the line's text is a secret. */
#include <string.h>

#include "base/assert.h"
#include "server/keys.h"

#define KEY_BYTES_MAX 512

static const struct field {
    const char *name;
    size_t offset; /* in struct qr_key_terms */
    int64_t max;
} fields[] = {
    {"rpm", offsetof(struct qr_key_terms, rpm), 1000000000},
    {"tpm", offsetof(struct qr_key_terms, tpm), 1000000000000},
    {"concurrent", offsetof(struct qr_key_terms, concurrent), 1000000},
    {"weight", offsetof(struct qr_key_terms, weight), 1000},
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int check_key(const char *key, size_t n, struct qr_err *err)
{
    if (n > KEY_BYTES_MAX)
        return qr_err_set(err, QR_E_USAGE, "a key has %zu bytes; expected 1 to %d", n, KEY_BYTES_MAX);
    for (size_t i = 0; i < n; i++)
        if (key[i] <= 0x20 || key[i] == 0x7f)
            return qr_err_set(err, QR_E_USAGE, "a key has a space, a control byte or a byte that is not ASCII; expected visible characters");
    return 0;
}

static bool is_name_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c != 0 && strchr("-_.@:+", c) != NULL);
}

static int take_name(struct qr_key_line *out, const char *v, size_t n, struct qr_err *err)
{
    bool good = n >= 1 && n <= QR_KEY_NAME_MAX;
    for (size_t i = 0; i < n && good; i++)
        good = is_name_byte(v[i]);
    if (!good)
        return qr_err_set(err, QR_E_USAGE, "name= has to be 1 to %d letters, digits and -_.@:+", QR_KEY_NAME_MAX);
    if (out->name_len > 0)
        return qr_err_set(err, QR_E_USAGE, "name= is given twice");
    out->name = v;
    out->name_len = n;
    return 0;
}

static int take_number(struct qr_key_terms *terms, const struct field *f, const char *v, size_t n, struct qr_err *err)
{
    int64_t *to = (int64_t *)(void *)((char *)terms + f->offset), x = 0;
    bool good = n >= 1 && n <= 13;
    for (size_t i = 0; i < n && good; i++) {
        good = v[i] >= '0' && v[i] <= '9';
        x = 10 * x + (v[i] - '0');
    }
    if (!good || x < 1 || x > f->max)
        return qr_err_set(err, QR_E_USAGE, "%s= has to be a number from 1 to %lld; without %s= there is no limit", f->name, (long long)f->max, f->name);
    if (*to != 0)
        return qr_err_set(err, QR_E_USAGE, "%s= is given twice", f->name);
    *to = x;
    return 0;
}

/* Number `number` of its line, from 1. */
static int take_field(struct qr_key_line *out, const char *s, size_t n, int number, struct qr_err *err)
{
    const char *equals = memchr(s, '=', n);
    const size_t n_name = equals ? (size_t)(equals - s) : 0;
    const char *v = s + n_name + 1;
    if (n_name == 4 && memcmp(s, "name", 4) == 0)
        return take_name(out, v, n - n_name - 1, err);
    for (int i = 0; i < QR_COUNT(fields); i++)
        if (n_name > 0 && strlen(fields[i].name) == n_name && memcmp(fields[i].name, s, n_name) == 0)
            return take_number(&out->terms, &fields[i], v, n - n_name - 1, err);
    return qr_err_set(err, QR_E_USAGE, "field %d behind the key is not name=, rpm=, tpm=, concurrent= or weight=", number);
}

/* A line whose key was left out would make a key of a limit. */
static bool begins_with_field(const char *s, size_t n)
{
    struct qr_key_line any = {0};
    struct qr_err err;
    return take_field(&any, s, n, 0, &err) == 0;
}

int qr_key_line_parse(struct qr_key_line *out, const char *line, size_t n, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(line != NULL || n == 0);
    int rc = 0, number = 0;
    *out = (struct qr_key_line){0};
    for (size_t at = 0; at < n && rc == 0; number++) {
        while (at < n && is_blank(line[at]))
            at++;
        const size_t begin = at;
        if (at == n || line[at] == '#')
            break;
        while (at < n && !is_blank(line[at]))
            at++;
        if (number > 0) {
            rc = take_field(out, line + begin, at - begin, number, err);
            continue;
        }
        out->key = line + begin;
        out->len = at - begin;
        rc = begins_with_field(out->key, out->len) ? qr_err_set(err, QR_E_USAGE, "the line begins with a field; the key comes first")
                                                   : check_key(out->key, out->len, err);
    }
    if (rc == 0 && out->len > 0 && out->terms.weight == 0)
        out->terms.weight = 1;
    return rc;
}
