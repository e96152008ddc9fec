/* POST /v1/rerank and /v1/score: each pair of texts is a request of the engine that ends with its last row, of which the model's scorer makes a number. The
 * first pair goes ahead where the others share its beginning. A classifier's pairs are what its tokenizer makes of two texts; those of Qwen3-Reranker go into
 * its prompt, whose special tokens a text cannot write. Prepared and written on libuv's pool, loop thread otherwise. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "server/call.h"
#include "server/pairs.h"

#define SUBMITTED_MAX 64 /* of one call, as of embeddings */
#define RESULT_BYTES 100 /* of a result without its document, as JSON */

/* ---- the request ---- */

static int check_server(const struct qr_server *s, struct qr_err *err)
{
    const struct qr_scorer *scorer = s->model.scorer;
    const char *why = scorer && scorer->note[0] ? scorer->note : NULL;
    if (scorer && scorer->kind != QR_SCORER_NONE)
        why = qr_engine_limits(s->model.engine)->no_embeddings;
    if (scorer && scorer->kind != QR_SCORER_NONE && !why)
        return 0;
    return qr_err_at(err, QR_E_UNSUPPORTED, "model", "this server scores no pairs of texts: %s",
                     why ? why : "its model is neither a classifier of one label (as LlamaForSequenceClassification) nor a Qwen3-Reranker (--reranker yes-no)");
}

struct text {
    const char *at;
    size_t n;
};

static struct text text_of(const struct qr_json *v)
{
    struct text t;
    t.at = qr_pairs_text(v, &t.n);
    return t;
}

