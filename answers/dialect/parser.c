/* parser.c - takes an answer apart while it is generated: content, reasoning, calls. One parser for all dialects: what
 * it looks for are the dialect's texts.
 *
 * * Guarantee: the parts, joined, depend on the text and not on how it was cut into pieces. No text is lost: what
 * begins like a call and is none is content. What is held back is white space before a call, what may yet become a
 * marker, and a call's head until it is certain. One owning thread.
 */
#include "answers/dialect/reader.h"

enum qr_match qr_match_exactly(const char *s, size_t n, const char *text, size_t text_len)
{
    const size_t m = n < text_len ? n : text_len;
    if (memcmp(s, text, m) != 0)
        return QR_MATCH_NO;
    return n >= text_len ? QR_MATCH_FULL : QR_MATCH_PART;
}

enum qr_match qr_match_loosely(const char *s, size_t n, const char *text, size_t *len)
{
    size_t i = 0;
    for (; *text; text++) {
        if (qr_is_blank(*text))
            continue;
        while (i < n && qr_is_blank(s[i]))
            i++;
        if (i == n)
            return QR_MATCH_PART;
        if (s[i] != *text)
            return QR_MATCH_NO;
        i++;
    }
    *len = i;
    return QR_MATCH_FULL;
}

void qr_say(struct qr_answer_parser *p, enum qr_part part, const char *text, size_t len)
{
    if (len == 0)
        return;
    const struct qr_part_text t = {.part = part, .call = p->n_calls - 1, .text = text, .len = len};
    if (part == QR_PART_CONTENT)
        p->content = p->spoke = true;
    if (part == QR_PART_ARGUMENTS)
        p->said_arguments = true;
    p->said(p->user, &t);
}

void qr_read_text_from(struct qr_answer_parser *p)
{
    p->state = QR_READ_TEXT;
    p->leading = true;
    p->spoke = false;
}

/* ---- reasoning ---- */

/* Behind the start marker: white space, the marker once more, a label. */
static bool skip_thinking_start(struct qr_answer_parser *p)
{
    const struct qr_dialect *d = p->d;
    const char *start = d->think_start, *label = qr_text_of(d->think_label);
    p->at += qr_blanks(qr_held(p), qr_held_len(p));
    const char *s = qr_held(p);
    const size_t n = qr_held_len(p);
    if (n == 0)
        return p->end;
    const enum qr_match again = qr_match_exactly(s, n, start, strlen(start));
    const enum qr_match named = *label ? qr_match_exactly(s, n, label, strlen(label)) : QR_MATCH_NO;
    if (again == QR_MATCH_FULL || named == QR_MATCH_FULL) {
        p->at += again == QR_MATCH_FULL ? strlen(start) : strlen(label);
        return true;
    }
    if ((again == QR_MATCH_PART || named == QR_MATCH_PART) && !p->end)
        return false;
    p->fresh = false;
    return true;
}

/* Where in s[0..n) reasoning ends: at its end marker, or at a call's marker where that ends it. *part: the text may end within such a marker. */
static size_t find_thinking_end(const struct qr_answer_parser *p, const char *s, size_t n, bool *found, bool *at_call)
{
    const char *stop = p->d->think_end;
    const size_t stop_len = strlen(stop);
    *found = *at_call = false;
    for (size_t i = 0; i < n; i++) {
        enum qr_match m = s[i] == *stop ? qr_match_exactly(s + i, n - i, stop, stop_len) : QR_MATCH_NO;
        *found = m == QR_MATCH_FULL;
        for (int32_t k = 0; p->d->calls_end_thinking && k < p->n_marks && m == QR_MATCH_NO; k++) {
            const struct qr_mark *mark = &p->mark[k];
            m = mark->kind == QR_MARK_CALL && s[i] == *mark->text ? qr_match_exactly(s + i, n - i, mark->text, mark->len) : QR_MATCH_NO;
            *at_call = m == QR_MATCH_FULL;
        }
        if (m == QR_MATCH_FULL || (m == QR_MATCH_PART && !p->end))
            return i;
    }
    return n;
}

