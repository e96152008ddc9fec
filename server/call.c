/* call.c - one API request from its body to its last byte. JSON, template and tokens are prepared on libuv's pool;
 * submitting, events and answers are the loop thread's. A call whose client has left cancels its engine requests and
 * ends with their last events, so nothing is lost or freed twice. A call that finds the queue full is answered 429; one
 * without memory 503. Exactly one answer or stream end leaves per call. */
#include "server/call.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/adapters.h"
#include "server/console.h"
#include "server/disagg.h"
#include "server/keys.h"
#include "server/limits.h"
#include "server/openai_write.h"
#include "server/queue.h"
#include "server/route.h"

/* ---- life ---- */

/* The call and what it has not used are the key's no more. */
static void leave_key(struct qr_call *call)
{
    if (call->kind->counted != QR_COUNTED_NOT)
        qr_limits_leave(&call->key->state, call->reserved_tokens);
    qr_key_leave(call->key);
}

static void call_free(struct qr_call *call)
{
    struct qr_server *s = call->server;
    struct qr_account account = call->account;
    QR_ASSERT(!call->preparing && call->n_open == 0);
    leave_key(call);
    struct qr_account *before = qr_account_enter(&account);
    for (int32_t i = 0; i < call->n_pieces; i++) {
        qr_request_free(call->piece[i].req);
        qr_ids_release(&call->piece[i].ids);
        qr_buf_release(&call->piece[i].prompt_text);
        qr_buf_release(&call->piece[i].prompt_ids);
        qr_buf_release(&call->piece[i].prompt_logprobs);
    }
    for (int32_t i = 0; i < call->n_choices; i++)
        qr_write_release(&call->choice[i]);
    qr_call_form_release(call);
    qr_free(call->piece);
    qr_free(call->choice);
    qr_params_release(&call->params);
    qr_buf_release(&call->body);
    qr_buf_release(&call->door_sources);
    qr_buf_release(&call->door_kept);
    qr_buf_release(&call->head);
    qr_buf_release(&call->reply);
    qr_http_job_free(call->job);
    qr_list_remove(&call->link);
    s->n_calls--;
    s->freed_bytes += account.granted_bytes;
    qr_free(call);
    qr_account_leave(before);
    qr_account_close(&account);
}

/* Before its answer is complete: the connection knows the call until then. */
static void detach(struct qr_call *call)
{
    call->conn = NULL;
}

static void cancel_pieces(struct qr_call *call)
{
    for (int32_t i = 0; i < call->n_pieces; i++)
        if (call->piece[i].submitted && call->piece[i].req)
            qr_engine_cancel(call->server->model.engine, call->piece[i].req);
}

/* The server's scratch, which grows for all calls, is in no account. Whether there was memory for what was put there in
 * between. */
static struct qr_account *begin_scratch(struct qr_server *s)
{
    qr_buf_clear(&s->scratch);
    qr_account_init(&s->scratch_account, NULL);
    return qr_account_enter(&s->scratch_account);
}

static bool end_scratch(struct qr_server *s, struct qr_account *before)
{
    qr_account_leave(before);
    return s->scratch_account.failure == QR_ACCOUNT_OK;
}

/* The last event of a stream; without memory it is cut off. */
static void stream_error(struct qr_call *call, struct qr_conn *c)
{
    struct qr_server *s = call->server;
    struct qr_account *before = begin_scratch(s);
    if (call->kind->door && call->kind->door->fail)
        call->kind->door->fail(call, &s->scratch);
    else
        qr_api_error_put(&s->scratch, &call->error, true);
    if (end_scratch(s, before))
        qr_conn_stream_put(c, s->scratch.data, s->scratch.len);
    else
        qr_conn_out_of_memory(c);
    qr_conn_stream_end(c, true);
}

/* As small as any answer of a handler. */
static void reply_error(struct qr_conn *c, const struct qr_api_error *e)
{
    struct qr_account account;
    qr_account_init(&account, NULL);
    struct qr_account *before = qr_account_enter(&account);
    qr_api_error_reply(c, e);
    qr_account_leave(before);
    if (account.failure != QR_ACCOUNT_OK)
        qr_conn_out_of_memory(c);
    qr_account_close(&account);
}

