/* internal.h - the engine's own insides, shared by engine.c (the calling threads' side) and worker.c (the engine thread).
 * Everything not marked otherwise belongs to the engine thread.
 */
#ifndef QR_ENGINE_INTERNAL_H
#define QR_ENGINE_INTERNAL_H

#include <pthread.h>

#include "base/arena.h"
#include "base/mailbox.h"
#include "engine/adapters.h"
#include "engine/ahead.h"
#include "engine/backlog.h"
#include "engine/deadline.h"
#include "engine/draft/model.h"
#include "engine/engine.h"
#include "engine/follow.h"
#include "engine/forced.h"
#include "engine/guide.h"
#include "engine/lower.h"
#include "engine/masks.h"
#include "engine/output.h"
#include "engine/pace.h"
#include "engine/pages.h"
#include "engine/pins.h"
#include "engine/predict.h"
#include "engine/rows.h"
#include "engine/speculate.h"
#include "engine/view.h"
#include "model/lora.h"

/* What clients hear when a rank is lost. Which one, and how, is for the log. */
#define QR_ENGINE_LOST_TEXT "one of the processes that compute the model ended; the server has to be started again"

/* What the engine keeps beside a scheduler entry; same index. */
struct qr_slot {
    struct qr_request *req;       /* NULL: free */
    int64_t last_token_us;
    int32_t choice;
    struct qr_output out;
    int32_t n_accepted, n_rejected; /* of its guesses; those of this step: */
    int32_t n_guessed, n_landed;  /* how many, 0: they are judged; and 1 where the id before them was in flight when they were made */
    int32_t first_guide;          /* with a guide: where the states behind them begin (speculate.h) */
    struct qr_forced forced;      /* its grammar's guesses */
    struct qr_guide guide;        /* of a choice that has one: in its place until the slot is free again */
};

/* A slot for an adapter: FREE -> LOADING -> READY -> (LEAVING, while requests, or a step that was launched, use it ->) FREE. LOADING: its memory is the loading
 * thread's. READY and LEAVING: no thread writes it, the engine thread reads it for requests that were accepted. */
enum qr_adapter_state { QR_ADAPTER_FREE, QR_ADAPTER_LOADING, QR_ADAPTER_READY, QR_ADAPTER_LEAVING };
struct qr_adapter {
    enum qr_adapter_state state;
    uint64_t id;
    char name[QR_ADAPTER_NAME_MAX];
    struct qr_hash128 hash;
    int32_t rank, n_inside;
    bool flying;                  /* a request has ended while a step was in flight (ahead.h), which may have been launched for it */
    int64_t loaded_s;
    uint64_t n_requests, prompt_tokens, output_tokens;
};
struct qr_adapters {
    pthread_mutex_t lock;         /* guards all but lora; never held while files are read, or anything is sent */
    pthread_cond_t sent;          /* parcel, sending or over has changed, or steps have landed */
    struct qr_lora *lora;         /* owned; NULL without slots */
    struct qr_adapter *slot;      /* owned [n_slots] */
    int32_t n_slots;
    uint64_t last_id;
    struct qr_lora_piece parcel;  /* packed for another rank: up to `first` it was sent; total 0: there is none */
    bool sending, over;           /* a load packs and waits; nothing is sent any more, as the engine ends or a rank is lost */
    bool any_flying;              /* some slot is; the engine thread's */
};

/* What is known of the pool's pins, by their numbers there. */
struct qr_pin_entry {
    bool held, leaving;           /* it has blocks; they are let go as soon as may be */
    int64_t expires_us;
    uint64_t number;              /* pins that came so far */
    struct qr_pin pin;
};
struct qr_pins {
    pthread_mutex_t lock;         /* guards entry; the engine thread alone changes which are held */
    struct qr_pin_entry entry[QR_PINS_MAX];
    _Atomic bool to_release;      /* some entry may be leaving */
    int32_t n;                    /* that are held; the engine thread's, as the next two */
    int64_t next_us;              /* none expires earlier */
    uint64_t last;
};

/* At submit: whether a request's prompt may be pinned, if it is to be. QR_E_UNSUPPORTED, QR_E_INVALID, QR_E_NO_ROOM with the figures. */
int qr_pins_check(struct qr_engine *e, const struct qr_request *r, struct qr_err *err);

/* Engine thread. The choice of slot `index` has been computed and draws nothing: its prompt is pinned, if it is to be. How the request ends. */
enum qr_finish qr_pins_end(struct qr_engine *e, int32_t index, int64_t now);
void qr_pins_release(struct qr_engine *e, int64_t now); /* those that are leaving or past their time */
int64_t qr_pins_wait_us(const struct qr_engine *e);     /* how long an idle engine may sleep: until the next one expires; -1: none does */

/* Before anything is loaded: whether there can be adapters as c has them. QR_E_USAGE, QR_E_UNSUPPORTED. */
int qr_adapters_check(const struct qr_engine_config *c, const struct qr_backend *be, struct qr_err *err);
/* Their memory is taken and touched, on all ranks, before the cache is planned with what is left. A step of theirs may need a larger arena. QR_E_NO_ROOM. */
int qr_adapters_open(struct qr_engine *e, size_t *act_bytes, struct qr_err *err);
void qr_adapters_close(struct qr_adapters *a);