static bool step_reasoning(struct qr_answer_parser *p)
{
    const bool shown = !p->o.parse_reasoning; /* markers stay in the content */
    if (p->fresh && !shown)
        return qr_held_len(p) > 0 && skip_thinking_start(p);
    const char *s = qr_held(p);
    bool found, at_call;
    size_t n = qr_held_len(p), upto = find_thinking_end(p, s, n, &found, &at_call), keep = upto;
    while (!shown && keep > 0 && s[keep - 1] == '\n')
        keep--; /* line ends before the marker are the format's */
    qr_say(p, shown ? QR_PART_CONTENT : QR_PART_REASONING, s, keep);
    if (found || at_call) {
        const size_t len = found ? strlen(p->d->think_end) : 0;
        if (shown && found)
            qr_say(p, QR_PART_CONTENT, s + upto, len);
        p->at += upto + len;
        qr_read_text_from(p);
        p->leading = !shown;
        p->thought = true;
        return true;
    }
    p->at += p->end ? n : keep;
    return false;
}

/* ---- content ---- */

static bool may_think(const struct qr_answer_parser *p)
{
    return p->d->think_anywhere || (!p->content && !p->thought);
}

/* The first marker in s[0..n), or NULL; *at: where it is, or may be, or n. */
static const struct qr_mark *find_mark(const struct qr_answer_parser *p, const char *s, size_t n, size_t *at)
{
    bool may_think_here = may_think(p);
    for (size_t i = 0; i < n; i++) {
        may_think_here = may_think_here && (p->d->think_anywhere || i == 0 || qr_is_blank(s[i - 1]));
        if (!p->begins[(unsigned char)s[i]])
            continue;
        bool part = false;
        for (int32_t k = 0; k < p->n_marks; k++) {
            const struct qr_mark *m = &p->mark[k];
            if (*m->text != s[i] || (m->kind == QR_MARK_THINK && !may_think_here))
                continue;
            const enum qr_match match = qr_match_exactly(s + i, n - i, m->text, m->len);
            part = part || match == QR_MATCH_PART;
            if (match == QR_MATCH_FULL) {
                *at = i;
                return m;
            }
        }
        if (part && !p->end) {
            *at = i;
            return NULL;
        }
    }
    *at = n;
    return NULL;
}

static void begin_reasoning(struct qr_answer_parser *p, const struct qr_mark *m)
{
    if (!p->o.parse_reasoning)
        qr_say(p, QR_PART_CONTENT, m->text, m->len);
    p->state = QR_READ_REASONING;
    p->fresh = true;
}

/* A call's marker, `at` bytes behind what is held: a call begins, or more text is needed, or the marker is text. */
static bool at_call_mark(struct qr_answer_parser *p, const struct qr_mark *m, size_t at)
{
    size_t keep = at;
    while (keep > 0 && qr_is_blank(qr_held(p)[keep - 1]))
        keep--;
    qr_say(p, QR_PART_CONTENT, qr_held(p), keep); /* in any case */
    p->at += keep;
    const enum qr_match call = qr_call_begin(p, at - keep, false);
    if (call == QR_MATCH_NO) {
        const size_t len = at - keep + m->len;
        qr_say(p, QR_PART_CONTENT, qr_held(p), len);
        p->at += len;
    }
    return call != QR_MATCH_PART;
}

static bool at_mark(struct qr_answer_parser *p, const struct qr_mark *m, size_t at)
{
    if (m->kind == QR_MARK_CALL)
        return at_call_mark(p, m, at);
    const char *s = qr_held(p);
    size_t keep = at;
    while (keep > 0 && !p->spoke && qr_is_blank(s[keep - 1]))
        keep--;
    qr_say(p, QR_PART_CONTENT, s, keep > 0 ? at : 0);
    p->at += at + m->len;
    if (m->kind == QR_MARK_THINK)
        begin_reasoning(p, m);
    else if (m->kind == QR_MARK_CONTENT)
        p->leading = true;
    return true;
}

static bool step_text(struct qr_answer_parser *p)
{
    if (p->leading)
        p->at += qr_blanks(qr_held(p), qr_held_len(p));
    const char *s = qr_held(p);
    size_t n = qr_held_len(p), at, first = qr_blanks(s, n);
    if (n == 0)
        return false;
    p->leading = false;
    if (!p->spoke && first < n && (s[first] == '{' || s[first] == '[')) {
        const enum qr_match call = qr_call_begin(p, first, true);
        if (call != QR_MATCH_NO)
            return call == QR_MATCH_FULL;
    }
    const struct qr_mark *m = find_mark(p, s, n, &at);
    if (m)
        return at_mark(p, m, at);
    size_t keep = at;
    while (!p->end && keep > 0 && qr_is_blank(s[keep - 1]))
        keep--;
    qr_say(p, QR_PART_CONTENT, s, keep);
    p->at += keep;
    return false;
}

