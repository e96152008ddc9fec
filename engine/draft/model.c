/* model.c - a draft model's opening, its memory, and which rows of that are known.
 *
 * Whose block is whose is the scheduler's; here is only, for each block, how many of its rows the draft model has computed for what the block is now for. Plans
 * say when a block was given out again (its sequence's table grew) and when it is a copy. Guarantee: a row that counts as known holds the keys and values of
 * its sequence's ids, whichever sequence computed them. Engine thread. */
#include "engine/draft/model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/draft/model_internal.h"

/* ---- opening ---- */

static struct qr_model_options options_like(const struct qr_model_options *like)
{
    return (struct qr_model_options){.compute = like->compute, .quantize = like->quantize, .kv_cache = like->kv_cache, .cache_packed = like->cache_packed};
}

static int32_t rows_max_of(const struct qr_engine_config *c)
{
    return c->chunk_tokens_max > c->running_max ? c->chunk_tokens_max : c->running_max;
}

static int32_t tail_of(const struct qr_engine_config *c)
{
    return (QR_DRAFT_MAX + c->block_tokens - 1) / c->block_tokens;
}

static int blame(struct qr_err *err, const struct qr_engine_config *c)
{
    return qr_err_prefix(err, "--draft-model %s: ", c->draft_model);
}

static int check_use(const struct qr_engine_config *c, const struct qr_backend *be, struct qr_err *err)
{
    if (!be->mem->host)
        return qr_err_set(err, QR_E_UNSUPPORTED, "--draft-model: draft models are computed on the processor only; on the device \"%s\" leave it out, or take "
                          "--device cpu", be->name);
    if (c->kv_host_bytes > 0)
        return qr_err_set(err, QR_E_USAGE, "--kv-host-gib and --draft-model: the second tier keeps the model's keys and values only; leave one of them out");
    return 0;
}

int qr_draft_model_size(struct qr_draft_size *out, const struct qr_engine_config *config, struct qr_backend *be, const struct qr_model_options *like,
                        struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && config->draft_model != NULL);
    QR_ASSERT(be != NULL && like != NULL && err != NULL);
    const struct qr_model_options options = options_like(like);
    struct qr_model_plan plan;
    if (check_use(config, be, err) != 0)
        return err->code;
    if (qr_model_plan(&plan, config->draft_model, be, &options, rows_max_of(config), config->running_max, err) != 0)
        return blame(err, config);
    const int64_t tail = (int64_t)config->running_max * tail_of(config) * config->block_tokens;
    *out = (struct qr_draft_size){.weight_bytes = (int64_t)(plan.weight_bytes + plan.table_bytes), .token_bytes = (int64_t)plan.kv_token_bytes,
                                  .act_bytes = (int64_t)plan.act_bytes + tail * (int64_t)plan.kv_token_bytes};
    return 0;
}

int64_t qr_draft_model_table_bytes(const struct qr_engine_limits *limits)
{
    QR_ASSERT(limits != NULL);
    QR_ASSERT(limits->block_tokens > 0);
    const int64_t stride = (limits->ctx_max + limits->block_tokens - 1) / limits->block_tokens;
    return (int64_t)limits->n_blocks * (int64_t)sizeof(uint16_t) + limits->running_max * stride * (int64_t)sizeof(int32_t) +
           ((int64_t)limits->running_max + limits->waiting_max) * (int64_t)sizeof(struct qr_draft_track);
}

/* What a tokenizer has at an id, as a message shows it. */
static void show_piece(char out[64], const struct qr_tokenizer *t, int32_t id)
{
    size_t len;
    const char *bytes = qr_tokenizer_token_bytes(t, id, &len);
    int n = 0;
    if (len == 0) {
        strcpy(out, "nothing");
        return;
    }
    out[n++] = '\'';
    for (size_t i = 0; i < len && n < 56; i++) {
        const unsigned char b = (unsigned char)bytes[i];
        n += b >= 0x20 && b < 0x7f ? snprintf(out + n, 2, "%c", b) : snprintf(out + n, 5, "\\x%02x", b);
    }
    strcpy(out + n, "'");
}

