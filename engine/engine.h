/* engine.h - all that the server, the command line and the tests see of the engine.
 *
 * One engine thread owns scheduler, cache, exec and sampling. A request goes down through a bounded inbox; events come up, in order,
 * one stream per choice; exactly one event of an accepted request has `last` set, and with it the request's ownership returns to
 * the receiver. The engine allocates nothing in a step: requests bring their own memory, events come from a fixed pool and
 * go back with qr_engine_recycle. The engine starts a step only when the pool can hold everything that step may say, so a
 * receiver that stops recycling costs latency, never a byte.
 */
#ifndef QR_ENGINE_ENGINE_H
#define QR_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/sampling.h"
#include "engine/stats.h"
#include "exchange/exchange.h"
#include "loader/config/pooling.h"
#include "model/model.h"
#include "scheduler/sched.h"
#include "tokenizer/tokenizer.h"

#define QR_TOP_LOGPROBS_MAX 20
#define QR_CHOICES_MAX 8
/* Appends the runs of ids (struct qr_sampling, bad) that a text of bad_words forbids: of the text without blanks before it, and of
 * that behind a blank where this begins with another token and has as many. Errors: QR_E_INVALID where there is no token. */
int qr_bad_words_encode(struct qr_ids *out, const struct qr_tokenizer *tokenizer, const char *text, size_t len, struct qr_err *err);

/* Log-probabilities of one position. Raw model log-probabilities (before penalties and temperature), as natural logs. */
struct qr_token_logprob {
    int32_t id;
    float logprob;                /* of id; 0 with n_top 0 for a position that has none (the first prompt token) */
    int32_t rank;                 /* 1 = most likely */
    int32_t n_top;
    int32_t top_id[QR_TOP_LOGPROBS_MAX];
    float top_logprob[QR_TOP_LOGPROBS_MAX];
};

/* What a model puts around its thinking: the ids of the markers, and how long it may take. Tokens that end it are forced when budget tokens of thinking have
 * come, its own start not counted; where the request's grammar does not take them just there, as soon as it does. */
#define QR_MARKER_MAX 8
struct qr_thinking {
    int32_t end[QR_MARKER_MAX], n_end;     /* n_end 0: nothing is known of thinking */
    int32_t start[QR_MARKER_MAX], n_start; /* n_start 0: only the prompt begins it */
    int32_t budget;                        /* -1: none */
    bool begun;                            /* the prompt ends inside it */
};

struct qr_grammar; /* answers/grammar/matcher.h */

/* Where a request stood at the last look (view.h) that met it: of all its choices. Written by the engine while a look is being made, and read by the thread
 * that had it made until that is done with it. */
enum qr_request_state { QR_REQUEST_WAITING, QR_REQUEST_PREFILL, QR_REQUEST_DECODE };
const char *qr_request_state_name(enum qr_request_state state); /* "waiting", "prefill", "decode" */
struct qr_request_look {
    uint64_t number;              /* of that look */
    enum qr_request_state state;  /* of the choice that has come farthest */
    int32_t n_done, n_cached, n_output, n_blocks; /* prompt tokens computed, or found; tokens drawn; cache blocks held */
    uint32_t owner;               /* as of its blocks */
    int64_t admitted_us, first_token_us; /* 0: not yet */
};

/* Why a request was not begun. REFUSED, SHED: its first token would not have come in time, known when it came in, or while it waited. ALONE: it could not
 * even without others. */
enum qr_late { QR_LATE_NOT, QR_LATE_QUEUE, QR_LATE_REFUSED, QR_LATE_SHED, QR_LATE_ALONE };