static void count_error(struct qr_server *s, const struct qr_call_kind *kind, struct qr_key *key)
{
    if (kind->counted != QR_COUNTED_NOT)
        qr_keys_use(s->keys, key, &(struct qr_key_use){.n_errors = 1});
}

/* What is left to the key, as lines of the answer's head. */
static const char *limits_fields(char out[QR_LIMITS_FIELDS_MAX], struct qr_key *key)
{
    return qr_limits_fields(out, &key->state, &key->terms, qr_clock_us());
}

/* The client hears call->error, whatever it has heard so far; what is running is cancelled. The call ends with its pieces. */
static void answer_error(struct qr_call *call)
{
    QR_ASSERT(call->error.status != 0);
    char fields[QR_LIMITS_FIELDS_MAX];
    struct qr_conn *c = call->conn;
    call->error.door = call->kind->door;
    if (c) {
        detach(call);
        count_error(call->server, call->kind, call->key);
        if (!call->error.extra)
            call->error.extra = limits_fields(fields, call->key);
        if (qr_conn_streaming(c))
            stream_error(call, c);
        else
            reply_error(c, &call->error);
        call->error.extra = NULL;
    }
    cancel_pieces(call);
}

static void answer_whole(struct qr_call *call)
{
    struct qr_conn *c = call->conn;
    char fields[QR_LIMITS_FIELDS_MAX];
    struct qr_reply reply = {.status = 200, .content_type = "application/json", .extra = limits_fields(fields, call->key), .taken = &call->reply};
    QR_ASSERT(c != NULL);
    QR_ASSERT(call->reply.len > 0);
    detach(call);
    struct qr_account *before = qr_account_enter(&call->account);
    qr_conn_reply(c, &reply);
    qr_account_leave(before);
}

/* Whether memory was missing for the call, which call->error says then. */
static bool lacks_memory(struct qr_call *call)
{
    const long long mib = call->server->budget.max_bytes >> 20;
    const enum qr_account_failure why = call->account.failure;
    if (why == QR_ACCOUNT_FULL)
        qr_api_error_set(&call->error, call->kind->write ? 429 : 503, call->kind->write ? "queue_full" : "overloaded",
                         "Other requests hold the memory for requests (--max-bodies-size, %lld MiB); try again later.", mib);
    else if (why == QR_ACCOUNT_TOO_LARGE)
        qr_api_error_set(&call->error, 413, "too_large", "This request needs more memory than all requests may have (--max-bodies-size, %lld MiB).", mib);
    else if (why == QR_ACCOUNT_NO_MEMORY)
        qr_api_error_set(&call->error, 503, "overloaded", "The system has no memory for this request; try again later.");
    return why != QR_ACCOUNT_OK;
}

/* ---- before the engine ---- */

/* The body and what it was parsed to became requests: some 20 times its size where it is ids, as each of them is a node. A few strings are read later. */
static void drop_input(struct qr_call *call)
{
    static const char *const later[] = {"model", "stop", "cache_salt", NULL};
    struct qr_params *p = &call->params;
    if (p->doc && qr_json_type(p->doc) == QR_JSON_T_OBJECT)
        qr_json_retain(p->doc, later);
    p->prompt = p->messages = p->documents = p->template_kwargs = NULL;
    p->tools.given = p->tools.choice = p->tools.shown = NULL;
    p->thinking.enable = p->thinking.effort = NULL;
    p->demand.value = NULL;
    qr_buf_release(&call->body);
    qr_buf_release(&call->door_sources);
}

static void prepare_all(void *arg)
{
    struct qr_call *call = arg;
    call->kind->prepare(call);
    if (call->error.status != 0 && call->translated)
        qr_door_rename(call->kind->door, &call->door_sources, &call->error);
    drop_input(call);
}

static void prepare_run(void *arg)
{
    struct qr_call *call = arg;
    if (qr_account_run(&call->account, prepare_all, call))
        return;
    /* What was made of it is gone, but the grammar, which is not its own. */
    qr_grammar_unref(call->grammar);
    call->grammar = NULL;
    call->parses = false;
    call->params = (struct qr_params){.n = 1};
    call->piece = NULL;
    call->choice = NULL;
    call->n_pieces = call->n_choices = 0;
    call->adapter = 0;
    call->model = NULL;
    call->reply = call->door_sources = call->door_kept = (struct qr_buf){0};
    lacks_memory(call);
}

