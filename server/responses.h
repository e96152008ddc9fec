/* responses.h - inside responses_in.c, door_responses.c and api_responses.c only: OpenAI's Responses API as a door (door.h). */
#ifndef QR_SERVER_RESPONSES_H
#define QR_SERVER_RESPONSES_H

#include "server/door.h"

#define QR_RESPONSES_FIELDS 29
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

/* Reasoning goes out and comes back under this name as `encrypted_content`, too, as some clients keep that alone. */
#define QR_RESPONSES_SEAL "quire:"

#endif
