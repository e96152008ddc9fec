/* call.h - one API request from its body to its answer.
 *
 * new (loop) -> prepare (pool thread: JSON, template, tokens) -> submit (loop) -> events (loop) -> answer (loop) -> free.
 * A call outlives its connection when the client leaves: then its engine requests are cancelled and it ends with their last
 * events. It has one engine request ("piece") per prompt, and n choices in each.
 *
 * What it holds is charged to the server's budget. `prepare` and `write` need not look at memory: without it they end where they are, and the client hears why.
 * On the loop thread pointers may be NULL then, and the call ends when the step is over.
 */
#ifndef QR_SERVER_CALL_H
#define QR_SERVER_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "engine/engine.h"
#include "engine/exchange.h"
#include "server/api_error.h"
#include "server/door.h"
#include "server/openai.h"
#include "server/state.h"

struct qr_call;
struct qr_choice;
struct qr_piece;

struct qr_call_kind {
    enum qr_api api;                        /* 0: neither chat nor completions */
    enum qr_counted counted;                /* as what /metrics counts it */
    const struct qr_door *door;             /* whose body and answer it has (door.h); NULL: OpenAI's of `api`. With one, `api` is chat */
    void (*prepare)(struct qr_call *call);  /* pool thread: fills pieces, or `reply`, which is the answer then, or `error` */
    void (*settle)(struct qr_call *call);   /* loop thread: what only it knows, once that is done; may fill `error`. NULL: nothing */
    /* Where the answer has a shape of its own, else NULL: what an event that is no error adds to it, and, on a pool thread, the whole of it into `reply`, or
     * `error`. */
    void (*collect)(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev);
    void (*write)(struct qr_call *call);
    /* A request shortly before it is submitted, NULL without memory. Where `make` is NULL `prepare` made them all. */
    struct qr_request *(*make)(struct qr_call *call, struct qr_piece *piece);
    const char *id_prefix;                  /* of call->id, without a door: "chatcmpl-"; NULL: the answer has no id */
    bool renders;                           /* nothing is computed: the answer is what would be (api_render.c), which has no form yet */
    int32_t submitted_max;                  /* pieces inside the engine at a time, the others wait here, as long as it takes; 0: all at once */
};

struct qr_piece {
    struct qr_call *call;                   /* borrowed */
    struct qr_request *req;                 /* owned until submitted and again with its last event; NULL when ended, and before kind->make */
    struct qr_ids ids;                      /* owned: what kind->make makes it of */
    bool submitted;
    struct qr_request_look look;            /* as the last look found it (console.h) */
    int32_t first_choice, n_prompt, n_cached;
    int64_t admitted_us, first_token_us;    /* of the request, for timings; 0: not yet */
    struct qr_buf prompt_text;              /* owned: for echo */
    struct qr_buf prompt_ids;               /* owned: "[1,2,3]", for return_token_ids */
    struct qr_buf prompt_logprobs;          /* owned: JSON array, vLLM's shape */
};

#define QR_SPECIALS_SEEN 16 /* different special tokens of one answer that are kept out of its text */
#define QR_LOGPROB_PARTS 4 /* chat: items; completions: tokens, token_logprobs, top_logprobs, text_offset */

struct qr_choice {
    struct qr_piece *piece;                 /* borrowed */
    struct qr_buf text, ids;                /* owned: all of it (not streaming), "1,2,3" */
    struct qr_buf logprob[QR_LOGPROB_PARTS];/* owned: comma-separated items */
    int64_t text_offset;                    /* characters of the tokens before */
    int32_t n_output, n_reasoning;          /* tokens; those of thinking among them, once it has finished */
    int32_t n_accepted, n_rejected;         /* guesses of tokens that were right, and wrong, once it has finished */
    int64_t ended_us;                       /* 0: not yet */
    enum qr_finish finish;
    int32_t stop_index, stop_id;
    bool begun;
    int64_t begun_us;                       /* when, where the call has a door */
    /* Where the answer is more than content (openai_parts.c): */
    struct qr_answer_parser *parser;        /* owned; NULL: all of its text is content */
    struct qr_buf reasoning, calls;         /* owned, not streaming: the reasoning; "{...},{...}" */
    struct qr_buf arguments;                /* owned, not streaming: of the call that has not ended */
    struct qr_buf said;                     /* owned: what the parser has just said, of one kind */
    struct qr_buf deltas;                   /* owned, streaming: deltas of the event, a line each */
    enum qr_part part;                      /* of said */
    int32_t n_calls;
    struct qr_items items;                  /* owned: in place of text, reasoning, calls where the call has a door */
    bool call_open, call_bare;              /* a call has not ended; it has no arguments yet */
    double score;                           /* rerank and score */
    int32_t special[QR_SPECIALS_SEEN], n_special; /* ids */
};

