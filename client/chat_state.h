/* chat_state.h - what the parts of `quire chat` share: settings, conversation, connection. For client/chat*.c and client/repl*.c. */
#ifndef QR_CLIENT_CHAT_STATE_H
#define QR_CLIENT_CHAT_STATE_H

#include "base/command.h"
#include "client/ask.h"
#include "client/kept.h"
#include "client/markdown.h"
#include "client/params.h"
#include "client/session.h"
#include "client/term.h"
#include "client/tools.h"
#include "client/wrap.h"

struct qr_chat_options {
    const char *url, *model, *api_key, *system, *tools, *schema; /* borrowed from the option set */
    const char *param[QR_P_N]; /* of those that a chat has */
    struct qr_str_list stop;
    bool json, stream, stats, fail_on_length, history, yes_run_tools, markdown, resume;
    int32_t colour;
    int64_t retries, wait_us, timeout_us, tool_timeout_us;
};

/* The command's work (chat.c). */
int qr_chat_run(struct qr_command_run *r, struct qr_err *err);

/* The user's word about a call. */
enum qr_approval { QR_APPROVAL_RUN, QR_APPROVAL_REFUSE, QR_APPROVAL_STOP /* the answer ends here, as by Ctrl-C */ };

/* Thinking that is shown as one line, which counts its words. */
struct qr_fold {
    int32_t n_words;
    int64_t shown_ns;
    bool in_word, open, drawn; /* open: the line is to be ended; drawn: it is on the screen */
    bool ended;                /* and nothing but line ends came behind it, which are not shown */
};

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
    struct qr_markdown markdown; /* in front of that, where the answer is rendered */
    struct qr_kept kept;
    int64_t context_max, context_used; /* tokens that the model holds, and that the last answer left in use; 0: not known */
    struct qr_timer *spinner;    /* owned; REPL only */
    int32_t spinner_frame;       /* 0: nothing on the screen */
    bool interactive, in_reasoning, at_line_start, out_closed;
    int out_errno; /* why, once out_closed */
    struct qr_fold fold;
    bool show_thinking;          /* as it comes, instead of folded */
    struct qr_buf thinking;      /* owned: of the last question's answer, all rounds */
    struct qr_buf schema;        /* owned: ,"response_format":{...}; empty: none */
    struct qr_buf schema_path;   /* owned */
    struct qr_tools tools;
    /* Asks the user about a call that was shown; NULL: nothing is asked, and calls run with --yes-run-tools alone. */
    enum qr_approval (*approve)(void *arg, struct qr_tool *tool);
    void *approve_arg;           /* borrowed */
};

/* Makes sure a model name is known, then sends the conversation and prints the answer as it comes. more: further members of the request. */
enum qr_ask_end qr_talk_ask(struct qr_talk *c, const char *more, struct qr_err *err);

/* The answer to a question: asks, runs the tools that are called, asks again with what they gave, until there is an answer without calls, which
 * is not added to the conversation. Calls and their results are, but for those of a round that was stopped. */
enum qr_ask_end qr_talk_answer(struct qr_talk *c, struct qr_err *err);

/* Whether calls of tools are run, and not only shown. */
bool qr_talk_runs_tools(const struct qr_talk *c);

/* The number-th kept conversation, from 1 the newest, becomes this one; a system message of the settings stays. Errors: qr_kept_load's. */
int qr_talk_load_kept(struct qr_talk *c, int64_t number, struct qr_err *err);

/* Keeps the conversation as it is now. One that cannot be kept is said once. */
void qr_talk_keep(struct qr_talk *c);

/* Answers are to fit the JSON schema in that file; NULL: they are free again. On an error nothing has changed. */
int qr_talk_set_schema(struct qr_talk *c, const char *path, struct qr_err *err);

/* Text that is no answer: to stderr, wrapped where that is a terminal. It may have colours, but no other controls. */
void qr_talk_print(struct qr_talk *c, const char *text, size_t n);

/* "quire chat: ..." on stderr. */
void qr_talk_complain(struct qr_talk *c, const struct qr_err *err);

/* The exit status for how an exchange ended. */
int qr_talk_exit_status(const struct qr_talk *c, enum qr_ask_end end);

/* The terminal conversation; returns the exit status. */
int qr_repl_run(struct qr_talk *c);

#endif
