/* tools.h - the tools of a conversation: what a model is told of them, and the commands that answer its calls.
 *
 * A tool is a description, OpenAI's "function" object, and a command: argv, run as it is, with no shell between. The command gets a call's
 * arguments as JSON on stdin; what it writes to stdout is the call's result, up to QR_TOOL_OUTPUT_MAX bytes. It runs in a session of its own,
 * without a terminal, and all of that session ends with it. Nothing here asks the user: the caller does, and
 * it has SIGPIPE ignored. One owning thread.
 */
#ifndef QR_CLIENT_TOOLS_H
#define QR_CLIENT_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/term.h"

#define QR_TOOLS_MAX 128
#define QR_TOOL_OUTPUT_MAX ((size_t)64 << 10)

struct qr_tool {
    char *name;  /* owned */
    char **argv; /* owned, as its strings are; ended by NULL */
    bool always; /* the user has allowed all calls of it */
};

struct qr_tools { /* none when zeroed */
    struct qr_tool *tool; /* owned [n] */
    int32_t n;
    struct qr_buf request; /* owned: ,"tools":[...] for a request's body; empty without tools */
};

/* A JSON array of {"function": {"name": ..., ...}, "command": ["program", "argument", ...]}. On an error t stays empty. Errors: those of reading
 * a file; QR_E_INVALID with the file and the path in it. */
int qr_tools_load(struct qr_tools *t, const char *path, struct qr_err *err);
void qr_tools_release(struct qr_tools *t);

struct qr_tool *qr_tools_find(const struct qr_tools *t, const char *name); /* NULL: there is none */

/* Appends the command's words, as a person reads them. */
void qr_tool_put_command(struct qr_buf *out, const struct qr_tool *tool);

/* Runs the command to its end and appends the call's result: its output, and what went wrong, if anything did. Returns 0, or the signal of the
 * user's (SIGINT, SIGTERM, ...) that ended it before. term: whose signals are heard. */
int qr_tool_run(struct qr_buf *result, const struct qr_tool *tool, const char *arguments, size_t n_arguments, int64_t timeout_us,
                struct qr_term *term);

#endif
