/* vocab.c - makes the trees of a vocabulary and the masks that are ready. Tokens are sorted by their bytes once, and the trees are
 * written from the sorted list; of tokens with the same bytes one stands in the tree. Immutable afterwards, so any number of threads may
 * walk it. */
#include "answers/grammar/exprs.h"
#include "answers/grammar/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

const char *qr_vocab_token(const struct qr_vocab *v, int32_t id, size_t *len)
{
    QR_ASSERT(v != NULL && len != NULL);
    *len = id < 0 || id >= v->n_vocab || v->is_end[id] ? 0 : v->at[id + 1] - v->at[id];
    return *len ? v->text + v->at[id] : "";
}

bool qr_vocab_is_end(const struct qr_vocab *v, int32_t id)
{
    QR_ASSERT(v != NULL);
    return id >= 0 && id < v->n_vocab && v->is_end[id];
}

int32_t qr_vocab_size(const struct qr_vocab *v)
{
    QR_ASSERT(v != NULL);
    return v->n_vocab;
}

/* ---- sorting ---- */

struct word {
    uint64_t key; /* the first eight bytes, as a number that compares as they do */
    const char *text;
    uint32_t len;
    int32_t id;
};

static uint64_t key_of(const char *text, uint32_t len)
{
    uint64_t key = 0;
    for (uint32_t i = 0; i < 8; i++)
        key = key << 8 | (i < len ? (uint8_t)text[i] : 0);
    return key;
}

static int by_bytes(const void *a, const void *b)
{
    const struct word *p = a, *q = b;
    if (p->key != q->key)
        return p->key > q->key ? 1 : -1;
    const uint32_t n = p->len < q->len ? p->len : q->len;
    const int c = memcmp(p->text, q->text, n);
    return c ? c : p->len != q->len ? (p->len > q->len) - (p->len < q->len) : (p->id > q->id) - (p->id < q->id);
}

/* Characters of a plain token; 0: it is none. */
static int32_t plain_runes(const char *text, uint32_t len)
{
    int32_t n = 0;
    for (uint32_t i = 0; i < len; i++) {
        const uint8_t b = (uint8_t)text[i];
        if (b < 0x20 || b == '"' || b == '\\')
            return 0;
        n += (b & 0xC0) != 0x80;
    }
    return qr_utf8_is_valid(text, len) ? n : 0;
}

/* ---- a tree ---- */

/* Bytes of whole plain characters at the beginning. */
static uint32_t plain_prefix(const struct word *w)
{
    uint32_t n = 0;
    while (n < w->len && (uint8_t)w->text[n] >= 0x20 && w->text[n] != '"' && w->text[n] != '\\')
        n++;
    return (uint32_t)qr_utf8_valid_prefix(w->text, n);
}

static int32_t count_nodes(const struct word *w, int32_t n)
{
    int32_t nodes = 1;
    for (int32_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i > 0 && shared < w[i - 1].len && shared < w[i].len && w[i - 1].text[shared] == w[i].text[shared])
            shared++;
        nodes += (int32_t)(w[i].len - shared);
    }
    return nodes;
}

static void close_nodes(struct qr_tree *t, int32_t *open, uint32_t from, uint32_t to)
{
    for (uint32_t d = from; d > to; d--)
        t->node[open[d]].end = t->n_nodes;
}

/* Of words sorted by bytes; the same bytes occur once. */
static void make_tree(struct qr_tree *t, const struct word *w, int32_t n)
{
    int32_t open[QR_TOKEN_BYTES_MAX + 1] = {0};
    uint32_t depth = 0;
    t->node = qr_alloc((size_t)count_nodes(w, n), sizeof *t->node);
    t->token = qr_alloc((size_t)n + 1, sizeof *t->token);
    if (!t->node || !t->token)
        return;
    t->node[t->n_nodes++] = (struct qr_tree_node){.token = -1, .plain = true};
    for (int32_t i = 0; i < n; i++) {
        uint32_t shared = 0;
        while (i > 0 && shared < depth && shared < w[i].len && w[i - 1].text[shared] == w[i].text[shared])
            shared++;
        close_nodes(t, open, depth, shared);
        const uint32_t plain = plain_prefix(&w[i]);
        for (depth = shared; depth < w[i].len;) {
            open[depth + 1] = t->n_nodes;
            if (depth == 0)
                t->top[(uint8_t)w[i].text[0]] = t->n_nodes;
            t->node[t->n_nodes] = (struct qr_tree_node){.token = -1, .first = t->n_tokens, .byte = (uint8_t)w[i].text[depth]};
            depth++;
            t->node[t->n_nodes].depth = (uint16_t)depth;
            const bool ends = depth == w[i].len || ((uint8_t)w[i].text[depth] & 0xC0) != 0x80;
            t->node[t->n_nodes++].plain = ends && depth <= plain;
        }
        t->node[open[depth]].token = w[i].id;
        t->token[t->n_tokens++] = w[i].id;
    }
    close_nodes(t, open, depth, 0);
    t->node[0].end = t->n_nodes;
}