/* Equal ids mean equal pieces. Rows of weights behind the vocabulary, which pad it, may differ in number. */
static int compare(const struct qr_engine_config *c, const struct qr_tokenizer *model, const struct qr_tokenizer *draft, struct qr_err *err)
{
    const int32_t n_model = qr_tokenizer_vocab_size(model), n_draft = qr_tokenizer_vocab_size(draft);
    for (int32_t id = 0; id < n_model || id < n_draft; id++) {
        size_t len, len_draft;
        const char *a = qr_tokenizer_token_bytes(model, id, &len), *b = qr_tokenizer_token_bytes(draft, id, &len_draft);
        char piece[64], piece_draft[64];
        if (len == len_draft && (len == 0 || memcmp(a, b, len) == 0))
            continue;
        show_piece(piece, model, id);
        show_piece(piece_draft, draft, id);
        return qr_err_set(err, QR_E_USAGE, "--draft-model %s: its vocabulary is another one: token %d is %s there, and %s in the model's (%d and %d tokens); "
                          "a draft model needs the model's tokenizer", c->draft_model, id, piece_draft, piece, n_draft, n_model);
    }
    return 0;
}

int qr_draft_model_check(const struct qr_engine_config *config, const struct qr_tokenizer *model, struct qr_err *err)
{
    QR_ASSERT(config != NULL && config->draft_model != NULL);
    QR_ASSERT(model != NULL && err != NULL);
    struct qr_tokenizer *own = NULL;
    if (qr_tokenizer_open(&own, config->draft_model, err) != 0)
        return blame(err, config);
    const int rc = compare(config, model, own, err);
    qr_tokenizer_close(own);
    return rc;
}

int qr_draft_model_open(struct qr_draft_model **out, const struct qr_engine_config *config, struct qr_backend *be, const struct qr_model_options *like,
                        const struct qr_tokenizer *model, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && config->draft_model != NULL);
    QR_ASSERT(be != NULL && be->mem->host && like != NULL && err != NULL);
    const struct qr_model_options options = options_like(like);
    struct qr_model *own = NULL;
    if (qr_draft_model_check(config, model, err) != 0)
        return err->code;
    if (qr_model_open(&own, config->draft_model, be, &options, err) != 0)
        return blame(err, config);
    struct qr_draft_model *m = *out = qr_alloc(1, sizeof *m);
    *m = (struct qr_draft_model){.be = be, .model = own, .rows_max = rows_max_of(config), .seqs_max = config->running_max,
                                 .block_tokens = config->block_tokens, .n_tail = tail_of(config)};
    return 0;
}

static void make_arrays(struct qr_draft_model *m)
{
    const size_t rows = (size_t)m->rows_max, seqs = (size_t)m->seqs_max;
    m->have = qr_alloc((size_t)m->n_blocks, sizeof *m->have);
    m->track = qr_alloc((size_t)m->n_slots, sizeof *m->track);
    m->entry = qr_alloc(seqs, sizeof *m->entry);
    m->ids = qr_alloc(rows, sizeof *m->ids);
    m->pos = qr_alloc(rows, sizeof *m->pos);
    m->slot = qr_alloc(rows, sizeof *m->slot);
    m->row_start = qr_alloc(seqs + 1, sizeof *m->row_start);
    m->ctx_len = qr_alloc(seqs, sizeof *m->ctx_len);
    m->logit_row = qr_alloc(seqs, sizeof *m->logit_row);
    m->table = qr_alloc(seqs * (size_t)m->stride, sizeof *m->table);
    m->scale = qr_alloc(seqs, sizeof *m->scale);
    for (int32_t i = 0; i < m->seqs_max; i++)
        m->scale[i] = 1;
    m->batch = (struct qr_batch){.block_tokens = m->block_tokens, .table_stride = m->stride, .ids = m->ids, .pos = m->pos, .slot = m->slot,
                                 .row_start = m->row_start, .ctx_len = m->ctx_len, .block_table = m->table, .logit_row = m->logit_row,
                                 .logit_scale = m->scale};
}

