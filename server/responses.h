/* responses.h - inside responses_*.c, door_responses.c and api_responses.c only: OpenAI's Responses API as a door (door.h). */
#ifndef QR_SERVER_RESPONSES_H
#define QR_SERVER_RESPONSES_H

#include "server/door.h"
#include "server/responses_store.h"

#define QR_RESPONSES_FIELDS 31
#define QR_RESPONSES_PATHS 9
extern const struct qr_door_field qr_responses_field[QR_RESPONSES_FIELDS];
extern const struct qr_door_path qr_responses_path[QR_RESPONSES_PATHS];

/* What a call keeps of its body, in call->door_kept: this, and behind it the members of the response that the body gave, without braces, and the items of the
 * conversation so far, comma-separated. */
struct qr_responses_kept {
    int64_t n_events;        /* of the stream so far */
    size_t n_members, n_items; /* bytes */
    bool store, encrypted;   /* it is stored; reasoning items have encrypted_content */
};

/* Beside the fields: makes the messages of the conversation, and in->kept. */
int qr_responses_settle(struct qr_door_in *in, struct qr_err *err);

/* The messages of the conversation, into in->chat; its items, comma-separated, as they are kept. items are to be released also after an error. */
int qr_responses_read(struct qr_door_in *in, struct qr_buf *items, struct qr_err *err);

/* A member that must be a string. NULL: *rc says why not. at: where the object stands. */
const struct qr_json *qr_responses_text(const struct qr_json *of, const char *name, const char *at, int *rc, struct qr_err *err);

/* It is not what was expected, or missing. */
int qr_responses_wrong(struct qr_err *err, const char *at, const char *name, const char *expected, const struct qr_json *found);

/* A call that is being answered, as the response that it is once it was cancelled; stored, if its body wants that. */
void qr_responses_cancelled(struct qr_call *call, struct qr_buf *out);

/* Reasoning goes out and comes back under this name as `encrypted_content`, too, as some clients keep that alone. */
#define QR_RESPONSES_SEAL "quire:"

#endif