/* Inputs of it wait for room in the engine, which has none of its own. */
static bool waits(const struct qr_call *call)
{
    return call->conn && call->n_submitted < call->n_pieces;
}

/* While the request was prepared other files may have taken the adapter's name (load_inplace): it is for these then, as nothing of it depends on files. Not
 * once a part of the call went to the old ones: one answer is of one adapter. */
static bool find_again(struct qr_call *call, struct qr_request *r, const struct qr_err *err)
{
    if (err->code != QR_E_NOT_FOUND || call->n_submitted > 0)
        return false;
    const uint64_t id = qr_engine_find_adapter(call->server->model.engine, call->model);
    if (id == 0 || id == call->adapter)
        return false;
    r->adapter = call->adapter = id;
    return true;
}

static int submit_piece(struct qr_call *call, struct qr_request *r, struct qr_err *err)
{
    int rc;
    QR_ASSERT(call != NULL && r != NULL);
    while ((rc = qr_engine_submit(call->server->model.engine, r, err)) != 0 && find_again(call, r, err))
        ;
    return rc;
}

/* What the engine takes and gives is the key's, whether or not its client is still there. */
static void use_tokens(struct qr_call *call, const struct qr_key_use *more)
{
    struct qr_key *key = call->key;
    const int64_t n = more->prompt_tokens + more->output_tokens, left = call->reserved_tokens, spent = n < left ? n : left;
    qr_limits_spend(&key->state, &key->terms, spent, qr_clock_us());
    call->reserved_tokens -= spent;
    qr_keys_use(call->server->keys, key, more);
    qr_key_use_add(&call->used, more);
}

/* Whose turn the engine counts it as: its key's, and in that its user's. */
static struct qr_client client_of(const struct qr_call *call)
{
    struct qr_client client = {.user = call->params.user, .weight = (int32_t)call->key->terms.weight};
    memcpy(&client.key, call->digest.bytes, sizeof client.key);
    return client;
}

/* What the engine says of a request. That there is no room is said of pins alone, and waiting makes none. */
static void take_error(struct qr_call *call, const struct qr_err *err)
{
    qr_api_error_from(&call->error, err);
    if (err->code != QR_E_NO_ROOM)
        return;
    qr_api_error_set(&call->error, 429, "pins_full", "%s", err->msg);
    call->error.retry_after_s = 0;
}

/* Pieces go to the engine, as many as may be there at a time; or the client gets the reason why not at once. Once one was accepted the others wait for room. */
static void submit(struct qr_call *call)
{
    struct qr_server *s = call->server;
    struct qr_err err = {0};
    const bool first = call->leads && call->n_submitted <= 1 && call->n_open == call->n_submitted;
    const int32_t most = first ? 1 : call->kind->submitted_max > 0 ? call->kind->submitted_max : call->n_pieces;
    struct qr_hash128 salt = qr_keys_salt(&call->digest, call->params.cache_salt, call->params.cache_salt_len);
    const struct qr_client client = client_of(call);
    for (; call->n_submitted < call->n_pieces && call->n_open < most; call->n_submitted++) {
        struct qr_piece *piece = &call->piece[call->n_submitted];
        struct qr_request *r = piece->req;
        if (!r)
            r = piece->req = call->kind->make(call, piece);
        if (!r)
            return; /* no memory */
        r->id = qr_server_next_id(s);
        r->user = piece;
        r->priority = call->params.priority;
        r->salt = salt;
        r->salted = call->params.cache_salt != NULL;
        r->client = client;
        r->adapter = call->adapter;
        r->peer = call->peer;
        r->expected = call->peer_expected;
        qr_call_form_request(call, r);
        r->arrived_us = call->arrived_us;
        r->timed = call->params.timeout_us > 0;
        r->deadline_us = call->arrived_us + (r->timed ? call->params.timeout_us : s->config.request_us);
        r->start_by_us = s->config.queue_us > 0 && call->n_submitted == 0 ? call->arrived_us + s->config.queue_us : 0;
        r->continues = call->n_submitted > 0;
        if (submit_piece(call, r, &err) != 0) {
            if (err.code == QR_E_BUSY && call->n_submitted > 0 && call->kind->submitted_max > 0) {
                s->starved |= call->n_open == 0;
                return; /* when one of its own ends, or one of others, there is room for the next */
            }
            take_error(call, &err);
            if (err.code == QR_E_BUSY)
                call->error.retry_after_s = qr_queue_place_s(s);
            if (err.code == QR_E_NOT_FOUND) /* the adapter left while the request was prepared */
                call->error.code = "model_not_found";
            answer_error(call);
            return;
        }
        use_tokens(call, &(struct qr_key_use){.prompt_tokens = piece->n_prompt});
        piece->submitted = true;
        call->n_open++;
        s->n_submitted++;
        s->submitted_tokens += piece->n_prompt;
    }
}

