/* chat_ids.h - a conversation as the ids that the server would make of it, and which of them an assistant has to produce.
 *
 * The ids are those of the whole rendering by the model's own template; nothing is encoded piece by piece and joined. Which bytes of the rendering are a
 * turn's is found by rendering again:
 *     begin   where the prompt ends that the server would make of the messages before, with the generation prompt, when the rendering begins with it;
 *             else where the rendering parts from one in which the turn says something else
 *     end     where the two come together again (that something begins and ends with a character that occurs nowhere in the conversation)
 * Where the template refuses the change (a tool's answer without its call), the turn ends where the rendering of the messages up to it does.
 * An id belongs to the turn when it holds a byte of it; where text was merged across the border, so does the id across it. Behind the end come the ids of
 * white space up to a special token, and that token: the end of the turn. Tool calls and reasoning that the template shows are part of the turn.
 */
#ifndef QR_TRAIN_DATA_CHAT_IDS_H
#define QR_TRAIN_DATA_CHAT_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "tokenizer/chat.h"
#include "tokenizer/tokenizer.h"

struct qr_chat_ids {
    struct qr_ids ids;
    bool *counts;      /* owned [counts_cap]: whether each id is an assistant's */
    int32_t counts_cap;
    int32_t n_turns;   /* of the assistant, shown by the template */
    int32_t n_hidden;  /* of the assistant, of which the template shows nothing */
    int32_t n_open;    /* without a special token behind them */
    bool open_end;     /* the last message is an assistant's, and open: an end-of-text token should follow */
};

void qr_chat_ids_release(struct qr_chat_ids *c);

/* Replaces what is in *out. messages: an array of objects, arguments of tool calls as JSON text or as values; tools: an array or NULL. An assistant's
 * message with "weight": 0 does not count. now_s: the template's clock. Errors: QR_E_INVALID names the message and what is wrong with it, or says what the
 * template says. */
int qr_chat_ids_make(struct qr_chat_ids *out, const struct qr_tokenizer *t, const struct qr_chat *chat, const struct qr_json *messages,
                     const struct qr_json *tools, int64_t now_s, struct qr_err *err);

#endif
