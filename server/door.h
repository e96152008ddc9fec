/* door.h - one API among several to the same engine: how its bodies become bodies of /v1/chat/completions, and how the answer is written in its shapes.
 *
 * A door has no path of its own to the engine. In: a table of fields makes a chat body of its body, which then goes the way of any chat call
 * (openai_parse.c, api_chat.c), so bounds, tools, schemas and thinking are chat's. Errors name the paths of the door's own body. Out: what the model says
 * arrives as items (a run of reasoning, a run of content, a call), in order, never two at a time; the door writes them as they come in a stream, or all at
 * the end.
 * Chat and completions have no door: they are what doors are translated to (openai_write.c).
 *
 * In runs on libuv's pool, out on the loop thread (`end` in the server's scratch). In the call's account: without memory the pool's part ends where it is, and
 * on the loop thread what there is no room for is left out.
 */
#ifndef QR_SERVER_DOOR_H
#define QR_SERVER_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answers/dialect/dialect.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

struct qr_api_error;
struct qr_call;
struct qr_choice;
struct qr_event;

/* ---- in ---- */

/* A body that is being translated. */
struct qr_door_in {
    const struct qr_json *body;   /* borrowed: an object, of the members that the door has fields for */
    struct qr_buf chat;           /* owned: the chat body's members so far, without braces; qr_door_put_name puts commas */
    struct qr_buf sources;        /* owned: the door's path of each chat message, each ended by a NUL */
    struct qr_buf kept;           /* owned: what the answer repeats of the body, in a form of the door's own: call->door_kept afterwards */
    struct qr_call *call;         /* borrowed; NULL where there is none (the fuzz target) */
    int32_t ctx_max;              /* the model's; 0: not known */
};

struct qr_door_field {
    const char *name;             /* in the door's body; null there is as if it were absent */
    const char *chat;             /* in the chat body: the value is taken as it is, errors of `chat` become errors of `name`. NULL: only `put` knows */
    /* Instead of taking the value as it is: checks it and puts what it means into in->chat. NULL: none. Errors are named by the door's paths. */
    int (*put)(struct qr_door_in *in, const struct qr_json *v, struct qr_err *err);
};

/* Where a value of the chat body stands in the door's, beside what fields say. '#' in both stands for a number; the longest chat path that an error's path
 * begins with is taken: {"tools[#].function.parameters", "tools[#].input_schema"}. Of messages see qr_door_put_source. */
struct qr_door_path {
    const char *chat, *own;
};

/* For put and settle: */
void qr_door_put_name(struct qr_door_in *in, const char *chat);                              /* `,"chat":`; its value must follow */
void qr_door_put_value(struct qr_door_in *in, const char *chat, const struct qr_json *v);     /* nothing where v is NULL or null */
void qr_door_put_text(struct qr_door_in *in, const char *chat, const char *json);             /* the value is that JSON text */

void qr_door_put_member(struct qr_buf *out, const char *name, const struct qr_json *v);       /* the same into any object */

/* A tool of chat's. tool: has name, description and strict; NULL: one of a type that chat leaves out, which keeps its place. */
void qr_door_put_function(struct qr_buf *out, const struct qr_json *tool, const struct qr_json *parameters);

/* All tools; put is told each with its number, and puts a function for it. */
typedef int qr_door_tool_fn(struct qr_buf *out, const struct qr_json *tool, int32_t i, struct qr_err *err);
int qr_door_put_tools(struct qr_door_in *in, const struct qr_json *v, qr_door_tool_fn *put, struct qr_err *err);

/* Before a chat message is written into in->chat: where in the door's body it comes from ("messages[2].content[1]"). Errors of it and below begin with that. */
void qr_door_put_source(struct qr_door_in *in, const char *path);

/* ---- out ---- */

/* One thing that an answer says. */
struct qr_item {
    enum qr_part part;            /* QR_PART_REASONING, _CONTENT, _CALL */
    int32_t index;                /* among the answer's items, from 0 */
    /* owned: the reasoning, the content, or the call's arguments as JSON text ("{}" where it has none; cut off where the answer was). In a stream it is
     * empty, unless the door keeps items. */
    struct qr_buf text;
    struct qr_buf name, id;       /* owned: a call's */
    bool open;                    /* it has not ended */
    bool cut;                     /* a call that the answer's end cut off */
};

