/* bpe.c - byte-pair encoding of one piece of text. A piece becomes symbols (bytes, characters or byte fallback), and
 * the pair of lowest rank is merged until none is left, the leftmost first among equals. Short pieces scan an array;
 * long ones go to bpe_long.c, with the same result. Tables are built once and immutable; the work space belongs to one
 * encode call. */
#include "tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpe_long.h"

#define NO_RANK UINT32_MAX
#define MEMO_AFTER 512 /* pieces of a call, before a memo is worth its memory */
#define WORD_MARK "\xE2\x96\x81"
#define WORD_MARK_BYTES 3

/* ---- tables ---- */

static void put_merge(struct qr_bpe *b, const struct qr_merge *m, uint32_t rank)
{
    uint32_t i = qr_bpe_slot(b, m->left, m->right);
    while (b->slot[i].left >= 0 && (b->slot[i].left != m->left || b->slot[i].right != m->right))
        i = (i + 1) & (b->n_slots - 1);
    b->slot[i] = *m;
    b->slot[i].rank = rank;
}

/* True when no token has U+2581 behind another character: then a merge never crosses into a word. */
static bool words_are_apart(const struct qr_vocab *v, const struct qr_merge *merge, int32_t n_merges)
{
    if (qr_vocab_find(v, WORD_MARK, WORD_MARK_BYTES) < 0)
        return false;
    for (int32_t i = 0; i < n_merges; i++) {
        size_t len, at = 0;
        const char *s = qr_vocab_content(v, merge[i].id, &len);
        while (len - at >= WORD_MARK_BYTES && memcmp(s + at, WORD_MARK, WORD_MARK_BYTES) == 0)
            at += WORD_MARK_BYTES;
        if (memmem(s + at, len - at, WORD_MARK, WORD_MARK_BYTES))
            return false;
    }
    return true;
}

static void find_symbols(struct qr_bpe *b, const struct qr_vocab *v)
{
    qr_bytechar_init(&b->bytechar);
    for (int32_t c = 0; c < 256; c++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)c);
        b->fallback_id[c] = qr_vocab_find(v, name, 6);
        b->byte_id[c] = qr_vocab_find(v, b->bytechar.utf8[c], b->bytechar.len[c]);
    }
    for (int32_t c = 0; c < 128; c++) {
        char one = (char)c;
        b->ascii_id[c] = qr_vocab_find(v, &one, 1);
    }
}

static int by_id_and_rank(const void *x, const void *y)
{
    const struct qr_merge *a = x, *b = y;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void find_specials(struct qr_bpe *b, const struct qr_merge *merge, int32_t n_merges)
{
    for (int32_t i = 0; i < n_merges; i++)
        b->n_special += qr_vocab_is_special(b->vocab, merge[i].id);
    b->special = qr_alloc((size_t)b->n_special, sizeof *b->special);
    int32_t n = 0;
    for (int32_t i = 0; i < n_merges; i++) {
        if (!qr_vocab_is_special(b->vocab, merge[i].id))
            continue;
        b->special[n] = merge[i];
        b->special[n++].rank = (uint32_t)i;
    }
    qsort(b->special, (size_t)n, sizeof *b->special, by_id_and_rank);
}

void qr_bpe_build(struct qr_bpe *b, const struct qr_vocab *vocab, const struct qr_merge *merge, int32_t n_merges,
                  const uint64_t seed[2])
{
    QR_ASSERT(b != NULL && b->slot == NULL);
    QR_ASSERT(n_merges >= 0 && n_merges <= QR_MERGES_MAX);
    b->vocab = vocab;
    b->seed[0] = seed[0];
    b->seed[1] = seed[1];
    b->n_slots = 16;
    while (b->n_slots < (uint32_t)n_merges + (uint32_t)n_merges / 2)
        b->n_slots *= 2;
    b->slot = qr_alloc_aligned((size_t)b->n_slots * sizeof *b->slot, 64);
    for (uint32_t i = 0; i < b->n_slots; i++)
        b->slot[i].left = -1;
    for (int32_t i = 0; i < n_merges; i++)
        put_merge(b, &merge[i], (uint32_t)i);
    find_specials(b, merge, n_merges);
    find_symbols(b, vocab);
    b->word_split = !b->byte_level && !b->ignore_merges && words_are_apart(vocab, merge, n_merges);
}

void qr_bpe_release(struct qr_bpe *b)
{
    qr_free_aligned(b->slot);
    qr_free(b->special);
    *b = (struct qr_bpe){0};
}

void qr_bpe_work_release(struct qr_bpe_work *w)
{
    qr_free(w->sym);
    qr_free(w->memo);
    qr_bpe_long_free(w->big);
    *w = (struct qr_bpe_work){0};
}

/* ---- symbols ---- */

static int32_t usable(const struct qr_bpe *b, int32_t id, bool no_special)
{
    return no_special && qr_vocab_is_special(b->vocab, id) ? -1 : id;
}

static int32_t byte_symbols(const struct qr_bpe *b, int32_t *sym, const char *text, size_t len, bool no_special)
{
    int32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int32_t id = usable(b, b->byte_id[(unsigned char)text[i]], no_special);
        if (id >= 0 || b->unk_id >= 0)
            sym[n++] = id >= 0 ? id : b->unk_id;
    }
    return n;
}