void qr_draft_model_begin(struct qr_draft_model *m, const struct qr_engine_limits *limits, int32_t n_slots)
{
    QR_ASSERT(m != NULL && m->kv_mem == NULL);
    QR_ASSERT(limits != NULL && limits->block_tokens == m->block_tokens && n_slots > 0);
    const struct qr_model_config *c = qr_model_config(m->model);
    const int32_t n_all = limits->n_blocks + m->seqs_max * m->n_tail;
    m->n_blocks = limits->n_blocks;
    m->n_slots = n_slots;
    m->ctx_max = c->ctx_max < limits->ctx_max ? c->ctx_max : limits->ctx_max;
    m->n_vocab = c->n_vocab < limits->vocab ? c->n_vocab : limits->vocab;
    m->stride = (limits->ctx_max + m->block_tokens - 1) / m->block_tokens + m->n_tail;
    m->kv = qr_model_kv_view(m->model, NULL, n_all, m->block_tokens);
    const size_t kv_bytes = (size_t)n_all * qr_kv_block_bytes(&m->kv), act_bytes = qr_model_act_bytes(m->model, m->rows_max, m->seqs_max);
    m->kv.base = m->kv_mem = m->be->mem->alloc(kv_bytes);
    qr_backend_spread(m->be, m->kv_mem, kv_bytes);
    m->act_mem = m->be->mem->alloc(act_bytes);
    qr_mem_populate(m->act_mem, act_bytes);
    qr_arena_init_fixed(&m->act, m->act_mem, act_bytes);
    qr_exec_init(&m->exec, m->model, m->be, &m->act, &m->kv);
    make_arrays(m);
    m->right = QR_DRAFT_RIGHT;
    m->trust = 1;
}

void qr_draft_model_close(struct qr_draft_model *m)
{
    if (!m)
        return;
    int32_t *const arrays[] = {m->ids, m->pos, m->slot, m->row_start, m->ctx_len, m->logit_row, m->table};
    qr_exec_release(&m->exec);
    for (int i = 0; i < QR_COUNT(arrays); i++)
        qr_free(arrays[i]);
    qr_free(m->have);
    qr_free(m->track);
    qr_free(m->entry);
    qr_free(m->scale);
    if (m->kv_mem)
        m->be->mem->free(m->kv_mem);
    if (m->act_mem)
        m->be->mem->free(m->act_mem);
    qr_model_close(m->model);
    qr_free(m);
}

void qr_draft_model_stats(const struct qr_draft_model *m, struct qr_draft_model_stats *out)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(out != NULL);
    *out = m->stats;
}

/* ---- which rows are known ---- */

/* A sequence with blocks that others have filled, or that were copied for it: its rows begin at `first`. */
static void meet(struct qr_draft_model *m, struct qr_draft_track *t, const struct qr_seq *seq, int32_t first)
{
    *t = (struct qr_draft_track){.tenure = seq->tenure, .n_blocks = (first + m->block_tokens - 1) / m->block_tokens};
    const int32_t within = first % m->block_tokens;
    if (within > 0 && m->have[seq->blocks[first / m->block_tokens]] > within)
        m->have[seq->blocks[first / m->block_tokens]] = (uint16_t)within;
}

void qr_draft_model_follow(struct qr_draft_model *m, const struct qr_plan *plan, const struct qr_sched *sched)
{
    QR_ASSERT(m != NULL && m->kv_mem != NULL);
    QR_ASSERT(plan != NULL && sched != NULL);
    for (int32_t i = 0; i < plan->n_copies; i++) {
        qr_model_kv_copy(&m->exec, plan->copy[i].src, plan->copy[i].dst);
        m->have[plan->copy[i].dst] = m->have[plan->copy[i].src];
    }
    for (int32_t i = 0; i < qr_plan_items(plan); i++) {
        const struct qr_seq *seq = qr_sched_seq(sched, plan->item[i].seq);
        struct qr_draft_track *t = &m->track[plan->item[i].seq];
        QR_ASSERT(plan->item[i].seq < m->n_slots);
        if (t->tenure != seq->tenure)
            meet(m, t, seq, plan->item[i].first);
        for (; t->n_blocks < seq->n_blocks; t->n_blocks++)
            m->have[seq->blocks[t->n_blocks]] = 0;
    }
}
