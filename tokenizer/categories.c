#include "tokenizer/categories.h"

#include <string.h>
#include <utf8proc.h>

#include "base/assert.h"

#define CP_MAX 0x10FFFF
#define BIT(c) (1u << UTF8PROC_CATEGORY_##c)

static const struct { const char *brief, *full; uint32_t categories; } names[] = {
    {"lu", "uppercaseletter", BIT(LU)}, {"ll", "lowercaseletter", BIT(LL)}, {"lt", "titlecaseletter", BIT(LT)},
    {"lc", "casedletter", BIT(LU) | BIT(LL) | BIT(LT)}, {"l&", "casedletter", BIT(LU) | BIT(LL) | BIT(LT)},
    {"lm", "modifierletter", BIT(LM)}, {"lo", "otherletter", BIT(LO)},
    {"l", "letter", BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO)},
    {"mn", "nonspacingmark", BIT(MN)}, {"mc", "spacingmark", BIT(MC)}, {"me", "enclosingmark", BIT(ME)},
    {"m", "mark", BIT(MN) | BIT(MC) | BIT(ME)}, {"m", "combiningmark", BIT(MN) | BIT(MC) | BIT(ME)},
    {"nd", "decimalnumber", BIT(ND)}, {"nd", "digit", BIT(ND)}, {"nl", "letternumber", BIT(NL)}, {"no", "othernumber", BIT(NO)},
    {"n", "number", BIT(ND) | BIT(NL) | BIT(NO)},
    {"pc", "connectorpunctuation", BIT(PC)}, {"pd", "dashpunctuation", BIT(PD)}, {"ps", "openpunctuation", BIT(PS)},
    {"pe", "closepunctuation", BIT(PE)}, {"pi", "initialpunctuation", BIT(PI)}, {"pf", "finalpunctuation", BIT(PF)},
    {"po", "otherpunctuation", BIT(PO)},
    {"p", "punctuation", BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)},
    {"p", "punct", BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO)},
    {"sm", "mathsymbol", BIT(SM)}, {"sc", "currencysymbol", BIT(SC)}, {"sk", "modifiersymbol", BIT(SK)}, {"so", "othersymbol", BIT(SO)},
    {"s", "symbol", BIT(SM) | BIT(SC) | BIT(SK) | BIT(SO)},
    {"zs", "spaceseparator", BIT(ZS)}, {"zl", "lineseparator", BIT(ZL)}, {"zp", "paragraphseparator", BIT(ZP)},
    {"z", "separator", BIT(ZS) | BIT(ZL) | BIT(ZP)},
    {"cc", "control", BIT(CC)}, {"cc", "cntrl", BIT(CC)}, {"cf", "format", BIT(CF)}, {"cs", "surrogate", BIT(CS)},
    {"co", "privateuse", BIT(CO)}, {"cn", "unassigned", BIT(CN)},
    {"c", "other", BIT(CC) | BIT(CF) | BIT(CS) | BIT(CO) | BIT(CN)},
    {"any", "any", ~0u}, {"assigned", "assigned", ~BIT(CN)},
};

uint32_t qr_category_find(const char *name, size_t len)
{
    char plain[32];
    size_t n = 0;
    QR_ASSERT(name != NULL || len == 0);
    for (size_t i = 0; i < len; i++) {
        const char c = name[i];
        if (c == '_' || c == '-' || c == ' ')
            continue;
        if (n == sizeof plain - 1)
            return 0;
        plain[n++] = c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
    }
    plain[n] = 0;
    for (int i = 0; i < QR_COUNT(names); i++)
        if (strcmp(plain, names[i].brief) == 0 || strcmp(plain, names[i].full) == 0)
            return names[i].categories;
    return 0;
}

/* Runs of one category each in every version of Unicode since 3.1: ideographs, syllables, surrogates, private use, and planes without a
 * character. They are four fifths of all code points, and are not looked through. */
static const struct { int32_t first, last; } plain[] = {
    {0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3}, {0xD800, 0xDFFF}, {0xE000, 0xF8FF}, {0x20000, 0x2A6D6}, {0x40000, 0xDFFFF},
    {0xE0200, 0xEFFFF}, {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD},
};

/* The last character from cp on that surely has its category. *next: the first run above that does not end before cp. */
static int32_t same_until(int32_t cp, int *next)
{
    while (*next < QR_COUNT(plain) && plain[*next].last < cp)
        ++*next;
    return *next < QR_COUNT(plain) && plain[*next].first <= cp ? plain[*next].last : cp;
}

static bool is_in(uint32_t categories, int32_t cp)
{
    return categories >> utf8proc_category(cp) & 1;
}

bool qr_category_run(uint32_t categories, int32_t from, int32_t *first, int32_t *last)
{
    QR_ASSERT(first != NULL && last != NULL);
    QR_ASSERT(from >= 0);
    int32_t cp = from;
    int next = 0;
    while (cp <= CP_MAX && !is_in(categories, cp))
        cp = same_until(cp, &next) + 1;
    if (cp > CP_MAX)
        return false;
    *first = cp;
    while (cp <= CP_MAX && is_in(categories, cp))
        cp = same_until(cp, &next) + 1;
    *last = cp - 1;
    return true;
}

int32_t qr_case_fold(int32_t cp)
{
    QR_ASSERT(cp >= 0);
    QR_ASSERT(cp <= CP_MAX);
    if (cp == 0x130 || cp == 0x131) /* the Turkish i with and without its dot fold to themselves */
        return cp;
    return utf8proc_tolower(utf8proc_toupper(cp));
}