/* Of a prompt that is to be pinned (engine/pins.h). */
struct qr_pin_of {
    bool wanted;
    char key[QR_KEY_NAME_MAX + 1];          /* whose it is, "": the caller's */
    int64_t ttl_us;
    uint64_t id;                            /* the request's, once it has ended, as the next */
    int64_t expires_s;
    int32_t n_blocks;
};

struct qr_call {
    struct qr_node link;                    /* server->calls */
    struct qr_server *server;               /* borrowed */
    const struct qr_call_kind *kind;        /* borrowed, static */
    struct qr_conn *conn;                   /* borrowed; NULL once answered or gone */
    struct qr_account account;              /* of all that is owned here: one thread's at a time, the pool's while `preparing` */
    struct qr_http_job *job;                /* owned: its turns on the pool */
    struct qr_buf body;                     /* owned until prepared */
    int64_t body_bytes;
    struct qr_key *key;                     /* borrowed from the server's keys, which keep it while the call holds it (qr_key_enter) */
    struct qr_key_digest digest;            /* the key's */
    struct qr_key_use used;                 /* of its tokens */
    int64_t reserved_tokens;                /* of the key's tokens a minute, and not used yet */
    struct qr_buf door_sources, door_kept;  /* owned: of struct qr_door_in; the first until it is prepared */
    bool translated;                        /* errors are of a chat body that a door made */
    struct qr_params params;                /* owned: chat and completions; of embeddings doc and n only */
    int32_t n_dimensions;                   /* embeddings: what of them is wanted, and whether as base64 */
    bool base64;
    int32_t top_n;                          /* rerank: results, the best ones, at most; and whether scores are without the sigmoid */
    bool raw;
    bool leads;                             /* the others wait until piece 0 has ended: they find in the prefix cache what they share with it */
    struct qr_pin_of pin;
    char id[48];                            /* "chatcmpl-..." */
    int64_t created_s, arrived_us, first_token_us; /* first_token_us 0: there is none yet */
    const char *model;                      /* borrowed from the server or params: the name in answers */
    int32_t peer;                           /* that its prompts' blocks are asked of first (disagg.h); -1: none was named */
    bool peer_expected;                     /* and computes them, or is about to */
    char kv_source[QR_PEER_ADDRESS_MAX];    /* of a header that names one; "": there was none */
    uint64_t adapter;                       /* that the requests ask for; 0: none */
    struct qr_grammar *grammar;             /* owned, counted: of every answer; NULL: free text */
    struct qr_thinking thinking;            /* of every answer */
    bool parses;                            /* choices have parsers */
    struct qr_piece *piece;                 /* owned [n_pieces] */
    struct qr_choice *choice;               /* owned [n_choices] */
    int32_t n_pieces, n_choices, n_open, n_submitted; /* n_submitted: pieces that are or were in the engine; n_open: submitted pieces that have not ended */
    bool preparing;                         /* a pool thread has it: it is being prepared, or its answer written */
    int64_t answer_bytes;                   /* the most that its answer takes, where that is known and may be much: kept in the account before it begins */
    struct qr_buf head;                     /* owned: what every chunk begins with */
    struct qr_buf reply;                    /* owned: the whole answer, for kinds that need no engine */
    struct qr_api_error error;              /* status 0: none */
};

