/* forced.c - runs of bytes that a grammar leaves no choice about, and guesses of their tokens. A run is followed state by state, as the text would be, so
 * what it adds to the memo is what the text needs next. Tokens are looked up in the trees of the vocabulary. Nothing is allocated; a run
 * has at most QR_FORCED_BYTES, a search for longer tokens SEARCH_NODES. One thread at a time for all matchers of a grammar. */
#include "answers/grammar/forced.h"

#include <ctype.h>
#include <string.h>

#include "answers/grammar/memo.h"
#include "base/assert.h"

#define SEARCH_NODES 256 /* of the trees, until it is taken for granted that a longer token fits */
#define SEARCH_BYTES 24  /* how far before the end of a run a longer token may begin */
#define GUESS_BYTES 128  /* of a run that is cut into tokens, at most; */
#define TOKEN_BYTES 8    /* so many for each of them, as a rule enough */
#define NO_TOKEN INT32_MAX
#define LOOK_BACK 512    /* bytes of the answer in which a separator is looked for */

/* What is followed: a copy of the matcher, and the bytes since. */
struct run {
    struct qr_matcher at;
    int32_t n;
    char byte[QR_FORCED_BYTES];
};

static void begin(struct run *r, const struct qr_matcher *m)
{
    r->n = 0;
    r->at = (struct qr_matcher){0};
    qr_matcher_copy(&r->at, m);
    qr_memo_begin(m->grammar);
}

/* Classes of bytes that may come next, and perhaps some that do not, where expressions exclude each other. */
static struct qr_first may_come(const struct qr_grammar *g, int32_t state)
{
    const struct qr_state *s = &g->state[state];
    struct qr_first first = {{0}};
    for (int32_t i = 0; i < s->n; i++)
        for (int k = 0; k < QR_FIRST_BITS / 64; k++)
            first.bits[k] |= qr_expr_at(g->x, g->id[s->at + i])->first.bits[k];
    return first;
}

/* The only byte of the only class; -1: there are more. */
static int32_t only_byte(const struct qr_grammar *g, const struct qr_first *first)
{
    const int n = __builtin_popcountll(first->bits[0]) + __builtin_popcountll(first->bits[1]);
    const int32_t cls = first->bits[0] ? __builtin_ctzll(first->bits[0]) : first->bits[1] ? 64 + __builtin_ctzll(first->bits[1]) : 0;
    if (n != 1 || cls == QR_FIRST_BITS - 1)
        return -1;
    const uint8_t *one = memchr(g->x->cls, cls, sizeof g->x->cls);
    const int32_t byte = (int32_t)(one - g->x->cls);
    return memchr(one + 1, cls, sizeof g->x->cls - (size_t)byte - 1) ? -1 : byte;
}

static bool take(struct run *r, uint8_t byte, int32_t room)
{
    struct qr_grammar *g = r->at.grammar;
    const int32_t next = r->n < room ? qr_memo_next(g, r->at.state, g->x->cls[byte]) : QR_STATE_DEAD;
    if (next == QR_STATE_DEAD)
        return false;
    r->at.state = next;
    r->byte[r->n++] = (char)byte;
    return true;
}

/* Goes on as long as there is no choice, to `room` bytes at most. */
static void follow(struct run *r, int32_t room)
{
    const struct qr_grammar *g = r->at.grammar;
    while (r->n < room && !g->state[r->at.state].accepts) {
        const struct qr_first first = may_come(g, r->at.state);
        const int32_t byte = only_byte(g, &first);
        if (byte < 0 || !take(r, (uint8_t)byte, room))
            return;
    }
}

int32_t qr_forced_bytes(struct qr_matcher *m, char *out, int32_t room)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(out != NULL && room >= 0);
    struct run r;
    begin(&r, m);
    follow(&r, room < QR_FORCED_BYTES ? room : QR_FORCED_BYTES);
    memcpy(out, r.byte, (size_t)r.n);
    qr_matcher_release(&r.at);
    return r.n;
}

