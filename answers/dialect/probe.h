/* probe.h - renderings of small conversations, in which a template shows how its model writes. Internal to
 * answers/dialect/. */
#ifndef QR_ANSWERS_DIALECT_PROBE_H
#define QR_ANSWERS_DIALECT_PROBE_H

#include "answers/dialect/form.h"

/* Words that no template has, to be found again in what it writes. */
#define QR_PROBE_USER "qrquestion"
#define QR_PROBE_TEXT "qrcontent"
#define QR_PROBE_THOUGHT "qrthought"
#define QR_PROBE_F1 "qrfirst_f"
#define QR_PROBE_F2 "qrsecond_f"
#define QR_PROBE_A1 "qra_one"
#define QR_PROBE_A2 "qrb_two"
#define QR_PROBE_V1 "qrvalueone"
#define QR_PROBE_V2 "qrvaluetwo"
#define QR_PROBE_NUMBER "918273645"
#define QR_PROBE_ID1 "qrID00001"
#define QR_PROBE_ID2 "qrID00002"

enum qr_probe_think { QR_PROBE_THINK_UNSAID, QR_PROBE_THINK_ON, QR_PROBE_THINK_OFF };

struct qr_probe {
    const struct qr_chat *chat;
    bool tools;              /* the template takes tools */
    const char *extra;       /* further members of its context, or "" */
};

/* A conversation: the user's question, then `message` (JSON, an assistant's; NULL: none), then `more` (NULL: nothing).
 * NULL where the template fails; else to be freed with qr_free. */
char *qr_probe_render(const struct qr_probe *p, const char *message, const char *more, bool generation_prompt, enum qr_probe_think think);

/* The number of bytes that a and b have alike at the front (at the end), cut so that no marker and no character is in pieces. */
size_t qr_same_front(const char *a, const char *b);
size_t qr_same_back(const char *a, const char *b);
/* The same, cut behind a marker that a[0..n) ends in the middle of. */
size_t qr_whole_front(const char *a, size_t n);
size_t qr_whole_from(const char *a, size_t at);

#endif