/* One of each route that needs more than an answer at once (route.c). */
extern const struct qr_call_kind qr_call_chat, qr_call_responses, qr_call_messages, qr_call_count_tokens, qr_call_ollama_chat,
    qr_call_ollama_generate, qr_call_ollama_show, qr_call_ollama_embed, qr_call_ollama_embeddings, qr_call_completions, qr_call_embeddings, qr_call_rerank,
    qr_call_score, qr_call_load_adapter, qr_call_unload_adapter, qr_call_tokenize, qr_call_detokenize, qr_call_render_chat, qr_call_render_completions,
    qr_call_response_tokens, qr_call_pin, qr_call_role;

void qr_call_start(struct qr_server *s, struct qr_conn *c, const struct qr_call_kind *kind);
void qr_call_gone(void *server, struct qr_conn *c); /* connection handler: the client left */
void qr_calls_take(struct qr_server *s);            /* all events that wait in the engine */
void qr_calls_tick(struct qr_server *s, int64_t now_us);
#define QR_CANCELLED "response_cancelled" /* code of its error */

/* The call of that id and key (NULL: any) that is being answered. NULL: there is none. */
struct qr_call *qr_calls_find(struct qr_server *s, const char *id, const struct qr_key_digest *owner);
void qr_call_cancel(struct qr_call *call, const char *why); /* one that was found; its client hears why */

void qr_calls_abort(struct qr_server *s, const char *why); /* every call ends with an error now */
void qr_calls_release(struct qr_server *s);         /* at the very end; the engine is closed */

/* For prepare functions, on a pool thread: */

/* qr_members_read (openai.h) of the call's body. */
int qr_call_read(struct qr_json **doc, const struct qr_call *call, const struct qr_member *member, int32_t n,
                 struct qr_err *err);

/* Appends the ids of a text of the request. */
int qr_call_encode(const struct qr_call *call, struct qr_ids *ids, const struct qr_json *text, bool add_special,
                   struct qr_err *err);

/* Parses body into params, checks the model's name. False: call->error is set. */
bool qr_call_parse(struct qr_call *call);

/* The same as of a body of that api, whatever the call's own is, and of models without a head, too. */
bool qr_call_parse_as(struct qr_call *call, enum qr_api api);

/* What the conversation in params is to the model, which has a template; thinks (may be NULL): whether the model may think first, or has begun to
 * (call->thinking). */
int qr_call_chat_ids(struct qr_call *call, struct qr_ids *ids, bool *thinks, struct qr_err *err);

/* Reads the body, whose conversation has *n tokens. False: call->error is set. */
bool qr_call_count_prompt(struct qr_call *call, int32_t *n);

/* `prepare` of chat calls, whatever their door is, and of completions. */
void qr_call_prepare_chat(struct qr_call *call);
void qr_call_prepare_completions(struct qr_call *call);

/* Appends the ids of a checked prompt of completions, and to `echo` (may be NULL) the text that echo gives back. */
int qr_call_text_ids(struct qr_call *call, struct qr_ids *ids, struct qr_buf *echo, const struct qr_json *prompt, struct qr_err *err);

/* `prepare` of what computes a prompt and draws nothing: a body of chat or completions with `key`, `ttl` and `pin`. */
void qr_call_prepare_pin(struct qr_call *call);

/* Gives the answers their form (call_form.c): grammar and, in chat, parsers. Pieces have been made, their prompts are not set. False: call->error is set. */
bool qr_call_form(struct qr_call *call, bool thinks);

/* What the engine must know of it, shortly before a request is submitted. Loop thread. */
void qr_call_form_request(struct qr_call *call, struct qr_request *r);
void qr_call_form_release(struct qr_call *call); /* grammar and parsers */

/* False (and call->error set) when name is not NULL and is neither one of the server's nor an adapter's
 * (call->adapter). name lives as long as the call. */
bool qr_call_check_model(struct qr_call *call, const struct qr_json *name);

void qr_call_fail(struct qr_call *call, const struct qr_err *err);

/* Makes room for n_prompts pieces. False: too many (never so where submitted_max is set: then the caller has a limit of its own). */
bool qr_call_make_pieces(struct qr_call *call, int32_t n_prompts);

/* Piece i gets its request: ids are copied. field names the prompt's field in errors. */
bool qr_call_set_prompt(struct qr_call *call, int32_t i, const int32_t *ids, int32_t n, const char *field);

#endif
