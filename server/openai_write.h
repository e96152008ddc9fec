/* openai_write.h - answers in OpenAI's shapes: whole bodies and stream chunks. Appends to buffers; knows no connection. */
#ifndef QR_SERVER_OPENAI_WRITE_H
#define QR_SERVER_OPENAI_WRITE_H

#include "server/call.h"

/* Fills call->head: what every chunk and the whole answer begin with, up to `"choices":[`. */
void qr_write_head(struct qr_call *call);

/* At a choice's first event: prompt log-probabilities, echoed text and its log-probabilities go into the piece and the choice. */
void qr_write_prompt_parts(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev);

/* What the event says of numbers and the end joins the choice, log-probabilities, too. */
void qr_write_note(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev);

/* Not streaming: the event's text, ids and log-probabilities join the choice. */
void qr_write_collect(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev);

/* Streaming: appends the chunks ("data: ...\n\n") that this event makes; perhaps none. */
void qr_write_chunk(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev, struct qr_buf *out);

/* Streaming: the usage chunk where the request wants one, and [DONE]. */
void qr_write_stream_end(struct qr_call *call, struct qr_buf *out);

/* The whole body. What a choice has collected is released as soon as it stands there. */
void qr_write_whole(struct qr_call *call, struct qr_buf *out);

/* What a choice has collected. */
void qr_write_release(struct qr_choice *choice);

/* ---- answers with parts (openai_parts.c) ---- */

/* The event's text, of a choice with a parser: its parts join the choice, or in a stream become choice->deltas. */
void qr_parts_feed(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev);

/* Members of the message beside its content: reasoning, calls. */
void qr_parts_put_members(struct qr_buf *out, const struct qr_choice *choice);

/* ---- log-probabilities (openai_logprobs.c) ---- */

/* Appends one token to the choice's logprob parts. present: false for the first prompt token, which has no log-probability. */
void qr_logprobs_add(struct qr_call *call, struct qr_choice *choice, const struct qr_token_logprob *t, bool present);

/* Completions, before the first prompt token is added: where the text offsets start. The piece knows its prompt's text. */
void qr_logprobs_begin_prompt(const struct qr_call *call, struct qr_choice *choice, const int32_t *ids, int32_t n);

/* Appends the object that `logprobs` is, from the choice's parts, and empties them. */
void qr_logprobs_put(struct qr_buf *out, const struct qr_call *call, struct qr_choice *choice);

/* Appends vLLM's prompt_logprobs array. ids [n]. */
void qr_prompt_logprobs_put(struct qr_buf *out, const struct qr_call *call, const struct qr_token_logprob *t, int32_t n);

#endif