struct qr_request {
    struct qr_node link;          /* inbox, then the engine's; not the receiver's business */
    uint64_t id;                  /* set by the maker, unique in this process */
    void *user;                   /* the maker's; the engine never looks at it */
    int32_t n_choices;            /* 1 .. QR_CHOICES_MAX */
    int32_t n_prompt;
    int64_t first_token_us;       /* written by the engine: when the first token was sampled; 0 before */
    struct qr_sampling sampling;  /* every step reads the beginning of it and what lies before it, of every request */
    int32_t *ids[QR_CHOICES_MAX]; /* owned [n_prompt + max_tokens] each; ids[c][0..n_prompt) is the prompt */
    int32_t n_prediction;         /* ids that the client expects, for guesses (draft/): ids[c][-n_prediction..0) of each choice */
    int32_t priority;             /* smaller runs first, of its key's */
    struct qr_client client;      /* whose turn it is (scheduler/fair.h) */
    struct qr_hash128 salt;       /* whose prefix cache: from the API key and cache_salt */
    bool salted;                  /* its salt is of a cache_salt of its own: routers are not told of its blocks */
    uint64_t adapter;             /* qr_engine_find_adapter; 0: the model itself */
    int64_t arrived_us, deadline_us; /* deadline 0: none; past it the request ends with an error */
    bool timed;                   /* the deadline is the request's own: what is predicted not to meet it is not begun */
    int64_t start_by_us;          /* 0: whenever; where none of its choices has left the queue by then, it ends with an error */
    _Atomic bool cancelled;       /* set by qr_engine_cancel */
    struct {
        bool wanted;              /* its prompt is to stay in the prefix cache (pins.h): one choice, max_tokens 0 */
        int64_t ttl_us;           /* 0: until it is unpinned */
        int64_t expires_s;        /* written by the engine with the last event: wall clock; 0: never; and what it holds */
        int32_t n_blocks;
    } pin;
    int32_t peer;                 /* that has its prompt's blocks (qr_engine_peer); -1, as it is made: whichever has them */
    bool expected;                /* the peer has got the same prompt by another way: it computes the blocks, or is about to */
    bool continues;               /* it is more of what was begun with a request that was accepted: a drain lets it in */
    /* What the answer has to be, set behind qr_request_new. Its mask comes behind everything that changes a logit, and it wins: where min_tokens, bad_words and
     * allowed_token_ids forbid all that the grammar allows, they do not count. An end token ends the answer (STOP) whatever min_tokens says; with ignore_eos
     * it comes only where nothing else may follow. Log-probabilities are the model's, from before penalties and mask. */
    struct qr_grammar *grammar;   /* owned, counted; NULL: free text. For the vocabulary of this model */
    struct qr_thinking thinking;
    enum qr_pooling pooling;      /* NONE but for qr_request_new_embedding. MEAN, CLS: nothing comes from the prefix cache, and chunks have at most
                                   * logit_rows_max tokens. Sums are in double, in order of positions: neither chunks nor batch can be seen in them */
    /* written by the engine, readable when an event of this request has arrived */
    struct qr_token_logprob *prompt_logprobs; /* owned [n_prompt] where the request wants them, complete at the first event; else NULL */
    double *pooled;               /* owned [n_pooled]: the embedding, not normalised, with the last event unless that tells of an error; else NULL */
    int32_t n_pooled;
    int32_t n_reasoning[QR_CHOICES_MAX]; /* generated tokens of thinking, markers included: with the last event of that choice */
    int32_t n_accepted[QR_CHOICES_MAX], n_rejected[QR_CHOICES_MAX]; /* guesses that were right, and wrong: with the last event, too */
    int32_t n_cached;             /* prompt tokens found in the prefix cache (choice 0); of those: */
    int32_t n_from_file, n_from_peer; /* came for this request from the file tier, and from peers */
    int64_t admitted_us;          /* when it left the queue; 0: before its first token */
    struct qr_err err;            /* when finish is QR_FINISH_ERROR */
    enum qr_late late;            /* and why: start_by_us came first (QUEUE), or the first token would be late (deadline.h) */
    int64_t retry_us;             /* of REFUSED and SHED: so much later it would have been in time */
    /* private to the engine */
    const uint16_t *stop_fail[QR_STOPS_MAX]; /* owned through `memory`: Knuth-Morris-Pratt failure table of each stop string */
    int32_t n_open;               /* choices that have not finished */
    bool begun;                   /* one of them has left the queue: known when time limits are checked */
    bool fresh;                   /* no prediction has met its limit yet */
    int32_t adapter_slot;         /* -1: none */
    struct qr_hash128 adapter_hash; /* of its files */
    struct qr_kv_name root;       /* of the names of its blocks (kvcache/kv_name.h), where the engine has names */
    struct qr_kv_name *names;     /* owned [n_names], or NULL: of the prompt's blocks that may come from elsewhere */
    int32_t n_names;
    struct {
        int32_t first, n_file, n_peer; /* blocks that came for it: behind the first blocks those of the file tier, behind these those of peers */
    } came;
    bool internal;                /* the engine's own, for a peer that wants its blocks: it has no receiver, and no event tells of it */
    const struct qr_lend *lend;   /* what it is for, while that is there: an address to compare */
    uint64_t n_output_all;        /* tokens of all choices that have finished */
    int32_t n_output_most;        /* of the longest of them */
    struct qr_request_look look;
    void *memory;                 /* owned: everything the pointers above point to */
};