/* Room for an answer whose size is known is kept before it is begun. */
static void admit_answer(struct qr_call *call)
{
    const int64_t n_bytes = call->account.held_bytes + call->answer_bytes, most = call->server->budget.max_bytes;
    if (call->error.status != 0 || call->answer_bytes == 0 || qr_account_keep(&call->account, n_bytes, most))
        return;
    call->account.failure = n_bytes > most ? QR_ACCOUNT_TOO_LARGE : QR_ACCOUNT_FULL;
    lacks_memory(call);
}

/* The key's tokens a minute have to be enough for its prompts, which are known now, and the answers. */
static void reserve_tokens(struct qr_call *call)
{
    struct qr_key *key = call->key;
    int64_t n = 0;
    if (call->error.status != 0 || call->reply.len > 0)
        return;
    for (int32_t i = 0; i < call->n_pieces; i++) {
        const struct qr_piece *piece = &call->piece[i];
        n += piece->n_prompt + (piece->req ? (int64_t)piece->req->sampling.max_tokens * call->params.n : 0);
    }
    if (qr_limits_reserve(&key->state, &key->terms, key->name, n, qr_clock_us(), &call->error))
        call->reserved_tokens = n;
}

/* Whether its prompts, as many as go to the engine at once, may wait there. */
static bool may_wait(struct qr_call *call)
{
    int64_t n_tokens = 0;
    for (int32_t i = 0; i < call->n_pieces && (i < call->kind->submitted_max || call->kind->submitted_max == 0); i++)
        n_tokens += call->piece[i].n_prompt;
    return qr_queue_admits(call->server, n_tokens, &call->error);
}

static void go_on(struct qr_call *call)
{
    if (!may_wait(call)) {
        answer_error(call);
        return;
    }
    if (!call->kind->write && !call->kind->door)
        qr_write_head(call);
    submit(call);
}

/* A step of the call on the loop thread, in its account. Without memory it ends with an error. */
static void step(struct qr_call *call, void (*fn)(struct qr_call *call))
{
    struct qr_account *before = qr_account_enter(&call->account);
    fn(call);
    qr_account_leave(before);
    if (call->conn && lacks_memory(call))
        answer_error(call);
}

static void prepare_done(void *arg)
{
    struct qr_call *call = arg;
    QR_ASSERT(call->preparing);
    call->preparing = false;
    call->server->freed_bytes += call->body_bytes;
    if (call->conn) {
        if (call->kind->settle && call->error.status == 0)
            call->kind->settle(call);
        admit_answer(call);
        reserve_tokens(call);
    }
    if (call->conn && call->error.status != 0)
        answer_error(call);
    else if (call->conn && call->reply.len > 0)
        answer_whole(call);
    else if (call->conn)
        step(call, go_on);
    if (call->n_open == 0)
        call_free(call);
}

/* One that has entered its key. NULL: there is no memory for one, and it has left. */
static struct qr_call *call_new(struct qr_server *s, const struct qr_call_kind *kind, struct qr_key *key)
{
    struct qr_account account;
    qr_account_init(&account, &s->budget);
    struct qr_account *before = qr_account_enter(&account);
    struct qr_call *call = qr_alloc(1, sizeof *call);
    struct qr_http_job *job = call ? qr_http_job_new(s->http) : NULL;
    if (!job)
        qr_free(call);
    qr_account_leave(before);
    if (!job) {
        qr_account_close(&account);
        leave_key(&(struct qr_call){.kind = kind, .key = key});
        return NULL;
    }
    call->server = s;
    call->kind = kind;
    call->key = key;
    call->account = account;
    call->job = job;
    return call;
}