/* ---- tokens ---- */

/* A place in the two trees that have all tokens: the bytes so far; -1: no token begins with them. */
struct place { int32_t plain, rest; };

static int32_t child(const struct qr_tree *t, int32_t at, uint8_t byte)
{
    if (at <= 0)
        return at < 0 || !t->top[byte] ? -1 : t->top[byte];
    for (int32_t i = at + 1; i < t->node[at].end && t->node[i].byte <= byte; i = t->node[i].end)
        if (t->node[i].byte == byte)
            return i;
    return -1;
}

static bool go(const struct qr_vocab *v, struct place *p, char byte)
{
    *p = (struct place){child(&v->plain, p->plain, (uint8_t)byte), child(&v->rest, p->rest, (uint8_t)byte)};
    return p->plain >= 0 || p->rest >= 0;
}

static int32_t token_at(const struct qr_vocab *v, const struct place *p)
{
    const int32_t plain = p->plain > 0 ? v->plain.node[p->plain].token : -1;
    return plain >= 0 || p->rest <= 0 ? plain : v->rest.node[p->rest].token;
}

/* Whether a token below node `top` is allowed in this state: true, too, where that is not found out soon. */
static bool reaches(struct qr_grammar *g, const struct qr_tree *t, int32_t top, int32_t state, int32_t *budget)
{
    int32_t stack[QR_TOKEN_BYTES_MAX + 1];
    const int32_t depth = top < 0 ? 0 : t->node[top].depth;
    stack[0] = state;
    for (int32_t i = top + 1; top >= 0 && i < t->node[top].end;) {
        const struct qr_tree_node *node = &t->node[i];
        const int32_t next = qr_memo_next(g, stack[node->depth - depth - 1], g->x->cls[node->byte]);
        if (next != QR_STATE_DEAD && node->token >= 0)
            return true;
        if (--*budget <= 0)
            return true;
        stack[node->depth - depth] = next;
        i = next == QR_STATE_DEAD ? node->end : i + 1;
    }
    return g->failed;
}

/* Whether a token that begins with the bytes up to this place, and is longer, is allowed in this state. */
static bool goes_further(struct qr_grammar *g, const struct place *p, int32_t state, int32_t *budget)
{
    return reaches(g, &g->v->plain, p->plain, state, budget) || reaches(g, &g->v->rest, p->rest, state, budget);
}

int32_t qr_forced_only(struct qr_matcher *m)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(m->state < m->grammar->n_states);
    struct qr_grammar *g = m->grammar;
    const struct qr_vocab *v = g->v;
    if (qr_matcher_done(m))
        return v->n_end == 1 ? v->end[0] : -1;
    struct run r;
    struct place p = {0, 0};
    int32_t only = -1, n = 0, budget = SEARCH_NODES;
    begin(&r, m);
    follow(&r, QR_FORCED_BYTES);
    for (int32_t i = 0; i < r.n && n < 2 && (p.plain >= 0 || p.rest >= 0); i++) {
        const int32_t id = go(v, &p, r.byte[i]) ? token_at(v, &p) : -1;
        n += id < 0 ? 0 : v->same[id] < 0 ? 1 : 2;
        only = id < 0 ? only : id;
    }
    const bool sure = n == 1 && !goes_further(g, &p, r.at.state, &budget);
    qr_matcher_release(&r.at);
    return sure ? only : -1;
}

/* The first of a run's last bytes from which on a longer token fits; n: there is none. */
static int32_t first_unsure(const struct run *r)
{
    const struct qr_vocab *v = r->at.grammar->v;
    int32_t from = r->n < SEARCH_BYTES ? 0 : r->n - SEARCH_BYTES, budget = SEARCH_NODES;
    for (; from < r->n && !qr_matcher_done(&r->at); from++) {
        struct place p = {0, 0};
        int32_t i = from;
        while (i < r->n && go(v, &p, r->byte[i]))
            i++;
        if (i == r->n && goes_further(r->at.grammar, &p, r->at.state, &budget))
            return from;
    }
    return r->n;
}

