/* format.c - the formats that are regular languages, as regular expressions over the whole string. A format that is not here is an annotation.
 * Sources: RFC 3339 (dates, times, durations), 5321 (mailbox), 1123 (host names), 4291 (IPv6), 4122, 3986, 6570, 6901. */
#include "answers/schema/format.h"

#include <string.h>

#include "base/assert.h"

#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)" /* not 0000 */
#define LEAP_YEAR "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define LONG_MONTH "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
#define SHORT_MONTH "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
#define DATE "(?:" YEAR "-(?:" LONG_MONTH "|" SHORT_MONTH "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP_YEAR "-02-29)"
#define FRACTION "(?:\\.[0-9]+)?"
#define HOUR "(?:[01][0-9]|2[0-3])"
#define TIME "(?:" HOUR ":[0-5][0-9]:[0-5][0-9]" FRACTION "(?:[Zz]|[+-]" HOUR ":[0-5][0-9])|23:59:60" FRACTION "(?:[Zz]|[+-]00:00))"
#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DURATION_DATE "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
#define ALNUM "[A-Za-z0-9]"
/* A label of at most 5 + n characters. Third and fourth are not both hyphens: such names stand for others (RFC 5891), which have rules of their own. */
#define LABEL(n) ALNUM "(?:[A-Za-z0-9-]{0,2}" ALNUM "|[A-Za-z0-9-](?:" ALNUM "[A-Za-z0-9-]|-" ALNUM ")[A-Za-z0-9-]{0," n "}" ALNUM ")?"
#define LABELS(n, more) LABEL(n) "(?:\\." LABEL(n) "){0," more "}"
/* At most 253 characters in all: the more labels, the shorter they are, as counting both at once would make a state of each pair. */
#define HOST "(?:" LABEL("58") "(?:\\." LABEL("56") "){0,3}|" LABELS("25", "7") "|" LABELS("9", "15") "|" LABELS("1", "31") ")"
#define WORD "[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*"
#define DOMAIN WORD "(?:\\." WORD ")*"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 BYTE "\\." BYTE "\\." BYTE "\\." BYTE
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define H16S(n) "(?:(?:" H16 ":){0," n "}" H16 ")?"
#define IPV6 \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|" H16S("1") "::(?:" H16 ":){3}" LS32 "|" H16S("2") \
    "::(?:" H16 ":){2}" LS32 "|" H16S("3") "::" H16 ":" LS32 "|" H16S("4") "::" LS32 "|" H16S("5") "::" H16 "|" H16S("6") "::)"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define HEX "[0-9A-Fa-f]"
#define PERCENT "%" HEX HEX
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PERCENT ")"
#define AUTHORITY \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PERCENT ")*@)?(?:\\[" IPV6 "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PERCENT ")*)(?::[0-9]*)?"
#define SEGMENTS "(?:/" PCHAR "*)*"
#define QUERY_FRAGMENT "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY SEGMENTS "|/(?:" PCHAR "+" SEGMENTS ")?|" PCHAR "+" SEGMENTS ")?" QUERY_FRAGMENT
#define RELATIVE "(?://" AUTHORITY SEGMENTS "|/(?:" PCHAR "+" SEGMENTS ")?|(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PERCENT ")+" SEGMENTS ")?" QUERY_FRAGMENT
#define VARIABLE "(?:[A-Za-z0-9_]|" PERCENT ")(?:\\.?(?:[A-Za-z0-9_]|" PERCENT "))*(?::[1-9][0-9]{0,3}|\\*)?"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

/* Regular expressions without look-around and references, groups to a depth of three. */
#define RX_ESCAPE "\\\\(?:[dDwWsSbfnrtv]|x" HEX HEX "|u" HEX "{4}|[-.*+?^$(){}|\\[\\]\\\\/])"
#define RX_CLASS "\\[\\^?(?:a-z|A-Z|0-9|a-f|A-F|[^\\[\\]\\\\^-]|\\\\(?:[dDwWsSfnrtv]|[-.*+?^$(){}|\\[\\]\\\\/]))+-?\\]"
#define RX_MANY "(?:(?:[*+?]|\\{[0-9]{1,3},?\\})[?]?)?"
#define RX_PLAIN "[^\\\\()\\[\\]{}*+?|^$]|" RX_ESCAPE "|" RX_CLASS
#define RX_0 "(?:[|^$]|(?:" RX_PLAIN ")" RX_MANY ")*"
#define RX_1 "(?:[|^$]|(?:" RX_PLAIN "|\\((?:\\?:)?" RX_0 "\\))" RX_MANY ")*"
#define RX_2 "(?:[|^$]|(?:" RX_PLAIN "|\\((?:\\?:)?" RX_1 "\\))" RX_MANY ")*"
#define RX_3 "(?:[|^$]|(?:" RX_PLAIN "|\\((?:\\?:)?" RX_2 "\\))" RX_MANY ")*"

static const struct qr_format formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "[Tt]" TIME},
    {"duration", "P(?:[0-9]+W|" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME ")"},
    {"email", ATEXT "(?:\\." ATEXT ")*@(?:" DOMAIN "|\\[" IPV4 "\\])"},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"uri", URI},
    {"uri-reference", "(?:" URI "|" RELATIVE ")"},
    {"uri-template", "(?:[^\\x00-\\x20\"'%<>\\\\^`{|}]|" PERCENT "|\\{[+#./;?&=,!@|]?" VARIABLE "(?:," VARIABLE ")*\\})*"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")"},
    {"regex", RX_3},
};

const struct qr_format *qr_format_find(const char *name, size_t len)
{
    QR_ASSERT(name != NULL);
    for (int i = 0; i < QR_COUNT(formats); i++) {
        if (strlen(formats[i].name) == len && memcmp(formats[i].name, name, len) == 0)
            return &formats[i];
    }
    return NULL;
}