/* The prompt that the model was trained with. */
static int encode_question(const struct qr_call *call, struct qr_ids *ids, struct text instruction, struct text query, struct text document,
                           struct qr_err *err)
{
    static const char before[] = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note "
                                 "that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: ";
    static const char second[] = "\n<Query>: ", third[] = "\n<Document>: ", behind[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    const struct text part[] = {{before, sizeof before - 1}, instruction, {second, sizeof second - 1}, query, {third, sizeof third - 1}, document,
                                {behind, sizeof behind - 1}};
    const struct qr_server *s = call->server;
    struct qr_segment segment[QR_COUNT(part)];
    struct qr_buf text = {0};
    for (int i = 0; i < QR_COUNT(part); i++) {
        segment[i] = (struct qr_segment){.start = text.len, .len = part[i].n, .trusted = i % 2 == 0 || s->config.trust_special};
        qr_buf_put(&text, part[i].at, part[i].n);
    }
    const int rc = qr_tokenizer_encode_segments(s->model.tokenizer, ids, text.data, text.len, segment, QR_COUNT(part), 0, err);
    qr_buf_release(&text);
    return rc;
}

static int encode_texts(const struct qr_call *call, struct qr_ids *ids, struct text first, struct text second, struct qr_err *err)
{
    const struct qr_server *s = call->server;
    const struct qr_scorer *scorer = s->model.scorer;
    const unsigned flags = QR_ENCODE_ADD_SPECIAL | (s->config.trust_special ? QR_ENCODE_PARSE_SPECIAL : 0u);
    struct qr_buf joined = {0};
    int rc;
    if (scorer->joined) {
        qr_buf_put(&joined, first.at, first.n);
        qr_buf_put(&joined, second.at, second.n);
        rc = qr_tokenizer_encode(s->model.tokenizer, ids, joined.data, joined.len, flags, err);
    } else {
        rc = qr_tokenizer_encode_pair(s->model.tokenizer, ids, first.at, first.n, second.at, second.n, flags, err);
    }
    qr_buf_release(&joined);
    while (rc == 0 && ids->n > 1 && ids->id[ids->n - 1] == scorer->pad_id) /* rows before do not depend on it */
        ids->n--;
    return rc;
}

/* "documents[3]", or "documents" where that is one text. */
static void name_pair(char out[64], const struct qr_pairs *p, int32_t i)
{
    snprintf(out, 64, qr_json_type(p->text[1]) == QR_JSON_T_ARRAY ? "%s[%d]" : "%s", p->name[1], i);
}

static int encode_pair(struct qr_call *call, const struct qr_pairs *p, int32_t i, const struct qr_json *first, const struct qr_json *second, struct qr_err *err)
{
    static const char usual[] = "Given a web search query, retrieve relevant passages that answer the query";
    const int32_t ctx = qr_engine_limits(call->server->model.engine)->ctx_max;
    struct qr_piece *piece = &call->piece[i];
    char name[64];
    const struct text instruction = p->instruction ? text_of(p->instruction) : (struct text){usual, sizeof usual - 1};
    const int rc = call->server->model.scorer->kind == QR_SCORER_YES_NO ? encode_question(call, &piece->ids, instruction, text_of(first), text_of(second), err)
                                                                        : encode_texts(call, &piece->ids, text_of(first), text_of(second), err);
    piece->n_prompt = piece->ids.n;
    if (rc == 0 && piece->ids.n >= 1 && piece->ids.n <= ctx)
        return 0;
    name_pair(name, p, i);
    if (rc == 0 && piece->ids.n == 0)
        return qr_err_at(err, QR_E_INVALID, name, "%s and %s are empty; at least one token is needed", p->name[0], name);
    if (rc == 0) {
        qr_api_error_set(&call->error, 400, "context_length_exceeded", "This model's maximum context length is %d tokens; %s with %s has %d.", ctx, name,
                         p->name[0], piece->ids.n);
        snprintf(call->error.param, sizeof call->error.param, "%s", name);
    }
    return rc;
}

/* Whether the second pair begins with a block of what the first one begins with. */
static bool shares_block(const struct qr_call *call)
{
    const struct qr_ids *a = &call->piece[0].ids, *b = &call->piece[1].ids;
    const int32_t n = qr_engine_limits(call->server->model.engine)->block_tokens;
    return n > 0 && a->n > n && b->n > n && memcmp(a->id, b->id, (size_t)n * sizeof *a->id) == 0;
}

static int set_pairs(struct qr_call *call, const struct qr_pairs *p, struct qr_err *err)
{
    const struct qr_json *first = qr_pairs_first(p->text[0]), *second = qr_pairs_first(p->text[1]);
    int rc = 0;
    for (int32_t i = 0; i < p->n && rc == 0 && call->error.status == 0; i++) {
        rc = encode_pair(call, p, i, first, second, err);
        if (p->documents) {
            const struct text t = text_of(second);
            qr_json_put_str(&call->piece[i].prompt_text, t.at, t.n);
        }
        call->answer_bytes += RESULT_BYTES + (int64_t)call->piece[i].prompt_text.len;
        first = p->n_first > 1 ? qr_json_after(first) : first;
        second = qr_json_after(second);
    }
    call->leads = rc == 0 && call->error.status == 0 && p->n > 1 && shares_block(call);
    return rc;
}

static void prepare(struct qr_call *call, bool rerank)
{
    struct qr_pairs p = {0};
    struct qr_err err = {0};
    call->params.n = 1;
    int rc = check_server(call->server, &err);
    if (rc == 0) {
        rc = qr_pairs_read(&p, rerank, call->body.data, call->body.len, &err);
        call->params.doc = p.doc;
    }
    if (rc == 0 && p.timeout)
        rc = qr_read_timeout_us(&call->params.timeout_us, p.timeout, call->server->config.request_us, &err);
    if (rc == 0 && p.instruction && call->server->model.scorer->kind != QR_SCORER_YES_NO)
        rc = qr_err_at(&err, QR_E_UNSUPPORTED, "instruction", "instruction belongs to Qwen3-Reranker's prompt; this model takes texts as they are");
    if (rc == 0) {
        if (!qr_call_check_model(call, p.model) || !qr_call_make_pieces(call, p.n))
            return;
        call->top_n = p.top_n;
        call->raw = p.raw;
        p.documents &= rerank;
        rc = set_pairs(call, &p, &err);
    }
    if (rc != 0)
        qr_call_fail(call, &err);
}

static void prepare_rerank(struct qr_call *call)
{
    prepare(call, true);
}

static void prepare_score(struct qr_call *call)
{
    prepare(call, false);
}

/* ---- the answer ---- */

static struct qr_request *make_request(struct qr_call *call, struct qr_piece *piece)
{
    QR_ASSERT(piece->ids.n > 0);
    QR_ASSERT(call->server->model.scorer != NULL);
    struct qr_request *r = qr_request_new_embedding(piece->ids.id, piece->ids.n, QR_POOLING_LAST, qr_engine_model(call->server->model.engine)->n_embd);
    if (r)
        qr_ids_release(&piece->ids);
    return r;
}

static void collect(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    const struct qr_scorer *s = call->server->model.scorer;
    QR_ASSERT(ev->last && ev->req->pooled != NULL);
    QR_ASSERT(ev->req->n_pooled == s->n_embd);
    choice->score = qr_scorer_score(s, ev->req->pooled, call->raw);
}

/* By insertion, as at most QR_PAIRS_MAX are sorted: the best first, equal ones as they came. */
static int32_t *by_score(const struct qr_call *call)
{
    int32_t *order = qr_alloc((size_t)call->n_pieces, sizeof *order);
    for (int32_t i = 0; i < call->n_pieces; i++) {
        int32_t at = i;
        for (; at > 0 && call->choice[order[at - 1]].score < call->choice[i].score; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return order;
}

static void put_head(struct qr_call *call)
{
    struct qr_buf *b = &call->reply;
    qr_buf_put_byte(b, '{');
    qr_json_put_member_text(b, "id", call->id);
    qr_json_put_member_text(b, "model", call->model);
}

static void put_usage(struct qr_call *call)
{
    int64_t n = 0;
    for (int32_t i = 0; i < call->n_pieces; i++)
        n += call->piece[i].n_prompt;
    qr_buf_printf(&call->reply, ",\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld}", (long long)n, (long long)n);
}

static void write_rerank(struct qr_call *call)
{
    struct qr_buf *b = &call->reply;
    int32_t *order = by_score(call);
    put_head(call);
    put_usage(call);
    qr_buf_put_str(b, ",\"results\":[");
    for (int32_t i = 0; i < call->top_n; i++) {
        const struct qr_piece *piece = &call->piece[order[i]];
        qr_buf_printf(b, "%s{\"index\":%d,", i > 0 ? "," : "", order[i]);
        if (piece->prompt_text.len > 0) {
            qr_buf_put_str(b, "\"document\":{\"text\":");
            qr_buf_put(b, piece->prompt_text.data, piece->prompt_text.len);
            qr_buf_put_str(b, "},");
        }
        qr_buf_put_str(b, "\"relevance_score\":");
        qr_json_put_f64(b, call->choice[order[i]].score);
        qr_buf_put_byte(b, '}');
    }
    qr_buf_put_str(b, "]}");
    qr_free(order);
}

static void write_score(struct qr_call *call)
{
    struct qr_buf *b = &call->reply;
    put_head(call);
    qr_buf_printf(b, ",\"object\":\"list\",\"created\":%lld,\"data\":[", (long long)call->created_s);
    for (int32_t i = 0; i < call->n_pieces; i++) {
        qr_buf_printf(b, "%s{\"index\":%d,\"object\":\"score\",\"score\":", i > 0 ? "," : "", i);
        qr_json_put_f64(b, call->choice[i].score);
        qr_buf_put_byte(b, '}');
    }
    qr_buf_put_byte(b, ']');
    put_usage(call);
    qr_buf_put_byte(b, '}');
}

const struct qr_call_kind qr_call_rerank = {.counted = QR_COUNTED_RERANK, .id_prefix = "rerank-", .prepare = prepare_rerank, .collect = collect,
                                            .write = write_rerank, .make = make_request, .submitted_max = SUBMITTED_MAX},
                          qr_call_score = {.counted = QR_COUNTED_SCORE, .id_prefix = "score-", .prepare = prepare_score, .collect = collect,
                                           .write = write_score, .make = make_request, .submitted_max = SUBMITTED_MAX};