/* ---- guesses ---- */

/* What the answer has said; the end of it as bytes, once these are needed. */
struct said {
    const int32_t *output;
    int32_t n_output, n; /* n: of byte; -1: not needed yet */
    const char *byte;    /* in room */
    char room[LOOK_BACK];
};

static void read_back(struct said *t, const struct qr_vocab *v)
{
    char *at = t->room + LOOK_BACK;
    for (int32_t i = t->n_output - 1; i >= 0; i--) {
        size_t len;
        const char *text = qr_vocab_token(v, t->output[i], &len);
        if (len > (size_t)(at - t->room))
            break;
        at -= len;
        memcpy(at, text, len);
    }
    t->byte = at;
    t->n = (int32_t)(t->room + LOOK_BACK - at);
}

/* The byte `back` before what comes now, 1: the last one; a letter where there is none. */
static char byte_before(const struct run *r, const struct said *t, int32_t back)
{
    const int32_t at = t->n + r->n - back;
    return back <= r->n ? r->byte[r->n - back] : at >= 0 ? t->byte[at] : 'a';
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

static bool has(const struct qr_grammar *g, const struct qr_first *first, char byte)
{
    return qr_first_has(first, g->x->cls[(uint8_t)byte]);
}

/* What may come but for blanks; *any: blanks may. */
static struct qr_first without_blanks(const struct qr_grammar *g, struct qr_first first, bool *any)
{
    *any = false;
    for (const char *b = " \n\t\r"; *b; b++) {
        const int32_t cls = g->x->cls[(uint8_t)*b];
        *any = *any || qr_first_has(&first, cls);
        if (cls < QR_FIRST_BITS - 1)
            first.bits[cls >> 6] &= ~((uint64_t)1 << (cls & 63));
    }
    return first;
}

/* Blanks that stood behind the last separator like the one here: something that may come here followed them, or the same byte was before it. -1: none did. */
static int32_t find_blanks(const struct run *r, const struct said *t, const struct qr_first *rest, const char **at)
{
    const char separator = byte_before(r, t, 1), before = byte_before(r, t, 2);
    for (int32_t q = t->n - 2; q > 0; q--) {
        int32_t n = 0;
        if (t->byte[q] != separator)
            continue;
        while (q + 1 + n < t->n && is_blank(t->byte[q + 1 + n]))
            n++;
        *at = t->byte + q + 1;
        if (q + 1 + n < t->n && (t->byte[q - 1] == before || has(r->at.grammar, rest, t->byte[q + 1 + n])))
            return n;
    }
    return -1;
}

/* Goes on behind a separator: as many blanks as last time, and what must follow then. False: there is a choice that nothing tells about. */
static bool repeat(struct run *r, struct said *t)
{
    const struct qr_grammar *g = r->at.grammar;
    const char *blanks = NULL;
    bool any;
    const struct qr_first first = may_come(g, r->at.state), rest = without_blanks(g, first, &any);
    if (!any || g->state[r->at.state].accepts || g->state[r->at.state].plain > 0)
        return false;
    if (t->n < 0)
        read_back(t, g->v);
    const char separator = byte_before(r, t, 1);
    const int32_t n = ispunct((unsigned char)separator) && !has(g, &first, separator) ? find_blanks(r, t, &rest, &blanks) : -1;
    for (int32_t i = 0; i < n; i++)
        if (!take(r, (uint8_t)blanks[i], GUESS_BYTES))
            return false;
    const struct qr_first now = may_come(g, r->at.state), other = without_blanks(g, now, &any);
    const int32_t byte = n < 0 ? -1 : only_byte(g, &other);
    return byte >= 0 && take(r, (uint8_t)byte, GUESS_BYTES);
}

/* Symbols of a run that are merged to tokens, and the token that each would be together with the next one. */
struct symbols {
    int32_t n, from[GUESS_BYTES + 1]; /* symbol i is the bytes from[i] to from[i + 1] */
    int32_t merged[GUESS_BYTES];      /* NO_TOKEN: they are none */
    struct place place[GUESS_BYTES];
};

static void look(const struct run *r, struct symbols *s, int32_t i)
{
    struct place p = s->place[i];
    int32_t at = s->from[i + 1];
    s->merged[i] = NO_TOKEN;
    if (i + 1 == s->n)
        return;
    while (at < s->from[i + 2] && go(r->at.grammar->v, &p, r->byte[at]))
        at++;
    const int32_t id = at == s->from[i + 2] ? token_at(r->at.grammar->v, &p) : -1;
    s->merged[i] = id < 0 ? NO_TOKEN : id;
}

static void merge(const struct run *r, struct symbols *s, int32_t i)
{
    for (int32_t at = s->from[i + 1]; at < s->from[i + 2]; at++)
        go(r->at.grammar->v, &s->place[i], r->byte[at]);
    s->n--;
    for (int32_t k = i + 1; k < s->n; k++) {
        s->from[k] = s->from[k + 1];
        s->merged[k] = s->merged[k + 1];
        s->place[k] = s->place[k + 1];
    }
    s->from[s->n] = s->from[s->n + 1];
    look(r, s, i);
    if (i > 0)
        look(r, s, i - 1);
}

/* Byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909): what was learnt first is merged first, and ids are in that order. */
static void encode(const struct run *r, struct symbols *s)
{
    s->n = 0;
    for (int32_t at = 0; at < r->n; s->n++) { /* bytes; a special token is whole from the beginning */
        const bool special = (uint8_t)r->byte[at] == 0xff;
        struct place *p = &s->place[s->n];
        *p = (struct place){0, 0};
        s->from[s->n] = at;
        do
            go(r->at.grammar->v, p, r->byte[at++]);
        while (special && at < r->n && r->byte[at - 1] != ';');
    }
    s->from[s->n] = r->n;
    for (int32_t i = 0; i < s->n; i++)
        look(r, s, i);
    while (s->n > 1) {
        int32_t best = 0;
        for (int32_t i = 1; i < s->n; i++)
            best = s->merged[i] < s->merged[best] ? i : best;
        if (s->merged[best] == NO_TOKEN)
            return;
        merge(r, s, best);
    }
}

/* The token of a symbol; -1: it is none. A byte may be a token twice: as a part of characters that have none, and behind that one as a character. */
static int32_t token_of(const struct run *r, const struct symbols *s, int32_t i)
{
    const struct qr_vocab *v = r->at.grammar->v;
    const int32_t id = token_at(v, &s->place[i]);
    return id >= 0 && s->from[i + 1] == s->from[i] + 1 && v->same[id] >= 0 ? v->same[id] : id;
}

int32_t qr_forced_tokens(struct qr_matcher *m, const int32_t *output, int32_t n_output, int32_t *id, bool *sure, int32_t n_max)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(id != NULL && sure != NULL && n_max >= 0 && n_output >= 0);
    struct run r;
    struct said t = {.output = output, .n_output = n_output, .n = -1};
    struct symbols s;
    int32_t n = 0;
    const int32_t bytes = n_max < GUESS_BYTES / TOKEN_BYTES ? n_max * TOKEN_BYTES : GUESS_BYTES;
    begin(&r, m);
    do
        follow(&r, bytes);
    while (r.n < bytes && repeat(&r, &t));
    const int32_t unsure = first_unsure(&r);
    encode(&r, &s);
    while (n < n_max && n < s.n && (id[n] = token_of(&r, &s, n)) >= 0) {
        sure[n] = s.from[n + 1] <= unsure;
        n++;
    }
    qr_matcher_release(&r.at);
    return n;
}