/* Writes the <0xNN> tokens of one character; 0 when one of them is missing. */
static int32_t fallback_symbols(const struct qr_bpe *b, int32_t *sym, const char *c, int32_t len)
{
    for (int32_t i = 0; i < len; i++) {
        sym[i] = b->fallback_id[(unsigned char)c[i]];
        if (sym[i] < 0)
            return 0;
    }
    return len;
}

/* Unknown characters wait in `unk` until a known one comes (the reference's order, also across byte fallback). */
static int32_t char_symbols(const struct qr_bpe *b, int32_t *sym, const char *text, size_t len, bool no_special)
{
    int32_t n = 0;
    bool unk = false;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        int32_t n_bytes = qr_utf8_decode(text + i, len - i, &cp), n_fall;
        QR_ASSERT(n_bytes > 0);
        int32_t id = cp < 128 ? b->ascii_id[cp] : qr_vocab_find(b->vocab, text + i, (size_t)n_bytes);
        id = usable(b, id, no_special);
        if (id >= 0) {
            if (unk)
                sym[n++] = b->unk_id;
            unk = false;
            sym[n++] = id;
        } else if (b->byte_fallback && (n_fall = fallback_symbols(b, sym + n, text + i, n_bytes)) > 0) {
            n += n_fall;
        } else if (b->unk_id >= 0) {
            if (unk && !b->fuse_unk)
                sym[n++] = b->unk_id;
            unk = true;
        }
        i += (size_t)n_bytes;
    }
    if (unk)
        sym[n++] = b->unk_id;
    return n;
}

/* ---- short pieces ---- */

static void short_rank(const struct qr_bpe *b, struct qr_bpe_short *p, int32_t i)
{
    const struct qr_merge *m = i + 1 < p->n ? qr_bpe_find(b, p->id[i], p->id[i + 1]) : NULL;
    p->rank[i] = m ? m->rank : NO_RANK;
    p->merged[i] = m ? m->id : -1;
}

static void short_merge(const struct qr_bpe *b, struct qr_bpe_short *p)
{
    for (int32_t i = 0; i < p->n; i++)
        short_rank(b, p, i);
    for (;;) {
        int32_t best = 0;
        for (int32_t i = 1; i + 1 < p->n; i++)
            if (p->rank[i] < p->rank[best])
                best = i;
        if (p->n < 2 || p->rank[best] == NO_RANK)
            return;
        p->id[best] = p->merged[best];
        size_t n_move = (size_t)(p->n - best - 2);
        memmove(&p->id[best + 1], &p->id[best + 2], n_move * sizeof p->id[0]);
        memmove(&p->rank[best + 1], &p->rank[best + 2], n_move * sizeof p->rank[0]);
        memmove(&p->merged[best + 1], &p->merged[best + 2], n_move * sizeof p->merged[0]);
        p->n--;
        short_rank(b, p, best);
        if (best > 0)
            short_rank(b, p, best - 1);
    }
}

/* ---- pieces and texts ---- */

