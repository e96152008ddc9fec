/* chat_state.h - what the parts of `quire chat` share: settings, conversation, connection. For client/chat*.c and client/repl*.c. */
#ifndef QR_CLIENT_CHAT_STATE_H
#define QR_CLIENT_CHAT_STATE_H

#include "base/command.h"
#include "client/ask.h"
#include "client/params.h"
#include "client/session.h"
#include "client/term.h"
#include "client/wrap.h"

struct qr_chat_options {
    const char *url, *model, *api_key, *system; /* borrowed from the option set */
    const char *param[QR_P_N]; /* of those that a chat has */
    struct qr_str_list stop;
    bool json, stream, stats, fail_on_length, history;
    int32_t colour;
    int64_t retries, wait_us, timeout_us;
};

/* The command's work (chat.c). */
int qr_chat_run(struct qr_command_run *r, struct qr_err *err);

struct qr_talk {
    struct qr_chat_options opt;
    struct qr_chat_params params;
    struct qr_session session;
    struct qr_term term;
    struct qr_loop *loop;        /* owned */
    struct qr_http_client *http; /* owned */
    struct qr_ask ask;
    struct qr_buf model;         /* owned; empty until it is known */
    struct qr_buf shown;         /* owned; scratch for what is printed */
    struct qr_wrap wrap;         /* of the answer, where stdout is a terminal */
    struct qr_timer *spinner;    /* owned; REPL only */
    int32_t spinner_frame;       /* 0: nothing on the screen */
    bool interactive, in_reasoning, at_line_start, out_closed;
    int out_errno; /* why, once out_closed */
};

/* Makes sure a model name is known, then sends the conversation and prints the answer as it comes. */
enum qr_ask_end qr_talk_ask(struct qr_talk *c, struct qr_err *err);

/* Text that is no answer: to stderr, wrapped where that is a terminal. It may have colours, but no other controls. */
void qr_talk_print(struct qr_talk *c, const char *text, size_t n);

/* "quire chat: ..." on stderr. */
void qr_talk_complain(struct qr_talk *c, const struct qr_err *err);

/* The exit status for how an exchange ended. */
int qr_talk_exit_status(const struct qr_talk *c, enum qr_ask_end end);

/* The terminal conversation; returns the exit status. */
int qr_repl_run(struct qr_talk *c);

#endif
