#include "engine/output.h"

#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

int32_t qr_output_text_cap(const struct qr_tokenizer *t)
{
    return QR_STOP_BYTES_MAX + (int32_t)qr_detok_piece_max(t) + 16;
}

void qr_output_init(struct qr_output *o, char *text, const struct qr_request *r, int32_t choice, const struct qr_tokenizer *t)
{
    QR_ASSERT(o != NULL && text != NULL && r != NULL);
    QR_ASSERT(choice >= 0 && choice < r->n_choices);
    *o = (struct qr_output){.text = text, .stop_index = -1, .stop_id = -1};
    qr_detok_init(&o->detok, t, r->ids[choice], r->n_prompt, r->sampling.skip_special);
}

/* Feeds text[from..text_len) to every stop string. Returns the offset behind the first match, or -1. Matching starts only once
 * min_tokens have come, but the state follows all text. */
static int32_t scan_stops(struct qr_output *o, const struct qr_request *r, int32_t from)
{
    const struct qr_sampling *p = &r->sampling;
    for (int32_t at = from; at < o->text_len; at++)
        for (int32_t i = 0; i < p->n_stops; i++) {
            const char *stop = p->stop[i];
            size_t k = o->matched[i];
            if (stop[k] == 0) /* matched before min_tokens: go on from its longest border */
                k = r->stop_fail[i][k - 1];
            while (k > 0 && o->text[at] != stop[k])
                k = r->stop_fail[i][k - 1];
            k += o->text[at] == stop[k];
            o->matched[i] = (uint16_t)k;
            if (stop[k] == 0 && o->n_output >= p->min_tokens) {
                o->stop_index = i;
                return at + 1;
            }
        }
    return -1;
}

static int32_t held_back(const struct qr_output *o, const struct qr_sampling *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_stops; i++)
        n = o->matched[i] > n ? o->matched[i] : n;
    return n < o->text_len ? n : o->text_len;
}

void qr_output_end(struct qr_output *o, enum qr_finish finish)
{
    QR_ASSERT(o->finish == QR_FINISH_NONE);
    QR_ASSERT(finish != QR_FINISH_NONE);
    o->text_len += (int32_t)qr_detok_flush(&o->detok, o->text + o->text_len);
    o->n_certain = o->text_len;
    o->finish = finish;
}

/* A stop string matched: the text ends before it, or behind it when it is to be kept. */
static void end_at_stop(struct qr_output *o, const struct qr_request *r, int32_t behind)
{
    int32_t len = (int32_t)strlen(r->sampling.stop[o->stop_index]);
    o->text_len = o->n_certain = r->sampling.include_stop ? behind : behind - len;
    o->finish = QR_FINISH_STOP;
}

static bool among(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

void qr_output_push(struct qr_output *o, const struct qr_request *r, int32_t id, const int32_t *end_ids, int32_t n_end, int32_t ctx_max)
{
    QR_ASSERT(o->finish == QR_FINISH_NONE);
    QR_ASSERT(o->text_len <= QR_STOP_BYTES_MAX);
    const struct qr_sampling *p = &r->sampling;
    o->n_output++;
    const bool at_end = (r->grammar || !p->ignore_eos) && among(end_ids, n_end, id);
    const bool stops = at_end || among(p->stop_ids, p->n_stop_ids, id);
    if ((stops && o->n_output > p->min_tokens) || (at_end && r->grammar)) {
        o->stop_id = id;
        qr_output_end(o, QR_FINISH_STOP);
        return;
    }
    int32_t from = o->text_len;
    o->text_len += (int32_t)qr_detok_push(&o->detok, o->text + from, id);
    int32_t behind = scan_stops(o, r, from);
    if (behind >= 0) {
        end_at_stop(o, r, behind);
        return;
    }
    o->n_certain = o->text_len - held_back(o, p);
    if (o->n_output >= p->max_tokens || r->n_prompt + o->n_output >= ctx_max)
        qr_output_end(o, QR_FINISH_LENGTH);
}

int32_t qr_output_take(struct qr_output *o, char *out, int32_t room)
{
    QR_ASSERT(room >= 4);
    int32_t n = o->n_certain < room ? o->n_certain : room;
    if (n < o->n_certain || n < o->text_len)
        n -= qr_utf8_incomplete_tail(o->text, (size_t)n);
    memcpy(out, o->text, (size_t)n);
    if (n < o->text_len)
        memmove(o->text, o->text + n, (size_t)(o->text_len - n));
    o->text_len -= n;
    o->n_certain -= n;
    return n;
}