/* Undoes the merge that made a special token, down to tokens that are not special. Both parts are shorter, so this ends. */
static void emit_split(const struct qr_bpe *b, struct qr_ids *out, int32_t id)
{
    int32_t lo = 0, hi = b->n_special;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (b->special[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == b->n_special || b->special[lo].id != id) {
        qr_ids_push(out, id);
        return;
    }
    emit_split(b, out, b->special[lo].left);
    emit_split(b, out, b->special[lo].right);
}

static void emit(const struct qr_bpe *b, struct qr_ids *out, int32_t id, bool no_special)
{
    if (no_special && b->n_special > 0 && qr_vocab_is_special(b->vocab, id))
        emit_split(b, out, id);
    else
        qr_ids_push(out, id);
}

static void encode_piece(const struct qr_bpe *b, struct qr_bpe_work *w, struct qr_ids *out, const char *text, size_t len,
                         bool no_special)
{
    if (len <= QR_BPE_SHORT_MAX) {
        struct qr_bpe_short *p = &w->small;
        p->n = b->byte_level ? byte_symbols(b, p->id, text, len, no_special)
                             : char_symbols(b, p->id, text, len, no_special);
        short_merge(b, p);
        for (int32_t i = 0; i < p->n; i++)
            emit(b, out, p->id[i], no_special);
        return;
    }
    if (len > w->cap_sym) {
        w->cap_sym = len + len / 2;
        qr_free(w->sym);
        w->sym = qr_realloc(NULL, w->cap_sym, sizeof *w->sym);
    }
    if (!w->big)
        w->big = qr_bpe_long_new();
    int32_t n = b->byte_level ? byte_symbols(b, w->sym, text, len, no_special)
                              : char_symbols(b, w->sym, text, len, no_special);
    n = qr_bpe_long_merge(w->big, b, w->sym, n);
    for (int32_t i = 0; i < n; i++)
        emit(b, out, w->sym[i], no_special);
}

/* The memo's slot for a piece of at most QR_BPE_MEMO_BYTES bytes. */
static struct qr_bpe_memo *memo_slot(const struct qr_bpe *b, const struct qr_bpe_work *w, const char *text, size_t len,
                                     uint64_t key[2])
{
    char bytes[QR_BPE_MEMO_BYTES + 1] = {0};
    memcpy(bytes, text, len);
    bytes[QR_BPE_MEMO_BYTES] = (char)len;
    memcpy(key, bytes, sizeof bytes);
    unsigned __int128 product = (unsigned __int128)(key[0] ^ b->seed[0]) * ((key[1] ^ b->seed[1]) | 1);
    return &w->memo[((uint64_t)product ^ (uint64_t)(product >> 64)) & (QR_BPE_MEMO_SLOTS - 1)];
}

/* encode_piece, or what it gave for the same piece before. */
static void encode_repeated(const struct qr_bpe *b, struct qr_bpe_work *w, struct qr_ids *out, const char *text, size_t len,
                            bool no_special)
{
    uint64_t key[2];
    if (!w->memo && ++w->n_pieces == MEMO_AFTER)
        w->memo = qr_alloc(QR_BPE_MEMO_SLOTS, sizeof *w->memo);
    if (!w->memo || len > QR_BPE_MEMO_BYTES) {
        encode_piece(b, w, out, text, len, no_special);
        return;
    }
    struct qr_bpe_memo *memo = memo_slot(b, w, text, len, key);
    int32_t before = out->n;
    if (memo->key[0] == key[0] && memo->key[1] == key[1]) {
        for (int32_t i = 0; i < memo->n; i++)
            qr_ids_push(out, memo->id[i]);
        return;
    }
    encode_piece(b, w, out, text, len, no_special);
    if (out->n - before > QR_BPE_MEMO_IDS)
        return;
    *memo = (struct qr_bpe_memo){.key = {key[0], key[1]}, .n = out->n - before};
    for (int32_t i = 0; i < memo->n; i++)
        memo->id[i] = out->id[before + i];
}

/* The vocabulary's id for the whole piece, or -1. */
static int32_t whole_piece(const struct qr_bpe *b, struct qr_bpe_work *w, const char *text, size_t len)
{
    if (!b->byte_level)
        return qr_vocab_find(b->vocab, text, len);
    size_t n = 0;
    if (len > b->vocab->len_max)
        return -1;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        memcpy(w->key + n, b->bytechar.utf8[c], 2);
        n += b->bytechar.len[c];
        if (n > b->vocab->len_max)
            return -1;
    }
    return qr_vocab_find(b->vocab, w->key, n);
}

/* The end of the word at text[0..len): where a word mark follows something else. */
static size_t word_end(const char *text, size_t len)
{
    size_t at = 0;
    while (len - at >= WORD_MARK_BYTES && memcmp(text + at, WORD_MARK, WORD_MARK_BYTES) == 0)
        at += WORD_MARK_BYTES;
    for (; at < len; at++) {
        const char *next = memchr(text + at, WORD_MARK[0], len - at);
        if (!next)
            return len;
        at = (size_t)(next - text);
        if (len - at >= WORD_MARK_BYTES && memcmp(next, WORD_MARK, WORD_MARK_BYTES) == 0)
            return at;
    }
    return len;
}

void qr_bpe_encode(const struct qr_bpe *b, struct qr_bpe_work *w, struct qr_ids *out, const char *text, size_t len,
                   bool no_special)
{
    QR_ASSERT(b != NULL && b->slot != NULL && text != NULL);
    QR_ASSERT(len <= (size_t)(INT32_MAX - out->n));
    if (b->ignore_merges) {
        int32_t id = whole_piece(b, w, text, len);
        if (id >= 0 && !(no_special && qr_vocab_is_special(b->vocab, id))) {
            qr_ids_push(out, id);
            return;
        }
    }
    while (b->word_split && len > 0) {
        size_t n = word_end(text, len);
        encode_repeated(b, w, out, text, n, no_special);
        text += n;
        len -= n;
    }
    if (len > 0)
        encode_repeated(b, w, out, text, len, no_special);
}
