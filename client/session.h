/* session.h - a conversation: its messages, the request body made of them, and its file.
 * The file is JSON lines, one message each, readable by anything; a partial answer carries "stopped": true. One owning thread.
 */
#ifndef QR_CLIENT_SESSION_H
#define QR_CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/params.h"

enum qr_role { QR_ROLE_SYSTEM, QR_ROLE_USER, QR_ROLE_ASSISTANT, QR_ROLE_TOOL /* what a call gave */ };

struct qr_message {
    enum qr_role role;
    bool stopped; /* an answer that was cut off by the user or by a broken connection */
    char *text;   /* owned, terminated */
    size_t len;
    char *more;   /* owned; NULL: nothing. Further members as JSON, braces left out: tool_calls, tool_call_id, reasoning_content */
};

struct qr_session {
    struct qr_message *message; /* owned [cap] */
    int32_t n, cap;
};

void qr_session_release(struct qr_session *s);

void qr_session_add(struct qr_session *s, enum qr_role role, const char *text, size_t len, bool stopped);

/* What the last message, which has none, says beside its role and content; see above. */
void qr_session_set_more(struct qr_session *s, const char *more);

/* Replaces, adds or (text NULL or "") removes the system message, which is always the first. */
void qr_session_set_system(struct qr_session *s, const char *text);
const char *qr_session_system(const struct qr_session *s); /* NULL when there is none */

/* Drops everything but the system message. */
void qr_session_clear(struct qr_session *s);

/* Drops the last user message and what follows it. False when there is none. */
bool qr_session_undo(struct qr_session *s);

/* The last message of that role, NULL when there is none. */
const struct qr_message *qr_session_last(const struct qr_session *s, enum qr_role role);

/* Takes what is behind the last message of the user out, to the end of `to`. False when there is no user message. */
bool qr_session_rewind_to_user(struct qr_session *s, struct qr_session *to);

/* Moves messages first.. of `from` to the end of s. */
void qr_session_move(struct qr_session *s, struct qr_session *from, int32_t first);

/* Appends the body of a chat completion request. more: further members of it, each behind a comma, or "". */
void qr_session_body(struct qr_buf *out, const struct qr_session *s, const char *model, const struct qr_chat_params *p, const char *more,
                     bool stream);

/* Writes through a temporary file, mode 0600. QR_E_IO. */
int qr_session_save(const struct qr_session *s, const char *path, struct qr_err *err);

/* Replaces s. On an error s stays as it was. QR_E_NOT_FOUND, QR_E_IO, QR_E_DAMAGED with the line. */
int qr_session_load(struct qr_session *s, const char *path, struct qr_err *err);

const char *qr_role_name(enum qr_role role);

#endif