/* The key's limits let the call in, and it holds the key; or its client hears why not. */
static bool enter_key(struct qr_server *s, struct qr_conn *c, const struct qr_call_kind *kind, struct qr_key *key)
{
    char fields[QR_LIMITS_FIELDS_MAX];
    struct qr_api_error e;
    if (kind->counted != QR_COUNTED_NOT) {
        qr_keys_use(s->keys, key, &(struct qr_key_use){.n_requests = 1});
        if (!qr_limits_enter(&key->state, &key->terms, key->name, kind->counted != QR_COUNTED_TOKENIZE, qr_clock_us(), &e)) {
            count_error(s, kind, key);
            e.door = kind->door;
            e.extra = limits_fields(fields, key);
            qr_api_error_reply(c, &e);
            return false;
        }
    }
    qr_key_enter(key);
    return true;
}

void qr_call_start(struct qr_server *s, struct qr_conn *c, const struct qr_call_kind *kind)
{
    QR_ASSERT(s != NULL && c != NULL);
    QR_ASSERT(kind != NULL && kind->prepare != NULL);
    const struct qr_span presented = qr_route_key(qr_conn_head(c));
    struct qr_key *key = qr_keys_find(s->keys, presented.data, presented.len);
    QR_ASSERT(key != NULL); /* the route looked */
    s->n_begun[kind->counted]++;
    if (!enter_key(s, c, kind, key))
        return;
    struct qr_call *call = call_new(s, kind, key);
    if (!call) {
        qr_conn_out_of_memory(c);
        return;
    }
    call->conn = c;
    call->created_s = qr_clock_wall_s();
    call->arrived_us = qr_clock_us();
    call->digest = key->digest;
    call->peer = -1;
    qr_disagg_header(call, qr_conn_head(c)->kv_source);
    snprintf(call->id, sizeof call->id, "%s%016llx", kind->door ? kind->door->id_prefix : kind->id_prefix ? kind->id_prefix : "",
             (unsigned long long)qr_server_next_id(s));
    qr_conn_take_body(c, &call->body, &call->account);
    call->body_bytes = (int64_t)call->body.len;
    qr_list_push_back(&s->calls, &call->link);
    s->n_calls++;
    qr_conn_set_call(c, call);
    call->preparing = true;
    /* A body of 4 MiB of numbers takes 0.4 s to read: the loop must not wait for it, so all of it happens on the pool. */
    qr_http_work(call->job, prepare_run, prepare_done, call);
}

void qr_call_gone(void *server, struct qr_conn *c)
{
    struct qr_call *call = qr_conn_call(c);
    QR_ASSERT(server != NULL);
    if (!call)
        return;
    QR_ASSERT(call->conn == c);
    call->conn = NULL;
    if (call->preparing) /* a pool thread is filling the pieces or the answer; the next step sees that the client is gone */
        return;
    cancel_pieces(call);
    if (call->n_open == 0)
        call_free(call);
}

/* ---- events ---- */

static void begin_stream(struct qr_call *call)
{
    char fields[QR_LIMITS_FIELDS_MAX];
    if (!qr_conn_streaming(call->conn))
        qr_conn_stream_begin(call->conn, call->kind->door ? call->kind->door->stream_type : QR_SSE_TYPE, limits_fields(fields, call->key));
}

/* An event of a call with a door. */
static void take_door_event(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    qr_door_take(call, choice, ev);
    if (!call->params.stream || call->account.failure != QR_ACCOUNT_OK) /* without memory it is not whole */
        return;
    begin_stream(call);
    if (choice->deltas.len > 0)
        qr_conn_stream_put(call->conn, choice->deltas.data, choice->deltas.len);
}

static void stream_event(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    struct qr_server *s = call->server;
    begin_stream(call);
    struct qr_account *before = begin_scratch(s);
    qr_write_chunk(call, choice, ev, &s->scratch);
    if (!end_scratch(s, before))
        call->account.failure = QR_ACCOUNT_NO_MEMORY;
    else if (s->scratch.len > 0)
        qr_conn_stream_put(call->conn, s->scratch.data, s->scratch.len);
}