struct qr_items {
    struct qr_item *item;         /* owned [n] */
    int32_t n, cap;
};

/* ---- the door ---- */

struct qr_door {
    const char *id_prefix;        /* of call->id: "msg_" */
    const char *call_prefix;      /* of calls that the model gives no id: "toolu_" */
    const char *name_tail;        /* what clients put behind a model's name (":latest"); NULL: nothing */
    const char *stream_type;      /* content type of a stream */
    const char *ping;             /* what a stream that has not begun sends meanwhile: ": waiting\n\n"; NULL: nothing may be sent */
    bool bounds_length;           /* a max_tokens above what there is room for is no error */
    bool tells_whole;             /* what a stream has of items is told of whole answers, too (and dropped): the door collects what it makes of them */
    bool keeps_items;             /* in a stream, too, where an item's or the answer's end repeats them */

    const struct qr_door_field *field; /* in the order in which they are read */
    int32_t n_fields;
    /* Behind the fields: what is required, what they mean together. NULL: nothing. */
    int (*settle)(struct qr_door_in *in, struct qr_err *err);
    const struct qr_door_path *path;
    int32_t n_paths;

    /* A stream, with what frames its events; choice 0 is the only one, its n_output, n_reasoning, finish, stop_index are those of the event at hand (`end`:
     * the last one). call->choice[0].logprob[0] has the items of log-probabilities (comma-separated, chat's shape) since it was emptied last: a door that
     * writes them empties it. Each may be NULL: then it writes nothing. */
    void (*begin)(struct qr_call *call, struct qr_buf *out);  /* before the first item; the prompt's numbers are known (call->piece[0].n_prompt, n_cached) */
    void (*item_begin)(struct qr_call *call, const struct qr_item *item, struct qr_buf *out);
    void (*item_text)(struct qr_call *call, const struct qr_item *item, const char *text, size_t n, struct qr_buf *out); /* n > 0 */
    void (*item_end)(struct qr_call *call, const struct qr_item *item, struct qr_buf *out);
    void (*end)(struct qr_call *call, struct qr_buf *out);

    void (*fail)(struct qr_call *call, struct qr_buf *out);   /* instead of `error`, in a stream: call->error ends it. NULL: `error` */

    void (*whole)(struct qr_call *call, struct qr_buf *out);  /* the whole body, of call->choice[0].items */

    /* An error's status in this API, and its body; stream: as the stream's last event, framed. NULL status: as it is. */
    int32_t (*status)(const struct qr_api_error *e);
    void (*error)(struct qr_buf *out, const struct qr_api_error *e, bool stream);
};

extern const struct qr_door qr_door_responses, qr_door_messages, qr_door_ollama;

/* ---- what call.c and its kin do with a door ---- */

/* The chat body of a door's body, appended to in->chat with its braces; in is zeroed before, but for `call` and ctx_max. It is to be released also after
 * an error. */
int qr_door_translate(const struct qr_door *door, struct qr_door_in *in, const char *body, size_t len, struct qr_err *err);
void qr_door_in_release(struct qr_door_in *in);

/* An error of the chat body as one of the door's: its param, and where the message begins with that. sources: as in qr_door_in. */
void qr_door_rename(const struct qr_door *door, const struct qr_buf *sources, struct qr_api_error *e);

/* An event of a call with a door: its text becomes items, in a stream what the door writes of them is in choice->deltas. */
void qr_door_take(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev);

/* A call's arguments as a JSON value: an object; {} where they are none, as the answer's end cut them off. */
void qr_item_put_object(struct qr_buf *out, const struct qr_item *item);

void qr_items_release(struct qr_items *items);

/* For openai_parts.c, which tells what it has of an answer. bare: a call without arguments; whole: the model ended it. */
void qr_door_said(struct qr_call *call, struct qr_choice *choice, enum qr_part part, const char *text, size_t n);
void qr_door_call_begin(struct qr_call *call, struct qr_choice *choice, const char *name, size_t n_name, const char *id);
void qr_door_call_end(struct qr_call *call, struct qr_choice *choice, bool bare, bool whole);

/* Whose form an answer to a request for this path has that was refused; NULL: OpenAI's. */
const struct qr_door *qr_door_of_path(const char *path, size_t len);

/* Which API the path is of: "openai", "messages", "responses", "ollama". */
const char *qr_door_name_of_path(const char *path, size_t len);

#endif
