/* repl.h - the conversation at a terminal; what repl.c (reading, answering) and repl_commands.c (/commands) share. */
#ifndef QR_CLIENT_REPL_H
#define QR_CLIENT_REPL_H

#include "client/chat_state.h"
#include "client/editor.h"

struct qr_repl {
    struct qr_talk *talk;        /* borrowed */
    struct qr_editor *editor;    /* owned */
    struct qr_line_history kept;
    struct qr_buf message;       /* owned: the message being entered, or made by a command */
    struct qr_buf attached;      /* owned: files that /read put beside the next message */
    struct qr_session before;    /* owned: the answer that /regen took out, for as long as nothing came in its place; so */
    bool again;                  /* `again` says */
    int64_t interrupt_ns;        /* of the last Ctrl-C; 0: none, or something was entered since */
    int status;                  /* exit status, once leaving */
};

enum qr_repl_next {
    QR_REPL_PROMPT, /* done; prompt again */
    QR_REPL_ASK,    /* send the conversation as it is */
    QR_REPL_SEND,   /* r->message is the user's next message */
    QR_REPL_LEAVE,
};

/* Runs a line that begins with a slash. */
enum qr_repl_next qr_repl_command(struct qr_repl *r, const char *line);

/* The number-th kept conversation becomes this one, and the last question of it is shown. */
void qr_repl_go_on(struct qr_repl *r, int64_t number);

/* Tab completion of commands, parameter names and, after /read, /save and /load, files. */
void qr_repl_complete(void *arg, const char *line, size_t n, void (*add)(void *to, const char *word), void *to);

/* Asks the user whether a call that was shown may run (struct qr_talk's approve). */
enum qr_approval qr_repl_approve(void *repl, struct qr_tool *tool);

/* Prints to stderr what is no answer, with a line end. */
void qr_repl_say(struct qr_repl *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