static void fail_from_event(struct qr_call *call, const struct qr_event *ev)
{
    const struct qr_request *r = ev->req;
    if (ev->finish == QR_FINISH_CANCEL)
        qr_api_error_set(&call->error, 503, "cancelled", "The request was cancelled because the server is stopping.");
    else if (r->late)
        qr_queue_late(call->server, r, &call->error);
    else if (r->err.code == QR_E_BUSY) /* it was accepted, then its time ran out */
        qr_api_error_set(&call->error, 504, "timeout", "%s", r->err.msg);
    else
        take_error(call, &r->err);
    answer_error(call);
}

static void deliver(struct qr_call *call, struct qr_piece *piece, const struct qr_event *ev)
{
    QR_ASSERT(ev->choice >= 0 && ev->choice < call->params.n);
    struct qr_choice *choice = &call->choice[piece->first_choice + ev->choice];
    piece->n_cached = ev->req->n_cached;
    if (ev->finish == QR_FINISH_ERROR || ev->finish == QR_FINISH_CANCEL) {
        fail_from_event(call, ev);
        return;
    }
    if (call->kind->collect) {
        call->kind->collect(call, choice, ev);
        return;
    }
    if (call->kind->door) {
        take_door_event(call, choice, ev);
        return;
    }
    qr_write_prompt_parts(call, choice, ev);
    if (choice->parser)
        qr_parts_feed(call, choice, ev);
    if (call->params.stream)
        stream_event(call, choice, ev);
    else
        qr_write_collect(call, choice, ev);
}

static void write_all(void *arg)
{
    struct qr_call *call = arg;
    call->kind->write(call);
}

static void write_run(void *arg)
{
    struct qr_call *call = arg;
    if (qr_account_run(&call->account, write_all, call))
        return;
    call->reply = (struct qr_buf){0};
    lacks_memory(call);
}

static void write_done(void *arg)
{
    struct qr_call *call = arg;
    QR_ASSERT(call->preparing && call->n_open == 0);
    call->preparing = false;
    if (call->error.status != 0)
        answer_error(call);
    else if (call->conn)
        answer_whole(call);
    call_free(call);
}

static void end_stream(struct qr_call *call)
{
    struct qr_server *s = call->server;
    struct qr_conn *c = call->conn;
    struct qr_account *before = begin_scratch(s);
    if (!call->kind->door)
        qr_write_stream_end(call, &s->scratch);
    else if (call->kind->door->end)
        call->kind->door->end(call, &s->scratch);
    detach(call);
    if (!end_scratch(s, before))
        qr_conn_out_of_memory(c);
    else if (s->scratch.len > 0)
        qr_conn_stream_put(c, s->scratch.data, s->scratch.len);
    qr_conn_stream_end(c, false);
}

static void write_whole(struct qr_call *call)
{
    if (call->kind->door)
        call->kind->door->whole(call, &call->reply);
    else
        qr_write_whole(call, &call->reply);
}

static void finish(struct qr_call *call)
{
    if (call->conn && call->kind->write) { /* thousands of numbers as text: not on this thread */
        call->preparing = true;
        qr_http_work(call->job, write_run, write_done, call);
        return;
    }
    if (call->conn && call->params.stream)
        end_stream(call);
    else if (call->conn)
        step(call, write_whole);
    if (call->conn)
        answer_whole(call);
    call_free(call);
}

static void take_event(struct qr_call *call, struct qr_piece *piece, struct qr_event *ev)
{
    use_tokens(call, &(struct qr_key_use){.output_tokens = ev->n_tokens, .cached_tokens = ev->last ? ev->req->n_cached : 0});
    if (ev->n_tokens > 0 && call->first_token_us == 0)
        call->first_token_us = ev->req->first_token_us > 0 ? ev->req->first_token_us : qr_clock_us();
    if (call->conn)
        deliver(call, piece, ev);
    if (!ev->last)
        return;
    qr_console_ended(call->server, piece, ev->finish);
    piece->submitted = false;
    qr_request_free(piece->req);
    piece->req = NULL;
    call->server->n_ended++;
    call->n_open--;
    if (waits(call))
        submit(call);
}