/* Engine thread, between steps: sends a piece of what is packed for another rank. False: there was none. */
bool qr_adapters_send(struct qr_engine *e);
/* And when it sends no more: loads give up. */
void qr_adapters_end(struct qr_adapters *a);

/* A request comes in, with r->adapter; and has ended. Any thread. flying (engine thread): a step is in flight, which
 * may read its slot until qr_adapters_landed. */
int qr_adapters_take(struct qr_adapters *a, struct qr_request *r, struct qr_err *err);
void qr_adapters_give_back(struct qr_adapters *a, const struct qr_request *r, uint64_t prompt_tokens, uint64_t output_tokens, bool flying);

/* Engine thread: all steps that were in flight when a request ended have landed. */
void qr_adapters_landed(struct qr_adapters *a);

/* The id of one that is ready and has these files; 0: there is none. Any thread. */
uint64_t qr_adapters_find_hash(struct qr_adapters *a, struct qr_hash128 hash);

struct qr_outside; /* exchange_parts.h */

struct qr_engine {
    /* set at open, then read by all threads */
    struct qr_engine_config config;
    struct qr_engine_limits limits;
    const struct qr_tokenizer *tokenizer; /* borrowed; NULL until it is given */
    struct qr_model *model;               /* owned */
    int32_t n_slots;

    /* shared by threads */
    struct qr_mailbox inbox, outbox, recycled;
    _Atomic int32_t n_reserved;           /* choices accepted and not finished, <= n_slots */
    _Atomic bool draining, closing;
    _Atomic bool to_reap;                 /* a request may have been cancelled since the last walk over all of them */
    _Atomic bool lost;                    /* lost_err is there, and stays */
    struct qr_err lost_err;
    void (*wake)(void *);                 /* of the receiver; NULL: none */
    void *wake_arg;
    _Atomic int64_t progress_us;
    _Atomic int role;                     /* enum qr_side */
    struct qr_outside *outside;           /* owned, set at open; the engine thread's, but for what exchange.h shows. NULL: blocks have no names */
    struct qr_adapters adapters;
    struct qr_pins pins;
    pthread_mutex_t stats_lock;
    struct qr_stats stats_out;            /* under stats_lock */
    struct qr_view *view;                 /* owned */

    /* the engine thread's */
    pthread_t thread;
    struct qr_backend *be;                /* owned */
    void *kv_mem, *act_mem;               /* owned */
    uint8_t *kv_host;                     /* owned, the host's: the cache's second tier, block after block as kv_mem has them; NULL: none */
    float *logits;                        /* owned [logit_rows_max][vocab]: a step's, from a device that the host cannot read; else NULL */
    float *hidden;                        /* owned [logit_rows_max][n_embd], or NULL as logits: rows as they left the last norm */
    struct qr_pages pages;                /* of kv_mem */
    struct qr_draft_model *draft_model;   /* owned; NULL: there is none */
    struct qr_kv_view kv;
    struct qr_kv_split split;             /* of its blocks, where limits.n_twins > 0 */
    struct qr_arena act;
    struct qr_exec exec;
    struct qr_kv_pool *pool;              /* owned */
    struct qr_sched *sched;               /* owned */
    struct qr_plan plan;
    struct qr_pace pace;
    struct qr_predict predict;
    struct qr_step_size lately;
    struct qr_backlog backlog;
    struct qr_deadlines deadlines;
    int64_t backlog_ns;                   /* when it was estimated */
    int32_t told_prompt, told_decode;     /* tokens of the step that was counted in this turn */
    struct qr_lower lower;
    struct qr_rows rows;
    struct qr_masks masks;
    struct qr_ahead ahead;                /* of a device that draws itself */
    struct qr_speculation speculation;
    struct qr_slot *slot;                 /* owned [n_slots] */
    char *text;                           /* owned [n_slots][text_cap] */
    int32_t text_cap, events_per_choice, n_events, n_free_events;
    struct qr_event *event;               /* owned [n_events] */
    struct qr_node free_events;
    struct qr_node said;                  /* events of this step, handed over together */
    int32_t n_said;
    int64_t reap_us;                      /* no request inside has an earlier deadline; INT64_MAX: none has any */
    int64_t marked_ns;                    /* until when the time is accounted for */
    int32_t next_group;
    struct qr_hash_secret salt_secret;    /* for salts with an adapter */
    struct qr_stats stats;

    /* the handshake of qr_engine_begin and qr_engine_finish */
    const char *dir;                      /* borrowed while opening */
    const struct qr_backend_options *backend_options;
    const struct qr_model_options *model_options;
    pthread_mutex_t open_lock;
    pthread_cond_t opened, given;
    bool tokenizer_given;                 /* under open_lock, as is the tokenizer until then */
    int open_state;                       /* 0 opening, 1 open, -1 failed */
    struct qr_err open_err;
};

