/* messages.h - inside api_messages.c and messages_in.c only: Anthropic's Messages API as a door (door.h). */
#ifndef QR_SERVER_MESSAGES_H
#define QR_SERVER_MESSAGES_H

#include "server/door.h"

#define QR_MESSAGES_THREAD "thread" /* a field whose error has details */
#define QR_MESSAGES_FIELDS 20
#define QR_MESSAGES_PATHS 6
extern const struct qr_door_field qr_messages_field[QR_MESSAGES_FIELDS];
extern const struct qr_door_path qr_messages_path[QR_MESSAGES_PATHS];

/* What /v1/messages asks for and count_tokens does not. */
int qr_messages_need_max_tokens(struct qr_door_in *in, struct qr_err *err);

#endif
