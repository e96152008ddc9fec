/* heads.c - answers that are messages with heads: <|channel|>analysis<|message|>..., >>>name\n... A head says what its
 * body is: reasoning, text, or the arguments of a call. */
#include <ctype.h>

#include "answers/dialect/reader.h"

#define HEAD_MAX 1024

static void begin_body(struct qr_answer_parser *p, enum qr_part part, bool raw)
{
    p->body = part;
    p->raw = raw;
    p->pass = (struct qr_json_pass){0};
    p->state = QR_READ_BODY;
    p->fresh = true;
}

/* What begins like a head, `len` bytes of it, is text. */
static void refuse_head(struct qr_answer_parser *p, size_t len)
{
    qr_say(p, QR_PART_CONTENT, qr_held(p), len);
    p->at += len;
    begin_body(p, QR_PART_CONTENT, false);
    p->fresh = p->fresh && len == 0;
}

/* Whether a head may begin with s[0..n). */
static enum qr_match may_be_head(const struct qr_heads *h, const char *s, size_t n)
{
    const char *begins[] = {h->start, h->turn, h->recipient, "<|start|>"};
    enum qr_match best = QR_MATCH_NO;
    for (int i = 0; i < QR_COUNT(begins); i++) {
        const enum qr_match m = begins[i] && *begins[i] ? qr_match_exactly(s, n, begins[i], strlen(begins[i])) : QR_MATCH_NO;
        best = m > best ? m : best;
    }
    return best;
}

/* The word behind the last `before` in s[0..n). */
static bool word_behind(const char *s, size_t n, const char *before, const char **word, size_t *len)
{
    const size_t skip = strlen(before);
    const char *last = NULL;
    for (size_t i = 0; i + skip <= n; i++)
        if (memcmp(s + i, before, skip) == 0)
            last = s + i + skip;
    if (!last)
        return false;
    const size_t left = (size_t)(s + n - last);
    size_t k = 0;
    while (k < left && !qr_is_blank(last[k]) && last[k] != '<')
        k++;
    *word = last;
    *len = k;
    return true;
}

static bool says(const char *s, size_t n, const char *text)
{
    return strlen(text) == n && memcmp(s, text, n) == 0;
}

/* A whole head with marks: s[0..n), its end marker left out. */
static void take_head(struct qr_answer_parser *p, const char *s, size_t n)
{
    const struct qr_heads *h = &p->d->heads;
    const char *word;
    size_t len;
    const size_t skip = strlen(h->function);
    if (word_behind(s, n, h->recipient, &word, &len) && len > skip && memcmp(word, h->function, skip) == 0 && !p->o.calls_are_text) {
        qr_buf_clear(&p->id);
        qr_call_say(p, word + skip, len - skip);
        begin_body(p, QR_PART_ARGUMENTS, false);
        return;
    }
    const bool thinks = word_behind(s, n, h->start, &word, &len) && says(word, len, h->thinking);
    if (thinks && !p->o.parse_reasoning) {
        const char *from = word - strlen(h->start);
        qr_say(p, QR_PART_CONTENT, from, (size_t)(s + n - from));
        qr_say(p, QR_PART_CONTENT, h->end, strlen(h->end));
    }
    begin_body(p, thinks && p->o.parse_reasoning ? QR_PART_REASONING : QR_PART_CONTENT, thinks && !p->o.parse_reasoning);
}

/* A head that is a line with a name, and nothing else. */
static bool step_name_head(struct qr_answer_parser *p, const char *s, size_t n)
{
    const struct qr_heads *h = &p->d->heads;
    const size_t skip = qr_match_exactly(s, n, h->start, strlen(h->start)) == QR_MATCH_FULL ? strlen(h->start) : 0;
    size_t len = skip;
    while (len < n && len < HEAD_MAX && (isalnum((unsigned char)s[len]) || strchr("_.-", s[len])))
        len++;
    if (len == n && !p->end)
        return false;
    const bool line = len < n && s[len] == '\n' && len > skip;
    if (line && says(s + skip, len - skip, h->content)) {
        begin_body(p, QR_PART_CONTENT, false);
        p->at += len + 1;
        return true;
    }
    const size_t next = line ? len + 1 + qr_blanks(s + len + 1, n - len - 1) : n;
    if (line && next == n && !p->end)
        return false;
    const char *code = p->o.calls_are_text ? NULL : qr_tool_of_code(p->o.tools);
    if (line && code && next < n && s[next] != '{' && says(s + skip, len - skip, code)) {
        qr_buf_clear(&p->id);
        qr_call_say(p, code, strlen(code));
        p->at += len + 1;
        qr_arguments_begin(p, QR_ARGS_CODE);
        return true;
    }
    if (line && !p->o.calls_are_text && (next == n || s[next] == '{')) {
        qr_buf_clear(&p->id);
        qr_call_say(p, s + skip, len - skip);
        begin_body(p, QR_PART_ARGUMENTS, false);
        p->at += len + 1;
        return true;
    }
    refuse_head(p, skip);
    return true;
}