/* Events that one choice may need in a step, and all that are made. */
static inline int32_t qr_engine_events_per_choice(int32_t text_cap)
{
    return 1 + text_cap / (QR_EVENT_TEXT - 4);
}

/* Tokens that a step may draw. */
static inline int32_t qr_engine_draws_max(const struct qr_engine_config *c)
{
    return c->draft_tokens > 0 && c->logit_rows_max > c->running_max ? c->logit_rows_max : c->running_max;
}

static inline int32_t qr_engine_n_events(const struct qr_engine_config *c, int32_t text_cap)
{
    return 2 * (qr_engine_draws_max(c) + 8) * qr_engine_events_per_choice(text_cap);
}

/* The cache's second tier. Its memory, where limits say so; what the pool wants moved: asked of the queue in the pool's order, behind
 * the steps that wrote the blocks and before the next one. No thread waits. Called after every plan. */
void qr_tier_open(struct qr_engine *e);
void qr_tier_close(struct qr_engine *e);
void qr_tier_move(struct qr_engine *e);

/* e->rows of the lowered plan: what each row of logits is for. And, when the forward is done: where each lies, and what is known of it. */
void qr_want_rows(struct qr_engine *e);
void qr_find_rows(struct qr_engine *e, const struct qr_tensor *logits);

/* What steps are like now, for backlog and deadlines; and how much the next one may do (pace.h). */
struct qr_backlog_steps qr_engine_steps(const struct qr_engine *e);
void qr_limit_step(struct qr_engine *e);

/* Counters (count.c): a choice has ended; a token has come; a prompt is in the cache, as its first choice found it; a step is done, which began at `started`;
 * and what is counted so far can be read by others. Times in us. */
void qr_count_end(struct qr_engine *e, const struct qr_slot *s, int64_t now);
void qr_count_token(struct qr_engine *e, struct qr_slot *s, int64_t now);
void qr_count_prompt(struct qr_engine *e, struct qr_slot *s, const struct qr_seq *seq, int64_t now);
void qr_count_step(struct qr_engine *e, const struct qr_step_size *size, int64_t started, int64_t now);
void qr_publish_stats(struct qr_engine *e);

/* exchange.c: blocks from and for elsewhere. Whether blocks are to have names at all. */
bool qr_outside_wanted(const struct qr_engine_config *c);
bool qr_outside_named(const struct qr_engine_config *c); /* or have them for routers, which are told of blocks */
int qr_outside_open(struct qr_engine *e, struct qr_err *err); /* behind the cache */
void qr_outside_end(struct qr_engine *e);                     /* before requests are ended for good: what is in flight comes back */
void qr_outside_free(struct qr_engine *e);

/* A request that came in, with its adapter taken: its root and names. The thread that submits it, in the account that r was made in. */
void qr_outside_name(struct qr_engine *e, struct qr_request *r);

/* Engine thread. r came in: whether it is to be held at first. Then, once all its choices were added so, choice 0 at `index`, that it is looked for. */
bool qr_outside_enter(struct qr_engine *e, const struct qr_request *r);
void qr_outside_begin(struct qr_engine *e, struct qr_request *r, int32_t index, int64_t now);
void qr_outside_look(struct qr_engine *e, int64_t now); /* between steps */
bool qr_outside_is_fed(const struct qr_engine *e); /* it decodes, and peers that are there compute its prompts */
int64_t qr_outside_wait_us(const struct qr_engine *e, int64_t wait_us); /* how long an idle engine may sleep, that would sleep wait_us (-1: for ever) */

/* The choice at `index` ends. keeps: not now, as what is in flight still reads its request; it is stopped, and reaping tries again. drop: it has ended. */
bool qr_outside_keeps(struct qr_engine *e, int32_t index);
void qr_outside_drop(struct qr_engine *e, int32_t index);

void qr_outside_count(struct qr_engine *e, struct qr_request *r); /* r->n_cached is known: where it came from */
void qr_exchange_note(struct qr_engine *e, const struct qr_kv_note *note); /* what became of a block, as the pool tells it */

/* notes.c: what became of blocks, as the pool has noted it, goes to the file tier and to routers. Between steps. */
void qr_notes_drain(struct qr_engine *e);
int32_t qr_note_about(const struct qr_request *r); /* for notes of r's blocks */

/* look.c: answers a look, between two steps. */
void qr_look_if_asked(struct qr_engine *e);

/* Ranks that the memory of kernels is shared with, this one counted. Of an open model. */
int32_t qr_engine_sharing(const struct qr_engine *e);

/* open.c: opens the backend and the model, and makes all that the engine thread owns; gives back what was made. */
int qr_engine_make(struct qr_engine *e, struct qr_err *err);
void qr_engine_unmake(struct qr_engine *e);

/* Body of the engine thread: opens backend and model, says so, loops until closing, frees what it made. arg: struct qr_engine * */
void *qr_engine_thread(void *arg);

/* One step: plan, lower, forward, sample, commit, output. Returns false when there was nothing to run. */
bool qr_engine_step(struct qr_engine *e);

#endif
