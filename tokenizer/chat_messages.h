/* chat_messages.h - messages in the form that a chat template can read. Internal to tokenizer/. */
#ifndef QR_TOKENIZER_CHAT_MESSAGES_H
#define QR_TOKENIZER_CHAT_MESSAGES_H

#include <stdbool.h>

#include "base/err.h"
#include "base/json.h"

/* What a template cannot read, and what it is given in its place. */
struct qr_chat_form {
    bool join;                 /* lists of nothing but text parts: one string, a part a line */
    bool join_system, join_assistant, join_tool; /* the same, for messages of this role */
    bool arguments_as_text;    /* arguments of tool calls: JSON text */
    bool empty_for_null;       /* the content of a turn that only calls tools or refuses: "" (else null, also where it is absent) */
    bool system_for_developer; /* the role developer: system */
};

/* *out is a copy to be freed, or NULL when nothing had to change. */
int qr_chat_messages(struct qr_json **out, const struct qr_json *messages, const struct qr_chat_form *form, struct qr_err *err);

#endif