bool qr_step_head(struct qr_answer_parser *p)
{
    const struct qr_heads *h = &p->d->heads;
    p->at += qr_blanks(qr_held(p), qr_held_len(p));
    const char *s = qr_held(p);
    const size_t n = qr_held_len(p), end_len = strlen(h->end);
    if (n == 0)
        return false;
    if (!*h->recipient)
        return step_name_head(p, s, n);
    const enum qr_match head = may_be_head(h, s, n);
    if (head == QR_MATCH_PART && !p->end)
        return false;
    if (head != QR_MATCH_FULL) {
        begin_body(p, QR_PART_CONTENT, false);
        return true;
    }
    for (size_t i = p->seen; i + end_len <= n && i <= HEAD_MAX; i++)
        if (memcmp(s + i, h->end, end_len) == 0) {
            p->seen = 0;
            take_head(p, s, i);
            p->at += i + end_len;
            return true;
        }
    p->seen = n > end_len ? n - end_len : 0;
    if (n > HEAD_MAX + end_len) {
        p->seen = 0;
        refuse_head(p, 1);
        return true;
    }
    p->at = p->end ? p->held.len : p->at; /* a head that was cut off says nothing */
    return false;
}

/* Where in s[0..n) the body ends. */
static enum qr_match find_body_end(const struct qr_answer_parser *p, const char *s, size_t n, size_t *at, const char **marker)
{
    const struct qr_heads *h = &p->d->heads;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < QR_COUNT(h->body_end) && h->body_end[k]; k++) {
            const char *m = h->body_end[k];
            const enum qr_match match = s[i] == *m ? qr_match_exactly(s + i, n - i, m, strlen(m)) : QR_MATCH_NO;
            if (match == QR_MATCH_NO || (match == QR_MATCH_PART && p->end))
                continue;
            *at = i;
            *marker = m;
            return match;
        }
    *at = n;
    return QR_MATCH_NO;
}

static bool step_body_text(struct qr_answer_parser *p)
{
    const struct qr_heads *h = &p->d->heads;
    if (p->fresh && !p->raw)
        p->at += qr_blanks(qr_held(p), qr_held_len(p));
    const char *s = qr_held(p), *marker = NULL;
    size_t n = qr_held_len(p), at;
    if (n == 0)
        return false;
    p->fresh = false;
    const enum qr_match m = find_body_end(p, s, n, &at, &marker);
    size_t keep = at;
    while (!p->raw && keep > 0 && (m != QR_MATCH_NO || !p->end) && qr_is_blank(s[keep - 1]))
        keep--; /* white space before the end is the format's */
    if (p->body != QR_PART_ARGUMENTS || p->in_call)
        qr_say(p, p->body, s, keep);
    if (m != QR_MATCH_FULL) {
        p->at += keep;
        return false;
    }
    const bool next = strcmp(marker, h->start) == 0 || strcmp(marker, "<|start|>") == 0; /* it begins the next head */
    if (p->raw)
        qr_say(p, QR_PART_CONTENT, marker, next ? 0 : strlen(marker));
    p->at += at + (next ? 0 : strlen(marker));
    if (p->in_call)
        qr_call_end(p, false);
    if (p->state != QR_READ_NOTHING)
        p->state = QR_READ_HEAD;
    p->seen = 0;
    return true;
}

bool qr_step_body(struct qr_answer_parser *p)
{
    if (p->body != QR_PART_ARGUMENTS)
        return step_body_text(p);
    if (!p->in_call) { /* behind a call's arguments: to the end of its message */
        p->at += qr_blanks(qr_held(p), qr_held_len(p));
        return step_body_text(p);
    }
    if (p->fresh) {
        const size_t blanks = qr_blanks(qr_held(p), qr_held_len(p));
        if (blanks == qr_held_len(p))
            return false;
        p->plain = qr_held(p)[blanks] != '{';
        p->fresh = false;
    }
    return p->plain ? step_body_text(p) : qr_step_json(p);
}