/* ---- the parser ---- */

static void add_mark(struct qr_answer_parser *p, const char *text, size_t len, enum qr_mark_kind kind)
{
    if (!text || len == 0 || p->n_marks == QR_MARKS_MAX)
        return;
    for (int32_t i = 0; i < p->n_marks; i++)
        if (p->mark[i].len == len && memcmp(p->mark[i].text, text, len) == 0)
            return;
    p->mark[p->n_marks++] = (struct qr_mark){.text = text, .len = len, .kind = kind};
    p->begins[(unsigned char)*text] = true;
}

static void collect_marks(struct qr_answer_parser *p)
{
    const struct qr_dialect *d = p->d;
    if (d->think_start)
        add_mark(p, d->think_start, strlen(d->think_start), QR_MARK_THINK);
    for (int32_t i = 0; i < p->n_forms; i++)
        for (int32_t k = 0; k < p->form[i].n_starts; k++)
            add_mark(p, p->form[i].starts[k], qr_first_marker(p->form[i].starts[k]), QR_MARK_CALL);
    if (d->content_start)
        add_mark(p, d->content_start, strlen(d->content_start), QR_MARK_CONTENT);
    if (d->content_end)
        add_mark(p, d->content_end, strlen(d->content_end), QR_MARK_DROP);
    for (int i = 0; i < QR_DROPPED_MAX && d->dropped[i]; i++)
        add_mark(p, d->dropped[i], strlen(d->dropped[i]), QR_MARK_DROP);
}

struct qr_answer_parser *qr_answer_parser_new(const struct qr_dialect *d, const struct qr_answer_options *o)
{
    QR_ASSERT(d != NULL);
    QR_ASSERT(o != NULL);
    struct qr_answer_parser *p = qr_alloc(1, sizeof *p);
    p->d = d;
    p->o = *o;
    for (int32_t i = 0; i < d->n_forms && !o->calls_are_text; i++)
        qr_reading_init(&p->form[p->n_forms++], &d->form[i]);
    collect_marks(p);
    p->state = d->heads.start ? QR_READ_HEAD : QR_READ_TEXT;
    if (o->starts_inside && d->think_end && *d->think_end && !d->heads.start) {
        p->state = QR_READ_REASONING;
        p->fresh = true;
        p->preface = !o->parse_reasoning;
    }
    return p;
}

void qr_answer_parser_free(struct qr_answer_parser *p)
{
    if (!p)
        return;
    for (int32_t i = 0; i < p->n_forms; i++)
        qr_reading_release(&p->form[i]);
    qr_buf_release(&p->held);
    qr_buf_release(&p->name);
    qr_buf_release(&p->id);
    qr_buf_release(&p->key);
    qr_buf_release(&p->out);
    qr_free(p);
}

static bool step(struct qr_answer_parser *p)
{
    switch (p->state) {
    case QR_READ_TEXT: return step_text(p);
    case QR_READ_REASONING: return step_reasoning(p);
    case QR_READ_CODE: return qr_step_code(p);
    case QR_READ_JSON: return qr_step_json(p);
    case QR_READ_REST: return qr_step_rest(p);
    case QR_READ_TAGGED: return qr_step_tagged(p);
    case QR_READ_VALUE: return qr_step_value(p);
    case QR_READ_LOOSE: return qr_step_loose(p);
    case QR_READ_AFTER: return qr_step_call_after(p);
    case QR_READ_HEAD: return qr_step_head(p);
    case QR_READ_BODY: return qr_step_body(p);
    case QR_READ_NOTHING: p->at = p->held.len; return false;
    }
    return false;
}

void qr_answer_parser_feed(struct qr_answer_parser *p, const char *text, size_t len, bool end, qr_part_fn *said, void *user)
{
    QR_ASSERT(p != NULL && said != NULL);
    QR_ASSERT(len == 0 || text != NULL);
    qr_buf_put(&p->held, text, len);
    p->end = end;
    p->said = said;
    p->user = user;
    if (p->preface && (p->held.len > 0 || end))
        qr_say(p, QR_PART_CONTENT, qr_text_of(p->d->think_open), strlen(qr_text_of(p->d->think_open)));
    p->preface = p->preface && p->held.len == 0;
    while (step(p))
        ;
    if (end && p->in_call)
        qr_call_end(p, true);
    if (p->held.data)
        qr_buf_drop_front(&p->held, p->at);
    p->at = 0;
}
