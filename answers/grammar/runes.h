/* runes.h - sets of characters while a pattern is read: ranges of code points, by hand, by property, without case. Internal to
 * answers/grammar/. A set belongs to one thread.
 */
#ifndef QR_ANSWERS_GRAMMAR_RUNES_H
#define QR_ANSWERS_GRAMMAR_RUNES_H

#include "answers/grammar/expr.h"

struct qr_runes { /* empty when zeroed */
    struct qr_rune_range *range; /* owned */
    int32_t n, cap;
};

void qr_runes_release(struct qr_runes *r);
void qr_runes_add(struct qr_runes *r, int32_t first, int32_t last);
void qr_runes_add_all(struct qr_runes *r, const struct qr_rune_range *range, int32_t n);

/* Sorted, apart from each other, none empty. The two behind it take sets that are so, and leave them so. */
void qr_runes_settle(struct qr_runes *r);
void qr_runes_invert(struct qr_runes *r);
bool qr_runes_hold(const struct qr_runes *r, int32_t rune);

/* The characters of a script that is known here ("Greek"; case, '_', '-' and blanks do not matter). False: no such script. */
bool qr_runes_add_script(struct qr_runes *r, const char *name, size_t len);

/* The other cases of characters, made once for a pattern that asks for them. Empty when zeroed. */
struct qr_folds {
    struct qr_case_pair { int32_t fold, rune; } *pair; /* owned; sorted */
    int32_t n;
};
void qr_folds_release(struct qr_folds *f);

/* Adds to each character those that differ from it only in case. r is settled before and behind. */
void qr_runes_fold(struct qr_runes *r, struct qr_folds *f);

#endif