/* ---- masks that are ready ---- */

static void put_all(const struct qr_vocab *v, uint32_t *mask, const int32_t *id, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = id[i]; k >= 0; k = v->same[k])
            qr_mask_put(mask, k);
}

static uint32_t *new_mask(const struct qr_vocab *v)
{
    return qr_alloc(QR_MASK_WORDS(v->n_vocab), sizeof(uint32_t));
}

static bool make_masks(struct qr_vocab *v, const struct word *plain, int32_t n)
{
    static const int32_t step[QR_PLAIN_STEPS] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32};
    v->by_runes = qr_alloc((size_t)n + 1, sizeof *v->by_runes);
    if (!v->by_runes)
        return false;
    int32_t *count = qr_alloc(QR_TOKEN_BYTES_MAX + 2, sizeof *count);
    if (!count)
        return false;
    for (int32_t i = 0; i < n; i++)
        count[plain_runes(plain[i].text, plain[i].len) + 1]++;
    for (int32_t k = 1; k <= QR_TOKEN_BYTES_MAX + 1; k++)
        count[k] += count[k - 1];
    for (int32_t i = 0; i < n; i++)
        v->by_runes[count[plain_runes(plain[i].text, plain[i].len)]++] = plain[i].id;
    v->n_by_runes = n;
    for (v->n_upto = 0; v->n_upto < QR_PLAIN_STEPS; v->n_upto++) { /* count[k] is now where tokens of k characters end */
        const int32_t runes = step[v->n_upto];
        uint32_t *mask = new_mask(v);
        if (!mask)
            break;
        v->upto[v->n_upto].runes = runes;
        v->upto[v->n_upto].n = count[runes];
        v->upto[v->n_upto].mask = mask;
        put_all(v, mask, v->by_runes, count[runes]);
    }
    qr_free(count);
    put_all(v, v->all_plain, v->by_runes, n);
    put_all(v, v->all_inside, v->by_runes, n);
    put_all(v, v->all, v->plain.token, v->plain.n_tokens);
    put_all(v, v->all, v->rest.token, v->rest.n_tokens);
    return v->n_upto == QR_PLAIN_STEPS;
}

static int32_t runes_of(const struct qr_vocab *v, int32_t id)
{
    size_t len;
    const char *text = qr_vocab_token(v, id, &len);
    return plain_runes(text, (uint32_t)len);
}

void qr_vocab_plain(const struct qr_vocab *v, uint32_t *mask, int32_t runes)
{
    QR_ASSERT(v != NULL && mask != NULL);
    QR_ASSERT(runes >= 0);
    int32_t best = -1, n = 0;
    while (best + 1 < v->n_upto && v->upto[best + 1].runes <= runes)
        best++;
    for (size_t i = 0; best >= 0 && i < QR_MASK_WORDS(v->n_vocab); i++)
        mask[i] |= v->upto[best].mask[i];
    for (n = best < 0 ? 0 : v->upto[best].n; n < v->n_by_runes && runes_of(v, v->by_runes[n]) <= runes; n++)
        put_all(v, mask, &v->by_runes[n], 1);
}

/* ---- the whole ---- */

/* Words of the trees, the same bytes once; returns their number. */
static int32_t list_words(struct qr_vocab *v, struct word *w)
{
    int32_t n = 0, m = 0;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        const uint32_t len = v->at[id + 1] - v->at[id];
        v->same[id] = -1;
        if (len > 0 && len <= QR_TOKEN_BYTES_MAX && !v->is_end[id])
            w[n++] = (struct word){key_of(v->text + v->at[id], len), v->text + v->at[id], len, id};
    }
    qsort(w, (size_t)n, sizeof *w, by_bytes);
    for (int32_t i = 0; i < n; i++) {
        if (m > 0 && w[m - 1].len == w[i].len && memcmp(w[m - 1].text, w[i].text, w[i].len) == 0) {
            v->same[w[i].id] = v->same[w[m - 1].id];
            v->same[w[m - 1].id] = w[i].id;
        } else
            w[m++] = w[i];
        v->longest = (int32_t)w[i].len > v->longest ? (int32_t)w[i].len : v->longest;
    }
    return m;
}