/* A request with room for n_choices x (n_prompt + sampling->max_tokens) ids, with copies of the prompt and of everything sampling
 * points to. Sizes are the caller's to bound. Free with qr_request_free while it is not inside the engine. NULL: a request's memory is missing
 * (base/account.h). */
struct qr_request *qr_request_new(const struct qr_sampling *sampling, const int32_t *prompt, int32_t n_prompt, int32_t n_choices);

/* The same with ids that the client expects of each choice: they are guessed and checked, so a wrong one costs time, never a token. */
struct qr_request *qr_request_new_predicted(const struct qr_sampling *sampling, const int32_t *prompt, int32_t n_prompt, int32_t n_choices,
                                            const int32_t *prediction, int32_t n_prediction);

/* One that generates nothing: what it ends with (QR_FINISH_LENGTH) is the embedding. width: n_embd of the model; pooling is not NONE. */
struct qr_request *qr_request_new_embedding(const int32_t *prompt, int32_t n_prompt, enum qr_pooling pooling, int32_t width);
void qr_request_free(struct qr_request *r); /* NULL is fine */

/* Tokens that a choice of it has in any case. */
int32_t qr_request_draws_min(const struct qr_request *r);

enum qr_finish {
    QR_FINISH_NONE,   /* more follows */
    QR_FINISH_STOP,   /* an end token, a stop id or a stop string */
    QR_FINISH_LENGTH, /* max_tokens or the context is full */
    QR_FINISH_CANCEL, /* qr_engine_cancel */
    QR_FINISH_ERROR,  /* req->err says why */
};
const char *qr_finish_name(enum qr_finish finish); /* "stop", "length", "cancelled", "error"; NULL while more follows */

#define QR_EVENT_TOKENS 8
#define QR_EVENT_TEXT 1024

/* What one choice gained: tokens, the text that became certain (valid UTF-8, may lag behind the tokens), perhaps its end. */
struct qr_event {
    struct qr_node link;
    struct qr_request *req;       /* borrowed; owned by the receiver once `last` */
    int32_t choice;
    bool last;                    /* every choice has finished: no event of this request follows */
    enum qr_finish finish;        /* of this choice */
    int32_t stop_index;           /* finish STOP: index of the stop string, or -1 */
    int32_t stop_id;              /* finish STOP by a stop id or end token: that id, else -1 */
    int32_t n_tokens;             /* generated ids in this event */
    int32_t n_output;             /* generated ids of this choice so far, these included */
    int32_t text_len;
    char text[QR_EVENT_TEXT];     /* beside what goes before: the text of a token is short, and its cache lines come from the receiver's processor */
    struct qr_token_logprob token[QR_EVENT_TOKENS]; /* id and n_top always; the rest, so far as n_top says, where the request wants log-probabilities */
};

struct qr_draft_ask; /* draft/draft.h */

/* Where guesses come from in place of the engine's own sources: tests. */
struct qr_draft_source {
    void (*fill)(void *user, struct qr_draft_ask *ask, int32_t n); /* NULL: the engine's own. As qr_draft_fill */
    void *user;
};