static void on_event(struct qr_event *ev)
{
    struct qr_piece *piece = ev->req->user;
    struct qr_call *call = piece->call;
    const bool last = ev->last;
    QR_ASSERT(piece->req == ev->req && piece->submitted);
    struct qr_account *before = qr_account_enter(&call->account);
    take_event(call, piece, ev);
    qr_account_leave(before);
    if (call->conn && lacks_memory(call))
        answer_error(call);
    if (last && call->n_open == 0 && !waits(call))
        finish(call);
}

/* Calls of which nothing is in the engine, because others had filled it when their last input came back. */
static void submit_waiting(struct qr_server *s)
{
    if (!s->starved)
        return;
    s->starved = false;
    for (struct qr_node *at = s->calls.next, *next; at != &s->calls; at = next) {
        struct qr_call *call = QR_CONTAINER(at, struct qr_call, link);
        next = at->next;
        if (call->preparing || call->n_open > 0 || !waits(call))
            continue;
        step(call, submit);
        if (call->n_open == 0 && !waits(call)) /* refused */
            call_free(call);
    }
}

void qr_calls_take(struct qr_server *s)
{
    struct qr_node events;
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->phase == QR_PHASE_READY);
    qr_list_init(&events);
    qr_engine_take(s->model.engine, &events);
    struct qr_node *node;
    while ((node = qr_list_pop_front(&events)) != NULL) {
        struct qr_event *ev = QR_CONTAINER(node, struct qr_event, link);
        on_event(ev);
        qr_engine_recycle(s->model.engine, ev);
    }
    submit_waiting(s);
}

/* A stream that waits in the queue shows its client that it lives. */
void qr_calls_tick(struct qr_server *s, int64_t now_us)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(now_us > 0);
    submit_waiting(s);
    for (struct qr_node *at = s->calls.next; at != &s->calls; at = at->next) {
        struct qr_call *call = QR_CONTAINER(at, struct qr_call, link);
        const char *ping = call->kind->door ? call->kind->door->ping : ": waiting\n\n";
        if (ping && call->conn && call->n_open > 0 && call->params.stream && !qr_conn_streaming(call->conn) &&
            now_us - call->arrived_us > s->config.ping_us) {
            begin_stream(call);
            qr_conn_stream_put(call->conn, ping, strlen(ping));
        }
    }
}

struct qr_call *qr_calls_find(struct qr_server *s, const char *id, const struct qr_key_digest *owner)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(id != NULL);
    for (struct qr_node *at = s->calls.next; at != &s->calls; at = at->next) {
        struct qr_call *call = QR_CONTAINER(at, struct qr_call, link);
        const bool may = !owner || memcmp(&call->digest, owner, sizeof *owner) == 0;
        if (may && call->conn && !call->preparing && call->n_open > 0 && strcmp(call->id, id) == 0)
            return call;
    }
    return NULL;
}

void qr_call_cancel(struct qr_call *call, const char *why)
{
    QR_ASSERT(call != NULL && why != NULL);
    QR_ASSERT(call->conn != NULL && call->n_open > 0); /* its last event frees it */
    qr_api_error_set(&call->error, 409, QR_CANCELLED, "%s", why);
    call->error.extra = "x-should-retry: false\r\n"; /* clients try again after 409 */
    answer_error(call);
}

void qr_calls_abort(struct qr_server *s, const char *why)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(why != NULL);
    for (struct qr_node *at = s->calls.next, *next; at != &s->calls; at = next) {
        struct qr_call *call = QR_CONTAINER(at, struct qr_call, link);
        next = at->next;
        if (!call->conn || call->preparing)
            continue;
        qr_api_error_set(&call->error, 503, "shutting_down", "%s", why);
        answer_error(call);
        if (call->n_open == 0)
            call_free(call);
    }
}

void qr_calls_release(struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    while (!qr_list_empty(&s->calls)) {
        struct qr_call *call = QR_CONTAINER(s->calls.next, struct qr_call, link);
        for (int32_t i = 0; i < call->n_pieces; i++)
            if (call->piece[i].submitted)
                call->piece[i].req = NULL; /* the engine freed it when it closed */
        call->n_open = 0;
        call_free(call);
    }
    QR_ASSERT(s->n_calls == 0);
}