/* Whether the bytes begin a text of e, which has no dead ends. */
static bool goes_on(struct qr_exprs *x, int32_t e, const struct word *w)
{
    for (uint32_t i = 0; i < w->len && e != QR_EXPR_NONE; i++)
        e = qr_expr_derive(x, e, x->cls[(uint8_t)w->text[i]]);
    return e != QR_EXPR_NONE;
}

/* Of the words that are not plain: those that stay inside a JSON string go into the mask of these, the others are cut to their tails. Returns
 * their number, -1 without memory. */
static int32_t cut_tails(struct qr_vocab *v, struct word *w, int32_t n)
{
    struct qr_err err = {0};
    struct qr_exprs *x = qr_exprs_new(1 << 20);
    const int32_t inside = x ? qr_expr_repeat(x, qr_expr_json_char(x), 0, QR_REPEAT_FOREVER) : QR_EXPR_NONE;
    int32_t m = x && qr_exprs_finish(x, inside, &err) == 0 ? 0 : -1;
    for (int32_t i = 0; i < n && m >= 0; i++) {
        const uint32_t cut = plain_prefix(&w[i]);
        const struct word tail = {key_of(w[i].text + cut, w[i].len - cut), w[i].text + cut, w[i].len - cut, w[i].id};
        if (goes_on(x, inside, &tail))
            put_all(v, v->all_inside, &tail.id, 1);
        else
            w[m++] = tail;
    }
    qr_exprs_free(x);
    return m;
}

/* The same tail once. Returns the number of tails, -1 without memory. */
static int32_t list_tails(struct qr_vocab *v, struct word *w, int32_t n)
{
    int32_t m = 0;
    for (int32_t id = 0; id < v->n_vocab; id++)
        v->same_tail[id] = v->same[id];
    n = cut_tails(v, w, n);
    if (n < 0)
        return n;
    qsort(w, (size_t)n, sizeof *w, by_bytes);
    for (int32_t i = 0; i < n; i++) {
        if (m > 0 && w[m - 1].len == w[i].len && memcmp(w[m - 1].text, w[i].text, w[i].len) == 0) {
            int32_t last = w[i].id; /* the list of the one joins that of the other */
            while (v->same_tail[last] >= 0)
                last = v->same_tail[last];
            v->same_tail[last] = w[m - 1].id;
            w[m - 1].id = w[i].id;
        } else
            w[m++] = w[i];
    }
    return m;
}

static bool is_made(const struct qr_tree *t)
{
    return t->node && t->token;
}

static bool make_trees(struct qr_vocab *v)
{
    struct word *w = qr_alloc((size_t)v->n_vocab, sizeof *w), *part = qr_alloc((size_t)v->n_vocab, sizeof *part);
    v->all = new_mask(v);
    v->all_plain = new_mask(v);
    v->all_inside = new_mask(v);
    bool good = w && part && v->all && v->all_plain && v->all_inside;
    const int32_t n = good ? list_words(v, w) : 0;
    int32_t n_plain = 0, n_rest = 0;
    for (int32_t i = 0; i < n; i++) {
        if (plain_runes(w[i].text, w[i].len) > 0)
            part[n_plain++] = w[i];
        else
            w[n_rest++] = w[i];
    }
    if (good) {
        make_tree(&v->plain, part, n_plain);
        make_tree(&v->rest, w, n_rest);
        const int32_t n_tails = list_tails(v, w, n_rest);
        if (n_tails >= 0)
            make_tree(&v->tails, w, n_tails);
        v->plain.next = v->rest.next = v->same;
        v->tails.next = v->same_tail;
        good = is_made(&v->plain) && is_made(&v->rest) && is_made(&v->tails) && make_masks(v, part, n_plain);
    }
    qr_free(w);
    qr_free(part);
    return good;
}

/* How token i is spelled; it is copied. */
typedef const char *spell_fn(const void *user, int32_t id, size_t *len, bool *special);

static bool copy_text(struct qr_vocab *v, spell_fn *spell, const void *user)
{
    size_t n = 0, len;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        bool special = false;
        spell(user, id, &len, &special);
        n += special ? 14 : len;
    }
    v->text = n < UINT32_MAX ? qr_alloc(n + 1, 1) : NULL;
    for (int32_t id = 0; v->text && id < v->n_vocab; id++) {
        bool special = false;
        const char *text = spell(user, id, &len, &special);
        v->is_special[id] = special;
        v->at[id] = (uint32_t)v->n_text;
        if (special)
            v->n_text += (size_t)snprintf(v->text + v->n_text, 14, "\xff%d;", (int)id);
        else if (len > 0 && !memchr(text, 0xff, len)) { /* the byte is no part of a text: it would spell special tokens */
            memcpy(v->text + v->n_text, text, len);
            v->n_text += len;
        }
        v->at[id + 1] = (uint32_t)v->n_text;
    }
    return v->text != NULL;
}