/* What a draft model takes (engine/draft/model.h); all 0: there is none. */
struct qr_draft_size {
    int64_t weight_bytes, act_bytes, token_bytes; /* act: its step, and blocks of its own; token: keys and values of one, beside the model's */
};

/* Where blocks may come from and go to, beside this process (exchange.h). All zeros: nowhere. Borrowed while opening. */
struct qr_engine_outside {
    const char *listen;           /* address for peers; NULL: none may ask */
    const char *const *peer;      /* [n_peers] addresses of those that are asked */
    int32_t n_peers;
    const char *secret_file;      /* what all of them know; NULL: only for loopback and Unix sockets */
    const char *file_dir;         /* of the file tier; NULL: there is none */
    int64_t file_bytes;           /* what its files may take */
    struct qr_events *events;     /* told of what the cache stores, until the engine is closed; NULL: none is */
};

struct qr_engine_config {
    int32_t ctx_max;              /* tokens of one sequence; 0: the model's */
    int32_t running_max;          /* 64 */
    int32_t waiting_max;          /* 256 */
    int32_t step_tokens_max;      /* 512: rows of one step */
    int32_t chunk_tokens_max;     /* 256: the largest prompt chunk of one sequence */
    int32_t logit_rows_max;       /* 64 */
    int32_t block_tokens;         /* 16 */
    int64_t kv_bytes;             /* memory for the cache; 0: from kv_tokens, or a share of free memory */
    int64_t kv_tokens;            /* 0: not given */
    int64_t kv_host_bytes;        /* host memory, of each rank, for cached blocks that the cache has no room for; 0: none */
    bool prefix_cache;            /* true */
    double pinned_share;          /* 0.25: of the cache's blocks, that pins may hold (pins.h) */
    enum qr_sched_policy policy;
    bool split;                   /* qr_engine_may_split: where some layers have a window and some have none, each kind has its own blocks */
    int32_t sharing;              /* 1: processes, ranks of one model apart, that share the memory */
    int32_t lora_slots;           /* 0: adapters that can be loaded at once (adapters.h) */
    int32_t lora_rank_max;        /* 16: their largest rank */
    struct qr_draft_source draft_source;
    int32_t draft_tokens;         /* 0: guesses for one sequence in a step, at most QR_DRAFT_MAX; 0: none */
    int64_t itl_goal_us;          /* 90 ms: prompts beside running sequences are cut so that a step takes about so long; 0: never (pace.h) */
    int64_t ttft_goal_us;         /* 0: none. What cannot have its first token so long after its arrival is not begun, and the goal above is firm (pace.h) */
    uint64_t hash_seed;           /* 0: random secret */
    const char *draft_model;      /* borrowed while opening: directory of a model that guesses tokens; NULL: none */
    struct qr_draft_size draft;   /* of it: for plans; an engine that opens finds it out itself */
    struct qr_engine_outside outside;
};
void qr_engine_config_init(struct qr_engine_config *c);

/* Brings the sizes that depend on others into their range: logit_rows_max into [running_max, step_tokens_max], chunk_tokens_max to at most
 * step_tokens_max. qr_engine_open does so itself; a plan made beforehand needs it to see the same numbers. */
void qr_engine_config_fit(struct qr_engine_config *c);

/* Whether a cache may be split by its layers' windows: on the processor, in one process, with one tier, blocks without names and no draft model. Else blocks
 * have all layers. What opens or plans sets config.split to it. */
struct qr_backend;
bool qr_engine_may_split(const struct qr_engine_config *c, const struct qr_backend *be, int32_t n_ranks);

