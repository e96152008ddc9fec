/* chunk.h - what an OpenAI-style server says: one event of a stream, a whole answer, or an error object, as plain fields; and
 * the answer that a stream's events add up to.
 *
 * Understood: chat.completion.chunk, chat.completion, text_completion (streamed or not), error objects of the usual shapes. Only
 * choice 0 is read (this client never asks for more); members that are not known here are skipped. One owning thread.
 */
#ifndef QR_CLIENT_CHUNK_H
#define QR_CLIENT_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct qr_usage {
    int64_t n_prompt, n_output, n_cached; /* tokens; -1 where the server said nothing */
};

struct qr_tool_call {
    int32_t index;
    struct qr_buf id, name, arguments; /* owned */
};

#define QR_TOOL_CALLS_MAX 64

struct qr_tool_calls {
    struct qr_tool_call item[QR_TOOL_CALLS_MAX];
    int32_t n;
};

struct qr_chunk {
    bool done;       /* the stream's closing [DONE] */
    bool has_choice; /* choices was not empty and spoke of choice 0 */
    bool has_usage, is_error;
    int32_t n_chunks; /* of a sum: objects that were added, [DONE] apart */
    struct qr_buf role, text, refusal, reasoning, finish; /* owned; empty when absent */
    struct qr_buf error_message, error_code;              /* owned; of is_error. A numeric code is kept as its digits */
    struct qr_tool_calls tools;
    struct qr_usage usage;
};

void qr_chunk_init(struct qr_chunk *c);
void qr_chunk_release(struct qr_chunk *c);

/* Replaces c's content (buffers are reused) by what data[0..n) says. QR_E_INVALID when it is no JSON or no such object: the
 * message names the place. */
int qr_chunk_parse(struct qr_chunk *c, const char *data, size_t n, struct qr_err *err);

/* True when the chunk carries something generated: text, refusal, reasoning or a piece of a tool call. */
bool qr_chunk_generates(const struct qr_chunk *c);

/* Adds a stream's next chunk, which must not be an error, to what the stream has said so far. */
void qr_chunk_add(struct qr_chunk *sum, const struct qr_chunk *c);

/* The bytes of b as a terminated string, "" when it is empty. */
const char *qr_buf_text(const struct qr_buf *b);

#endif