static struct qr_vocab *make(spell_fn *spell, const void *user, int32_t n_vocab, const int32_t *end, int32_t n_end)
{
    QR_ASSERT(n_vocab > 0 && n_end >= 0);
    QR_ASSERT(end != NULL || n_end == 0);
    struct qr_vocab *v = qr_alloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->n_vocab = n_vocab;
    v->at = qr_alloc((size_t)n_vocab + 1, sizeof *v->at);
    v->same = qr_alloc((size_t)n_vocab, sizeof *v->same);
    v->same_tail = qr_alloc((size_t)n_vocab, sizeof *v->same_tail);
    v->is_end = qr_alloc((size_t)n_vocab, 1);
    v->is_special = qr_alloc((size_t)n_vocab, 1);
    v->end = qr_alloc((size_t)n_end + 1, sizeof *v->end);
    bool good = v->at && v->same && v->same_tail && v->is_end && v->is_special && v->end;
    for (int32_t i = 0; good && i < n_end; i++)
        if (end[i] >= 0 && end[i] < n_vocab && !v->is_end[end[i]]) {
            v->is_end[end[i]] = 1;
            v->end[v->n_end++] = end[i];
        }
    if (good && copy_text(v, spell, user) && make_trees(v))
        return v;
    qr_vocab_free(v);
    return NULL;
}

static const char *spell_token(const void *user, int32_t id, size_t *len, bool *special)
{
    const struct qr_tokenizer *t = user;
    *special = id < qr_tokenizer_vocab_size(t) && qr_tokenizer_is_special(t, id);
    return qr_tokenizer_token_bytes(t, id, len);
}

struct qr_vocab *qr_vocab_new(const struct qr_tokenizer *t, int32_t n_vocab, const int32_t *end, int32_t n_end)
{
    QR_ASSERT(t != NULL);
    struct qr_vocab *v = make(spell_token, t, n_vocab, end, n_end);
    if (v)
        v->tokenizer = t;
    return v;
}

struct given { const char *const *bytes; const size_t *len; const bool *special; };

static const char *spell_given(const void *user, int32_t id, size_t *len, bool *special)
{
    const struct given *g = user;
    *special = g->special && g->special[id];
    *len = g->len[id];
    return g->bytes[id];
}

struct qr_vocab *qr_vocab_of(const char *const *bytes, const size_t *len, const bool *special, int32_t n_vocab, const int32_t *end, int32_t n_end)
{
    QR_ASSERT(bytes != NULL && len != NULL);
    const struct given g = {bytes, len, special};
    return make(spell_given, &g, n_vocab, end, n_end);
}

static void release_tree(struct qr_tree *t)
{
    qr_free(t->node);
    qr_free(t->token);
}

void qr_vocab_free(struct qr_vocab *v)
{
    if (!v)
        return;
    release_tree(&v->plain);
    release_tree(&v->rest);
    release_tree(&v->tails);
    for (int32_t i = 0; i < QR_PLAIN_STEPS; i++)
        qr_free(v->upto[i].mask);
    qr_free(v->text);
    qr_free(v->at);
    qr_free(v->same);
    qr_free(v->same_tail);
    qr_free(v->is_end);
    qr_free(v->is_special);
    qr_free(v->all);
    qr_free(v->all_plain);
    qr_free(v->all_inside);
    qr_free(v->by_runes);
    qr_free(v->end);
    qr_free(v);
}

size_t qr_vocab_bytes(const struct qr_vocab *v)
{
    QR_ASSERT(v != NULL);
    const size_t per_token = sizeof *v->at + 2 * sizeof *v->same + 2 + 2 * sizeof(int32_t);
    return v->n_text + (size_t)v->n_vocab * per_token + (3 + QR_PLAIN_STEPS) * QR_MASK_WORDS(v->n_vocab) * sizeof(uint32_t) +
           (size_t)(v->plain.n_nodes + v->rest.n_nodes + v->tails.n_nodes) * sizeof(struct qr_tree_node);
}

int32_t qr_vocab_special(const struct qr_vocab *v, const char *text, size_t len)
{
    QR_ASSERT(v != NULL && text != NULL);
    const int32_t id = v->tokenizer ? qr_tokenizer_token_id(v->tokenizer, text, len) : -1;
    return id >= 0 && id < v->n_vocab && v->is_special[id] ? id : -1;
}
