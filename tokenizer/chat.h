/* chat.h - a model directory's chat template with its special tokens: messages in, token ids out.
 * Read from chat_template.jinja, chat_template.json or tokenizer_config.json (a string, or a list of named templates of which
 * "default" is taken, "tool_use" when the request has tools), or from a GGUF file. Immutable once open.
 */
#ifndef QR_TOKENIZER_CHAT_H
#define QR_TOKENIZER_CHAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/files/source.h"
#include "tokenizer/template.h"
#include "tokenizer/tokenizer.h"

struct qr_chat; /* opaque */

/* *out is NULL (and 0 returned) when the directory has no chat template. */
int qr_chat_open(struct qr_chat **out, const char *model, struct qr_err *err);
int qr_chat_open_from(struct qr_chat **out, const struct qr_source *source, struct qr_err *err);
/* A template alone, without a model: its special tokens are empty. where: its file, for errors. */
int qr_chat_open_text(struct qr_chat **out, const char *text, size_t len, const char *where, struct qr_err *err);
void qr_chat_close(struct qr_chat *c); /* NULL is fine */

/* Names that a request's chat_template_kwargs must not set: messages, tools, add_generation_prompt, bos_token, ... */
bool qr_chat_is_reserved(const char *name);

struct qr_chat_request {
    const struct qr_json *messages; /* array, validated by the caller as far as OpenAI defines it; content parts allowed */
    const struct qr_json *tools;    /* array or NULL */
    const struct qr_json *documents;/* array or NULL */
    const struct qr_json *kwargs;   /* object or NULL: extra variables, scalar values, none reserved */
    bool add_generation_prompt;
    bool continue_final_message;    /* the last message is left open: the rendering ends with its text */
    int64_t now_s;
};

/* Renders. Text-only content part lists become one string, a part a line, for templates that do not loop over them; arguments of tool
 * calls given as values become JSON text for templates that print them as they are (found out when the directory is opened). kind as in
 * template.h; steps_max grows with the number of messages. Special tokens (bos_token, eos_token, ...) are trusted text.
 * Errors beside the template's own: QR_E_INVALID with its param for continue_final_message without text to continue or beside
 * add_generation_prompt, and for a reserved name in kwargs. */
int qr_chat_render(const struct qr_chat *c, struct qr_rendered *out, const struct qr_chat_request *req,
                   enum qr_template_kind *kind, struct qr_err *err);

/* *owned becomes a copy of messages (an array of objects) in which the arguments of tool calls are values where they were JSON text of an object; NULL
 * where no message has calls. What the server does before it renders. Errors: those of qr_json_parse, for a copy that passes the limits. */
int qr_chat_open_arguments(struct qr_json **owned, const struct qr_json *messages, const struct qr_json_limits *limits, struct qr_err *err);

/* Renders with `context` as the whole context, as it is (content parts too); the model's special tokens are added where it names none. For
 * `quire template --model`. */
int qr_chat_render_context(const struct qr_chat *c, struct qr_rendered *out, const struct qr_json *context, int64_t now_s,
                           enum qr_template_kind *kind, struct qr_err *err);

#endif
