/* categories.h - what patterns of users ask about characters: general categories by name, and letters without their case (utf8proc
 * stays behind it). Pure. */
#ifndef QR_TOKENIZER_CATEGORIES_H
#define QR_TOKENIZER_CATEGORIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The categories that a name stands for, as bits: "Lu", "Uppercase_Letter", "L", "Letter", "LC", "Any". Case, '_', '-' and blanks do not
 * matter (Unicode Standard Annex 44, UAX44-LM3). 0: no such name. */
uint32_t qr_category_find(const char *name, size_t len);

/* The first run of characters of these categories that ends at `from` or behind it: [*first, *last]. False: there is none. */
bool qr_category_run(uint32_t categories, int32_t from, int32_t *first, int32_t *last);

/* Simple case folding: two characters differ only in case where this is the same for both. */
int32_t qr_case_fold(int32_t cp);
#define QR_CASED_MAX 0x1E943 /* no character above it has another case */

#endif
