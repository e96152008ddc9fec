/* added.h - finding added tokens in text: the leftmost match, the longest there, as the reference's automaton does.
 * A pattern is a token's content; all patterns lie sorted, and a match narrows the range of candidates byte by byte.
 */
#ifndef QR_TOKENIZER_ADDED_H
#define QR_TOKENIZER_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qr_added {
    const char *text; /* owned by the set: what to look for */
    size_t len; /* >= 1 */
    int32_t id;
    bool special, single_word, lstrip, rstrip;
};

struct qr_added_set {
    struct qr_added *token; /* owned [n]; sorted once `qr_added_sort` ran */
    int32_t n, cap;
    int32_t first[257]; /* token[first[c]..first[c+1]) begin with byte c */
    int32_t n_special;
};

/* Adds a token; its text is copied. */
void qr_added_push(struct qr_added_set *s, const struct qr_added *token);

/* Sorts and drops later tokens with the same text. To be called once, before finding. */
void qr_added_sort(struct qr_added_set *s);
void qr_added_release(struct qr_added_set *s);

/* Half-open ranges of trusted text, ascending, not touching each other. */
struct qr_range {
    size_t start, end;
};

/* Where special tokens may be recognised: everywhere, or where the ranges or the trust bytes say so. */
struct qr_trust {
    bool all;
    const struct qr_range *range; /* borrowed [n_ranges] */
    int32_t n_ranges;
    const uint8_t *byte;          /* borrowed, one per byte of the text; used instead of ranges when not NULL */
};

struct qr_added_match {
    size_t start, end; /* with the white space that lstrip and rstrip take */
    int32_t id;
};

/* The next match at or behind `from` in text[0..len) (valid UTF-8); false when there is none. `from` is where the match before
 * ended, so that white space is not taken twice. */
bool qr_added_find(const struct qr_added_set *s, const char *text, size_t len, size_t from, const struct qr_trust *trust,
                   struct qr_added_match *out);

#endif
