/* chat_messages.h - messages in the form that a chat template can read. Internal to tokenizer/. */
#ifndef QR_TOKENIZER_CHAT_MESSAGES_H
#define QR_TOKENIZER_CHAT_MESSAGES_H

#include <stdbool.h>

#include "base/err.h"
#include "base/json.h"

/* join: content lists of nothing but text parts become one string, a part a line. as_text: the arguments of tool calls become JSON
 * text. *out is a copy to be freed, or NULL when nothing had to change. */
int qr_chat_messages(struct qr_json **out, const struct qr_json *messages, bool join, bool as_text, struct qr_err *err);

#endif
