/* said.h - what an answer's parser said, joined: one line for each stretch, so that two ways to cut a text can be compared. */
#ifndef TESTS_ANSWERS_SAID_H
#define TESTS_ANSWERS_SAID_H

#include <stdint.h>
#include <string.h>

#include "answers/dialect/dialect.h"
#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"

struct said {
    struct qr_buf text; /* parts joined: [content]..., [reasoning]..., [call 0 name id]..., [end 0 id] */
    enum qr_part last;
    bool any, in_call;
    int32_t n_calls;
};

static inline void said_hear(void *user, const struct qr_part_text *t)
{
    static const char *const names[] = {"content", "reasoning", "call", "arguments", "end"};
    struct said *s = user;
    const bool joins = s->any && s->last == t->part && t->part != QR_PART_CALL && t->part != QR_PART_CALL_END;
    if (t->part == QR_PART_CALL) {
        QR_ASSERT(!s->in_call && t->call == s->n_calls);
        s->in_call = true;
        s->n_calls++;
    }
    if (t->part == QR_PART_ARGUMENTS || t->part == QR_PART_CALL_END)
        QR_ASSERT(s->in_call && t->call == s->n_calls - 1);
    if (t->part == QR_PART_CONTENT || t->part == QR_PART_REASONING)
        QR_ASSERT(!s->in_call && t->len > 0);
    if (t->part == QR_PART_CALL_END)
        s->in_call = false;
    if (!joins)
        qr_buf_printf(&s->text, "\n[%s%s%s]", names[t->part], t->id ? " " : "", t->id ? t->id : "");
    qr_buf_put(&s->text, t->text, t->len);
    s->last = t->part;
    s->any = true;
}

/* The text in pieces that end where `cut`, one bit a byte, says; NULL: whole. end_apart: the end is told by itself. */
static inline void said_feed(struct said *s, const struct qr_dialect *d, const struct qr_answer_options *o, const char *text, size_t len,
                             const uint8_t *cut, bool end_apart)
{
    struct qr_answer_parser *p = qr_answer_parser_new(d, o);
    *s = (struct said){0};
    size_t from = 0;
    for (size_t i = 1; cut && i < len; i++)
        if (cut[i / 8] >> (i % 8) & 1) {
            qr_answer_parser_feed(p, text + from, i - from, false, said_hear, s);
            from = i;
        }
    qr_answer_parser_feed(p, text + from, len - from, !end_apart, said_hear, s);
    if (end_apart)
        qr_answer_parser_feed(p, "", 0, true, said_hear, s);
    QR_ASSERT(!s->in_call);
    qr_answer_parser_free(p);
}

#endif