/* What was decided at open, for banners, validation and /metrics. */
struct qr_engine_limits {
    int32_t ctx_max, vocab, n_blocks, block_tokens, running_max, waiting_max, step_tokens_max;
    int32_t draft_tokens;       /* guesses for one sequence in a step; 0: none */
    int32_t n_twins;            /* a run of block_tokens tokens takes 1 + n_twins blocks, of which the twins are given back behind the window */
    int32_t seq_blocks;         /* what a sequence of ctx_max tokens holds at once at most */
    int64_t kv_bytes, kv_token_bytes, weight_bytes, act_bytes; /* a draft model's among them, */
    struct qr_draft_size draft; /* which are these */
    int32_t n_pinned_max;       /* blocks that pins may hold: one sequence of ctx_max fits beside them */
    int32_t n_host_blocks;      /* of the second tier, */
    int64_t kv_host_bytes;      /* and their memory, the host's */
    bool on_host;               /* so is the cache's own: an opened engine only */
    bool prefix_cache;          /* as configured */
    int32_t lora_slots, lora_rank_max;
    int64_t lora_bytes;         /* of slots for adapters: an opened engine only, otherwise qr_engine_lora_bytes */
    int32_t n_ranks;            /* the model is shared out to so many; memory is this one's, which has no less than another */
    int64_t scratch_bytes, table_bytes; /* kernels' scratch; everything else the engine keeps (qr_engine_table_bytes): an opened engine only */
    enum qr_dtype kv_dtype;
    enum qr_dtype weight_dtype; /* what matrices were packed as; an opened engine only */
    const char *no_embeddings;  /* why requests for embeddings are refused, static; NULL: they are not. An opened engine only */
    int32_t tuned_shapes;       /* in the table of measurements (kernels/tune.h); an opened engine only */
};

static inline int64_t qr_engine_block_bytes(const struct qr_engine_limits *l)
{
    return l->kv_token_bytes * l->block_tokens / (1 + l->n_twins);
}

/* Tokens that n blocks hold where none were given back. */
static inline int64_t qr_engine_tokens_of(const struct qr_engine_limits *l, int64_t n_blocks)
{
    return n_blocks * l->block_tokens / (1 + l->n_twins);
}

/* Sequences of the whole context that the cache holds at once. */
static inline double qr_engine_contexts(const struct qr_engine_limits *l)
{
    return (double)l->n_blocks / l->seq_blocks;
}

struct qr_engine; /* opaque */
struct qr_view;

/* Memory for weights, step and cache: what kernels' memory has free for each of n_sharing ranks, less the cache's second tier where that is the same memory. */
int64_t qr_engine_available(const struct qr_engine_config *config, const struct qr_backend *be, int32_t n_sharing);

/* Whether this machine has the memory for the second tiers of n_ranks ranks. QR_E_NO_ROOM says how much it has. */
int qr_engine_host_room(const struct qr_engine_config *config, int32_t n_ranks, struct qr_err *err);

/* The step's memory and the cache's size, computed without opening anything; used by `quire plan` and by qr_engine_open. Errors:
 * QR_E_NO_ROOM with what is needed, what there is, and the largest ctx_max that fits. */
int qr_engine_plan(struct qr_engine_limits *out, const struct qr_engine_config *config, const struct qr_model_config *model,
                   enum qr_dtype kv_dtype, int64_t weight_bytes, int64_t act_bytes, int64_t memory_available, struct qr_err *err);

/* The same of a model that is not loaded: `memory_available` is what is there for all of it. Weights that alone are more are refused with the formats that
 * are not. Used by `quire plan`, and by qr_engine_open before it loads anything. */
int qr_engine_foresee(struct qr_engine_limits *out, const struct qr_engine_config *config, const struct qr_model_plan *plan, int64_t memory_available,
                      struct qr_err *err);

/* The same, where the model can be read again: a step that does not fit is refused with the largest that does. */
struct qr_engine_opening {
    const char *dir;                         /* borrowed, like the others */
    struct qr_backend *be;
    const struct qr_model_options *options;  /* with config's ctx_max */
};
int qr_engine_foresee_opening(struct qr_engine_limits *out, const struct qr_engine_config *config, const struct qr_model_plan *plan,
                              const struct qr_engine_opening *of, int64_t memory_available, struct qr_err *err);

/* Blocks of l's that pins may hold: as configured, and no more than leave room for one sequence of the whole context. */
int32_t qr_engine_pinned_max(const struct qr_engine_config *c, const struct qr_engine_limits *l);

