#include "tokenizer/normalize.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/nfc.h"

void qr_normalizer_release(struct qr_normalizer *z)
{
    for (int32_t i = 0; i < z->n; i++) {
        qr_free(z->step[i].text);
        qr_pattern_close(z->step[i].pattern);
    }
    z->n = 0;
}

void qr_norm_work_release(struct qr_norm_work *w)
{
    for (int i = 0; i < 2; i++) {
        qr_buf_release(&w->text[i]);
        qr_buf_release(&w->trust[i]);
    }
    qr_buf_release(&w->points);
}

/* One step's output: text, and trust when the input has it. */
struct sink {
    struct qr_buf *text, *trust;
    bool with_trust;
};

static void put_filled(const struct sink *s, const char *text, size_t n, bool trusted)
{
    qr_buf_put(s->text, text, n);
    if (!s->with_trust)
        return;
    qr_buf_reserve(s->trust, n);
    memset(s->trust->data + s->trust->len, trusted, n);
    s->trust->len += n;
}

static void put_same(const struct sink *s, const struct qr_text *in, size_t from, size_t to)
{
    qr_buf_put(s->text, in->data + from, to - from);
    if (s->with_trust)
        qr_buf_put(s->trust, in->trust + from, to - from);
}

static bool all_trusted(const struct qr_text *in, size_t from, size_t to)
{
    return !in->trust || !memchr(in->trust + from, 0, to - from);
}

static int too_long(struct qr_err *err)
{
    return qr_err_set(err, QR_E_TOO_LARGE, "the tokenizer's normalizers make the text longer than %zu bytes", QR_NORM_BYTES_MAX);
}

static int replace(const struct qr_norm_step *step, struct qr_matcher *m, const struct qr_text *in, const struct sink *s,
                   struct qr_err *err)
{
    size_t at = 0, from = 0, start, end;
    bool any = false;
    while (from <= in->len) {
        int rc = qr_pattern_find(step->pattern, m, in->data, in->len, from, &start, &end, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            break;
        if (start != end || !any || start != at) { /* an empty match right behind another does not count */
            put_same(s, in, at, start);
            put_filled(s, step->text, step->n_text, all_trusted(in, start, end));
            if (s->text->len > QR_NORM_BYTES_MAX)
                return too_long(err);
            at = end;
            any = true;
        }
        from = end;
        if (start == end) { /* an empty match: go on behind the next character */
            uint32_t cp;
            from += end < in->len ? (size_t)qr_utf8_decode(in->data + end, in->len - end, &cp) : 1;
        }
    }
    put_same(s, in, at, in->len);
    return 0;
}

static void strip(const struct qr_norm_step *step, const struct qr_text *in, const struct sink *s)
{
    size_t from = 0, to = in->len;
    uint32_t cp;
    while (step->left && from < to) {
        int32_t n = qr_utf8_decode(in->data + from, to - from, &cp);
        if (!qr_is_space(cp))
            break;
        from += (size_t)n;
    }
    while (step->right && to > from) {
        size_t n = qr_utf8_last(in->data + from, to - from);
        qr_utf8_decode(in->data + to - n, n, &cp);
        if (!qr_is_space(cp))
            break;
        to -= n;
    }
    put_same(s, in, from, to);
}

/* Code points below U+0300 are composed already and begin anew, so text is taken apart in front of each of them; a part
 * that comes out as it went in keeps its trust byte by byte, another is trusted when all of it was. */
static void unicode_form(enum qr_nf form, struct qr_norm_work *w, const struct qr_text *in, const struct sink *s)
{
    bool latin_is_inert = form == QR_NFC;
    for (size_t at = 0; at < in->len;) {
        size_t next = at, marks;
        while (next < in->len && (unsigned char)in->data[next] < (latin_is_inert ? 0xCC : 0x80))
            next++;
        marks = next;
        while (next < in->len && (unsigned char)in->data[next] >= (latin_is_inert ? 0xCC : 0x80))
            next += (size_t)qr_utf8_length((unsigned char)in->data[next]);
        if (marks == in->len) {
            put_same(s, in, at, marks);
            return;
        }
        while (marks > at && ((unsigned char)in->data[--marks] & 0xC0) == 0x80)
            ;
        put_same(s, in, at, marks);
        size_t before = s->text->len;
        qr_unicode_form(form, s->text, &w->points, in->data + marks, next - marks);
        size_t n = s->text->len - before;
        bool same = n == next - marks && memcmp(s->text->data + before, in->data + marks, n) == 0;
        if (s->with_trust && same)
            qr_buf_put(s->trust, in->trust + marks, n);
        for (size_t i = 0; s->with_trust && !same && i < n; i++)
            qr_buf_put_byte(s->trust, all_trusted(in, marks, next));
        at = next;
    }
}

static int run_step(const struct qr_norm_step *step, struct qr_norm_work *w, struct qr_matcher *m, const struct qr_text *in,
                    const struct sink *s, struct qr_err *err)
{
    switch (step->kind) {
    case QR_NORM_NFC: unicode_form(QR_NFC, w, in, s); return 0;
    case QR_NORM_NFD: unicode_form(QR_NFD, w, in, s); return 0;
    case QR_NORM_NFKC: unicode_form(QR_NFKC, w, in, s); return 0;
    case QR_NORM_NFKD: unicode_form(QR_NFKD, w, in, s); return 0;
    case QR_NORM_PREPEND:
        if (in->len > 0)
            put_filled(s, step->text, step->n_text, true);
        put_same(s, in, 0, in->len);
        return 0;
    case QR_NORM_REPLACE: return replace(step, m, in, s, err);
    case QR_NORM_STRIP: strip(step, in, s); return 0;
    }
    return 0;
}

int qr_normalize(const struct qr_normalizer *z, struct qr_norm_work *w, struct qr_matcher *m, struct qr_text in,
                 struct qr_text *out, struct qr_err *err)
{
    QR_ASSERT(z != NULL && w != NULL && out != NULL);
    QR_ASSERT(in.data != NULL || in.len == 0);
    for (int32_t i = 0; i < z->n; i++) {
        struct sink s = {&w->text[i & 1], &w->trust[i & 1], in.trust != NULL};
        s.text->len = 0;
        s.trust->len = 0;
        qr_buf_reserve(s.text, in.len + in.len / 4);
        int rc = run_step(&z->step[i], w, m, &in, &s, err);
        if (rc != 0)
            return rc;
        if (s.text->len > QR_NORM_BYTES_MAX)
            return too_long(err);
        in = (struct qr_text){s.text->data, s.with_trust ? (const uint8_t *)s.trust->data : NULL, s.text->len};
    }
    *out = in;
    return 0;
}