/* Bytes beside weights, cache, step memory and kernels' scratch, but for some KiB: records of the cache's blocks, block tables, sampling scratch for
 * each of n_threads, events and the text that waits. `l` from qr_engine_plan. */
int64_t qr_engine_table_bytes(const struct qr_engine_limits *l, const struct qr_engine_config *c, const struct qr_tokenizer *tokenizer,
                              int32_t n_threads);

/* Starts the engine thread. `dir` is opened by that thread (it owns the backend). Waits until the model is ready or failed. `wake` is called (from the
 * engine thread) when an empty outbox has got events; may be NULL. tokenizer is borrowed. */
int qr_engine_open(struct qr_engine **out, const char *dir, const struct qr_engine_config *config,
                   const struct qr_backend_options *backend, const struct qr_model_options *model_options,
                   const struct qr_tokenizer *tokenizer, void (*wake)(void *), void *wake_arg, struct qr_err *err);

/* The same in two halves, so that the caller opens the tokenizer while the engine thread loads weights. What the first is given must live until the
 * second; tokenizer NULL: there is none, the engine is closed and QR_E_CLOSED comes back. The second closes *e where it fails. */
struct qr_engine *qr_engine_begin(const char *dir, const struct qr_engine_config *config, const struct qr_backend_options *backend,
                                  const struct qr_model_options *model_options, void (*wake)(void *), void *wake_arg);
int qr_engine_finish(struct qr_engine *e, const struct qr_tokenizer *tokenizer, struct qr_err *err);

/* Ends every request (CANCEL events), joins the thread, frees. Events that were not taken are freed with their requests. */
void qr_engine_close(struct qr_engine *e); /* NULL is fine */

const struct qr_engine_limits *qr_engine_limits(const struct qr_engine *e);
const struct qr_model_config *qr_engine_model(const struct qr_engine *e);

/* Any thread. 0: accepted, the engine owns r, its terminal event will come. Otherwise the caller still owns r: QR_E_BUSY (queue full),
 * QR_E_CLOSED (draining), QR_E_INVALID / QR_E_TOO_LARGE with `param` (lengths, ids outside the vocabulary, ...), QR_E_NOT_FOUND with param "model" when
 * the adapter has been unloaded; QR_E_UNSUPPORTED for an embedding where limits say why there are none, and for text from a model without a head. */
int qr_engine_submit(struct qr_engine *e, struct qr_request *r, struct qr_err *err);

/* Any thread that knows that r's last event has not been taken yet. Its events stop within two steps, ending in a CANCEL event. */
void qr_engine_cancel(struct qr_engine *e, struct qr_request *r);

/* Moves all waiting events (struct qr_event by link) to the end of `out`; one receiving thread. wait: blocks up to timeout_us. */
int32_t qr_engine_take(struct qr_engine *e, struct qr_node *out);
int32_t qr_engine_wait(struct qr_engine *e, struct qr_node *out, int64_t timeout_us);
void qr_engine_recycle(struct qr_engine *e, struct qr_event *event); /* the receiver is done with it; never frees event->req */

/* Any thread: whether the engine is of no use any more, as one of the processes that compute the model was lost; then *err says which (for the log). All
 * requests ended with an error within two seconds, submit answers QR_E_CLOSED, and `wake` was called. Nothing but closing helps. */
bool qr_engine_lost(const struct qr_engine *e, struct qr_err *err);

/* From now on submit answers QR_E_CLOSED, but for requests that continue something; what was accepted goes on. */
void qr_engine_drain(struct qr_engine *e);

/* Counters and gauges, consistent within one step. */
void qr_engine_stats(const struct qr_engine *e, struct qr_stats *out);

/* For onlookers: what is recorded of its steps, and looks at what it holds (view.h). look: any one thread asks for one; `wake` is called when it is there. */
struct qr_view *qr_engine_view(const struct qr_engine *e);
void qr_engine_look(struct qr_engine *e);

/* Microseconds (qr_clock_us) of the last finished step, and whether there is work: for watchdogs and /readyz. */
int64_t qr_engine_progress_us(const struct qr_engine *e, bool *has_work);

#endif
