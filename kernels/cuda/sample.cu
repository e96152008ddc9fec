/* Drawing tokens: a warp a stretch of 256 logits for maxima and sums, then a block a row.
 *
 * Nothing is sorted. An order of ids, larger logit first, then smaller id, is that of one 64-bit number each; the first id with which the weight (or the
 * number) of all that is better reaches a limit is found by histograms of 256 buckets: of distance from the best logit at first, then of the number itself
 * within the bucket that was found. Weights are summed as multiples of 2^-44, exactly, so it shows nowhere in which order threads come. */
#include "base/both.h"
#include "kernels/cuda/num.h"
#include "kernels/cuda/queue.h"

#define STRETCH QR_LINEAR_STRETCH
#define EACH (STRETCH / QR_WARP) /* logits of a lane */
#define THREADS 256
#define WARPS (THREADS / QR_WARP)
#define BUCKETS 256
#define PER_UNIT 8.0f  /* buckets of a factor e */
#define LIST_MAX 2048  /* candidates that fit shared memory */
#define NEAR 8.0f      /* as engine/draw.c: most nuclei end within so many units below the best logit */
#define FAR_WEIGHT 4e-4f
#define UNIT 0x1p-44

typedef unsigned long long number;

struct sample {
    float *logits;
    struct qr_draws draws;
    struct qr_drawn *drawn;
    struct qr_drawn_detail *detail;
    float *most;               /* [rows][n_stretches] */
    double *sum;               /* [rows][n_stretches] */
    struct qr_drawn *extra;    /* [rows] a newest id without a change, and its logit before */
    int64_t stride;
    int32_t n_vocab, n_stretches;
};

/* ---- logits ---- */

QR_DEVICE float load(const float *x, const uint32_t *allowed, int32_t i)
{
    return !allowed || (allowed[i / 32] >> (i % 32) & 1u) ? x[i] : -INFINITY;
}

QR_DEVICE const uint32_t *allowed_of(const struct sample &a, const struct qr_draw_row &row)
{
    return row.allowed >= 0 ? a.draws.allowed + row.allowed : NULL;
}

QR_DEVICE float *logits_of(const struct sample &a, const struct qr_draw_row &row)
{
    return a.logits + row.at * a.stride;
}

QR_DEVICE bool is_greedy(const struct qr_draw_row &row)
{
    return row.temperature < QR_DRAW_GREEDY_BELOW;
}

QR_DEVICE bool is_top_k(const struct sample &a, const struct qr_draw_row &row)
{
    return row.top_k > 0 && row.top_k < a.n_vocab;
}

QR_DEVICE float changed(float x, const struct qr_draw_row &row, bool seen, int32_t n_output)
{
    if (seen && row.repetition != 1.0f)
        x = x > 0 ? x / row.repetition : x * row.repetition;
    if (n_output > 0 && (row.presence != 0 || row.frequency != 0))
        x -= row.presence + row.frequency * (float)n_output;
    return x;
}

/* Whether the change's chain holds the newest id. */
QR_DEVICE bool forbidden_after(const struct qr_logit_change *change, const struct qr_logit_change &c, int32_t newest)
{
    for (int32_t k = c.after; k > 0; k = change[k - 1].after)
        if (change[k - 1].id == newest)
            return true;
    return false;
}

QR_KERNEL(THREADS) change(struct sample a)
{
    QR_SHARED_ARRAY(int32_t, known, 1);
    const int32_t r = (int32_t)blockIdx.x, me = (int32_t)threadIdx.x;
    const struct qr_draw_row &row = a.draws.row[r];
    if (row.at < 0 || row.id >= 0)
        return;
    float *x = logits_of(a, row);
    const int32_t newest = row.newest >= 0 ? a.drawn[row.newest].id : -1;
    if (me == 0)
        known[0] = 0;
    __syncthreads();
    for (int32_t i = me; i < row.n_changes; i += THREADS) {
        struct qr_logit_change &c = a.draws.change[row.first_change + i];
        const bool is_newest = c.id == newest;
        QR_DEVICE_ASSERT(c.id >= 0 && c.id < a.n_vocab);
        if (c.flags & QR_CHANGE_AFTER)
            continue;
        c.was = x[c.id];
        const float y = changed(c.was, row, is_newest || (c.flags & QR_CHANGE_SEEN), c.n_output + is_newest) + c.bias;
        const bool forbid = (c.flags & QR_CHANGE_FORBID) || forbidden_after(&a.draws.change[row.first_change], c, newest);
        x[c.id] = forbid ? -INFINITY : y;
        if (is_newest)
            atomicExch(known, 1);
    }
    __syncthreads();
    if (me != 0)
        return;
    const bool alone = newest >= 0 && !known[0];
    a.extra[blockIdx.x].id = alone ? newest : -1;
    if (alone) {
        a.extra[blockIdx.x].logit = x[newest];
        x[newest] = changed(x[newest], row, true, 1);
    }
}

QR_KERNEL(THREADS) change_back(struct sample a)
{
    const int32_t r = (int32_t)blockIdx.x, me = (int32_t)threadIdx.x;
    const struct qr_draw_row &row = a.draws.row[r];
    if (row.at < 0 || row.id >= 0 || row.n_top < 0)
        return;
    float *x = logits_of(a, row);
    for (int32_t i = me; i < row.n_changes; i += THREADS) {
        const struct qr_logit_change &c = a.draws.change[row.first_change + i];
        if (!(c.flags & QR_CHANGE_AFTER))
            x[c.id] = c.was;
    }
    if (me == 0 && a.extra[blockIdx.x].id >= 0)
        x[a.extra[blockIdx.x].id] = a.extra[blockIdx.x].logit;
}

/* ---- stretches ---- */

QR_DEVICE void load_stretch(float v[EACH], const float *x, const uint32_t *allowed, int32_t first, int32_t n)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
    for (int j = 0; j < EACH; j++)
        v[j] = j * QR_WARP + lane < n ? load(x, allowed, first + j * QR_WARP + lane) : -INFINITY;
}

QR_DEVICE float largest(const float v[EACH])
{
    float most = -INFINITY;
    for (int j = 0; j < EACH; j++)
        most = fmaxf(most, v[j]); /* ignores NaN */
    return qr_warp_max(most);
}

/* w[j] of logit j * 32 + lane beside `best`; returns the sum of all n, the same for all lanes, in the order of engine/row_math.c: 16 chains over whole groups
 * of 16, those one after the other, then what is left. */
QR_DEVICE double weigh(float w[EACH], const float v[EACH], int32_t n, float best, float inv_t)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP, whole = n / 16 * 16;
    double chain = 0, sum = 0;
    float rest = 0;
    for (int j = 0; j < EACH; j++) {
        const int32_t i = j * QR_WARP + lane;
        w[j] = i < n ? qr_exp_below_one((v[j] - best) * inv_t) : 0.0f;
        const float mine = i < whole ? w[j] : 0.0f, other = __shfl_down_sync(QR_ALL_LANES, mine, 16);
        chain += (double)mine;
        chain += (double)other;
        rest = whole / QR_WARP == j ? w[j] : rest;
    }
    for (int k = 0; k < 16; k++)
        sum += __shfl_sync(QR_ALL_LANES, chain, k);
    for (int k = whole; k < n; k++)
        sum += (double)__shfl_sync(QR_ALL_LANES, rest, k % QR_WARP);
    return sum;
}

/* Largest logit of each stretch and, for draws from the whole row or a nucleus, the sum of its weights beside that. */
QR_KERNEL(THREADS) know(struct sample a)
{
    const int32_t i = (int32_t)(blockIdx.x * WARPS + threadIdx.x / QR_WARP), r = (int32_t)blockIdx.y;
    const struct qr_draw_row &row = a.draws.row[r];
    if (row.at < 0 || row.id >= 0 || i >= a.n_stretches)
        return;
    const int32_t n = min(a.n_vocab - i * STRETCH, STRETCH), at = r * a.n_stretches + i;
    float v[EACH], w[EACH];
    load_stretch(v, logits_of(a, row), allowed_of(a, row), i * STRETCH, n);
    const float most = largest(v);
    double sum = 0;
    if (!is_greedy(row) && !is_top_k(a, row))
        sum = weigh(w, v, n, most, 1.0f / row.temperature);
    if (threadIdx.x % QR_WARP == 0) {
        a.most[at] = most;
        a.sum[at] = sum;
    }
}

/* ---- what a block has in common ---- */

/* What is searched: a row of logits, or a list of keys; of it keys from `floor` on whose weight is at least `least`, and the best in any case. */
struct set {
    const float *x;
    const uint32_t *allowed;
    const number *list;
    int32_t n;
    float best, inv_t, least;
    number floor;
};

struct room {
    number weight[BUCKETS], list[LIST_MAX];
    int32_t count[BUCKETS];
    float w[STRETCH];
    number least, most, total, key, before, upto; /* of what was found last */
    double limit;
    int32_t bucket, n, at, id;
    struct set whole; /* the row: registers are scarce */
};

QR_DEVICE float block_most(struct room &c, float x)
{
    x = qr_warp_max(x);
    __syncthreads();
    if (threadIdx.x % QR_WARP == 0)
        c.w[threadIdx.x / QR_WARP] = x;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        x = fmaxf(x, c.w[i]);
    return x;
}

/* ---- the order of ids as numbers ---- */

/* Larger numbers are better; a zero's sign is not seen. x is a number. */
QR_DEVICE number key_of(float x, int32_t id)
{
    const uint32_t u = __float_as_uint(x + 0.0f);
    return (number)(u >> 31 ? ~u : u | 0x80000000u) << 32 | (uint32_t)~id;
}

QR_DEVICE float logit_of(number key)
{
    const uint32_t u = (uint32_t)(key >> 32);
    return __uint_as_float(u >> 31 ? u & 0x7fffffffu : ~u);
}

QR_DEVICE int32_t id_of(number key)
{
    return (int32_t)~(uint32_t)key;
}

QR_DEVICE bool element(const struct set &s, int32_t i, number *key, float *weight)
{
    const float x = s.list ? logit_of(s.list[i]) : load(s.x, s.allowed, i);
    if (isnan(x))
        return false;
    *key = s.list ? s.list[i] : key_of(x, i);
    *weight = qr_exp_below_one((x - s.best) * s.inv_t);
    return *key >= s.floor && (*weight >= s.least || x == s.best);
}

QR_DEVICE number rounded(float weight)
{
    return (number)((double)weight * (1 / UNIT) + 0.5);
}

/* Of all that belongs to the set. */
QR_DEVICE double mass(struct room &c, const struct set &s)
{
    number mine = 0, key;
    float weight;
    for (int32_t i = (int32_t)threadIdx.x; i < s.n; i += THREADS)
        if (element(s, i, &key, &weight))
            mine += rounded(weight);
    for (int step = QR_WARP / 2; step > 0; step /= 2)
        mine += __shfl_xor_sync(QR_ALL_LANES, mine, step);
    __syncthreads();
    if (threadIdx.x == 0)
        c.total = 0;
    __syncthreads();
    if (threadIdx.x % QR_WARP == 0)
        atomicAdd(&c.total, mine);
    __syncthreads();
    return (double)c.total * UNIT;
}

/* Where histograms are made: of distance while shift < 0, else of keys from `low` to `high`, best first. */
struct range {
    number low, high;
    int32_t shift;
};

QR_DEVICE int32_t bucket_of(const struct set &s, const struct range &in, number key)
{
    if (in.shift >= 0)
        return key >= in.low && key <= in.high ? (int32_t)((in.high - key) >> in.shift) : -1;
    const float d = (s.best - logit_of(key)) * s.inv_t * PER_UNIT;
    return d < BUCKETS - 1 ? (int32_t)d : BUCKETS - 1; /* NaN, where the best is infinite: the last */
}

QR_DEVICE void fill_buckets(struct room &c, const struct set &s, const struct range &in, bool weighed)
{
    const int32_t me = (int32_t)threadIdx.x;
    __syncthreads();
    for (int32_t i = me; i < BUCKETS; i += THREADS)
        c.weight[i] = 0, c.count[i] = 0;
    __syncthreads();
    for (int32_t i = me; i < s.n; i += THREADS) {
        number key;
        float weight;
        const int32_t b = element(s, i, &key, &weight) ? bucket_of(s, in, key) : -1;
        if (b < 0)
            continue;
        atomicAdd(&c.weight[b], weighed ? rounded(weight) : (number)1);
        atomicAdd(&c.count[b], 1);
    }
    __syncthreads();
}

/* The first bucket with which everything from the best on reaches the limit, else the last that is not empty, into c.bucket (-1: all are empty); what is before
 * it and with it into c.before (so far: what is better than all of them) and c.upto. */
QR_DEVICE void find_bucket(struct room &c, double unit, double limit, bool strictly)
{
    enum { OF_LANE = BUCKETS / QR_WARP };
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
    if (threadIdx.x < QR_WARP) {
        const number better = c.before;
        number mine = 0, sum = 0, before = 0, upto = 0;
        int32_t found = -1;
        bool reached = false;
        for (int k = 0; k < OF_LANE; k++)
            mine += c.weight[lane * OF_LANE + k];
        sum = mine;
        for (int step = 1; step < QR_WARP; step *= 2) {
            const number o = __shfl_up_sync(QR_ALL_LANES, sum, step);
            sum += lane >= step ? o : 0;
        }
        sum += better - mine;
        for (int k = 0; k < OF_LANE; k++) {
            const int32_t b = lane * OF_LANE + k;
            if (reached || c.count[b] == 0)
                continue;
            found = b;
            before = sum;
            upto = sum += c.weight[b];
            reached = strictly ? limit < (double)sum * unit : limit <= (double)sum * unit;
        }
        const unsigned int there = __ballot_sync(QR_ALL_LANES, found >= 0), at = __ballot_sync(QR_ALL_LANES, reached);
        const int32_t who = at ? __ffs((int)at) - 1 : there ? 31 - __clz((int)there) : 0;
        __syncwarp(); /* all have read c.before */
        if (lane == who) {
            c.bucket = found;
            if (found >= 0)
                c.before = before, c.upto = upto, c.n = c.count[found];
        }
    }
    __syncthreads();
}

/* The smallest and the largest key of a bucket, and by that of all between. */
QR_DEVICE void find_ends(struct room &c, const struct set &s, const struct range &in, int32_t bucket)
{
    number low = ~(number)0, high = 0, key;
    float weight;
    for (int32_t i = (int32_t)threadIdx.x; i < s.n; i += THREADS)
        if (element(s, i, &key, &weight) && bucket_of(s, in, key) == bucket)
            low = key < low ? key : low, high = key > high ? key : high;
    for (int step = QR_WARP / 2; step > 0; step /= 2) {
        const number l = __shfl_xor_sync(QR_ALL_LANES, low, step), h = __shfl_xor_sync(QR_ALL_LANES, high, step);
        low = l < low ? l : low, high = h > high ? h : high;
    }
    if (threadIdx.x == 0)
        c.least = 0, c.most = 0; /* of `least` the complement, so that both grow */
    __syncthreads();
    if (threadIdx.x % QR_WARP == 0) {
        atomicMax(&c.least, ~low);
        atomicMax(&c.most, high);
    }
    __syncthreads();
}

/* The first of the set, best first, with which the sum of weights (or the number) reaches the limit, or passes it `strictly`; when none does, the last.
 * Everything about it lies in c: key, before, upto. False: the set is empty. */
QR_DEVICE bool find(struct room &c, const struct set &s, bool weighed, double limit, bool strictly)
{
    struct range in = {0, 0, -1};
    __syncthreads();
    if (threadIdx.x == 0)
        c.before = 0;
    for (;;) {
        fill_buckets(c, s, in, weighed);
        find_bucket(c, weighed ? UNIT : 1.0, limit, strictly);
        const int32_t bucket = c.bucket;
        if (bucket < 0)
            return false;
        if (in.shift < 0) {
            find_ends(c, s, in, bucket);
            in.low = ~c.least;
            in.high = c.most;
        } else {
            const number high = in.high - ((number)bucket << in.shift), low = high - (((number)1 << in.shift) - 1);
            in.low = low > in.low && low <= high ? low : in.low;
            in.high = high;
        }
        if (c.n == 1 || in.low == in.high)
            break;
        const int32_t bits = 64 - __clzll((long long)(in.high - in.low));
        in.shift = bits > 8 ? bits - 8 : 0;
    }
    number key;
    float weight;
    for (int32_t i = (int32_t)threadIdx.x; i < s.n; i += THREADS)
        if (element(s, i, &key, &weight) && key >= in.low && key <= in.high)
            c.key = key; /* one thread's: there is one such key */
    __syncthreads();
    return true;
}

/* The keys of logits from `from` on into c.list, where they fit: then the set is that list. */
QR_DEVICE void collect(struct room &c, struct set *s, const float *most, int32_t n_stretches, float from)
{
    const int32_t lane = (int32_t)threadIdx.x % QR_WARP;
    __syncthreads();
    if (threadIdx.x == 0)
        c.at = 0;
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x / QR_WARP; i < n_stretches; i += WARPS) {
        if (!(most[i] >= from))
            continue;
        float v[EACH];
        load_stretch(v, s->x, s->allowed, i * STRETCH, min(s->n - i * STRETCH, STRETCH));
        for (int j = 0; j < EACH; j++) {
            const int32_t id = i * STRETCH + j * QR_WARP + lane;
            const bool in = id < s->n && v[j] >= from;
            const unsigned int all = __ballot_sync(QR_ALL_LANES, in);
            int32_t at = 0;
            if (lane == 0 && all)
                at = atomicAdd(&c.at, __popc(all));
            at = __shfl_sync(QR_ALL_LANES, at, 0) + __popc(all & ((1u << lane) - 1));
            if (in && at < LIST_MAX)
                c.list[at] = key_of(v[j], id);
        }
    }
    __syncthreads();
    if (c.at <= LIST_MAX) {
        s->list = c.list;
        s->n = c.at;
    }
}

/* ---- the draws ---- */

/* The first id at which the row's largest logit is. */
QR_DEVICE int32_t first_largest(struct room &c, const struct set &s, const float *most, int32_t n_stretches)
{
    const int32_t me = (int32_t)threadIdx.x;
    __syncthreads();
    if (me == 0)
        c.at = c.id = INT32_MAX;
    __syncthreads();
    for (int32_t i = me; i < n_stretches; i += THREADS)
        if (most[i] == s.best)
            atomicMin(&c.at, i);
    __syncthreads();
    const int32_t first = c.at == INT32_MAX ? s.n : c.at * STRETCH;
    for (int32_t i = first + me; i < s.n && i < first + STRETCH; i += THREADS)
        if (load(s.x, s.allowed, i) == s.best)
            atomicMin(&c.id, i);
    __syncthreads();
    return c.id == INT32_MAX ? 0 : c.id;
}

/* In the order of ids, as draw_any of engine/draw.c. sum [n_stretches] is shared memory and overwritten. */
QR_DEVICE int32_t draw_any(struct room &c, const struct set &s, const float *most, double *sum, int32_t n_stretches, double u)
{
    const int32_t me = (int32_t)threadIdx.x;
    if (me == 0) {
        double all = 0, upto = 0, before = 0;
        int32_t at = 0;
        for (int32_t i = 0; i < n_stretches; i++)
            all += sum[i];
        const double limit = u * all;
        for (int32_t i = 0; all > 0 && i < n_stretches; i++) {
            if (sum[i] == 0)
                continue;
            before = upto;
            upto += sum[i];
            at = i;
            if (limit < upto)
                break;
        }
        c.at = all > 0 ? at : -1;
        c.limit = (limit - before) / sum[at];
    }
    __syncthreads();
    const int32_t at = c.at, n = min(s.n - at * STRETCH, STRETCH);
    if (at < 0)
        return first_largest(c, s, most, n_stretches);
    if (me < QR_WARP) {
        float v[EACH], w[EACH];
        load_stretch(v, s.x, s.allowed, at * STRETCH, n);
        const double all = weigh(w, v, n, most[at], s.inv_t);
        for (int j = 0; j < EACH; j++)
            c.w[j * QR_WARP + me] = w[j];
        if (me == 0)
            c.limit = c.limit * all;
    }
    __syncthreads();
    if (me == 0) {
        double upto = 0;
        int32_t last = 0;
        for (int32_t k = 0; k < n; k++) {
            if (c.w[k] == 0)
                continue;
            upto += (double)c.w[k];
            last = k;
            if (c.limit < upto)
                break;
        }
        c.id = at * STRETCH + last;
    }
    __syncthreads();
    return c.id;
}

/* What a draw of the best goes through. The search stands in one place for all of them: it is most of the kernel. */
enum step { STRETCHES, COLLECT, COUNT, MASS, SHARE, DRAW, STEPS };

/* Best first: among the k best, as draw_top of engine/draw.c (`top`), or in the nucleus of top_p and min_p, as draw_nucleus there; all: then the weight of the
 * row. Among the k best a draw has to pass its limit, in a nucleus to reach it. */
QR_DEVICE int32_t draw_best(struct room &c, const struct qr_draw_row &row, bool top, const float *most, int32_t n_stretches, double all, double u)
{
    const bool cut = row.min_p > FAR_WEIGHT, by_stretches = top && row.top_k <= n_stretches;
    struct set s = c.whole;
    float from = top ? -INFINITY : s.best - (cut ? 0.01f - logf(row.min_p) : NEAR) / s.inv_t;
    if (by_stretches) /* no logit below the k-th of the stretches' largest ones is among the k best */
        s.x = most, s.allowed = NULL, s.n = n_stretches;
#pragma unroll 1
    for (int32_t step = by_stretches ? STRETCHES : COLLECT; step < STEPS; step++) {
        if (step == COLLECT) {
            s = c.whole;
            collect(c, &s, most, n_stretches, from);
        } else if (step == MASS) {
            const bool asked = top || (s.list && !cut);
            const double near = asked ? mass(c, s) : 0;
            if (top)
                all = near;
            else if (!s.list || (asked && !(near > (double)row.top_p * all)))
                s = c.whole;
        }
        if (step == COLLECT || step == MASS || (step == COUNT && !top) || (step == SHARE && top && !(row.top_p < 1.0f)))
            continue;
        const bool counts = step <= COUNT;
        const double limit = counts ? (double)row.top_k : (step == SHARE ? (double)row.top_p : u) * all;
        const bool found = find(c, s, !counts, limit, step == DRAW && top);
        if (step == STRETCHES) {
            from = found && c.upto >= (number)row.top_k ? logit_of(c.key) : from;
            continue;
        }
        if (!found)
            return 0;
        s.floor = c.key;
        all = step == SHARE ? (double)c.upto * UNIT : all;
    }
    return id_of(c.key);
}

QR_KERNEL_CAPPED(THREADS, 1) draw(struct sample a)
{
    QR_SHARED(double, sum);
    QR_SHARED_ARRAY(struct room, rooms, 1);
    struct room &c = rooms[0];
    float *most = (float *)(sum + a.n_stretches);
    const int32_t r = (int32_t)blockIdx.x, me = (int32_t)threadIdx.x;
    const struct qr_draw_row &row = a.draws.row[r];
    struct qr_drawn *out = &a.drawn[r];
    if (row.at < 0 || row.id >= 0) {
        if (me == 0)
            *out = {row.at < 0 ? 0 : row.id, row.at < 0 ? 0.0f : logits_of(a, row)[row.id]};
        return;
    }
    const bool greedy = is_greedy(row), top = is_top_k(a, row), whole = !top && !(row.top_p < 1.0f) && !(row.min_p > 0);
    struct set s = {logits_of(a, row), allowed_of(a, row), NULL, a.n_vocab, -INFINITY, greedy ? 0.0f : 1.0f / row.temperature, 0, 0};
    for (int32_t i = me; i < a.n_stretches; i += THREADS) {
        most[i] = a.most[(int64_t)r * a.n_stretches + i];
        s.best = fmaxf(s.best, most[i]);
    }
    s.best = block_most(c, s.best);
    s.least = row.min_p > 0x1p-126f ? row.min_p : 0x1p-126f; /* weights are 0 or at least e^-87 */
    for (int32_t i = me; !greedy && !top && i < a.n_stretches; i += THREADS)
        sum[i] = a.sum[(int64_t)r * a.n_stretches + i] * (double)qr_exp_below_one((most[i] - s.best) * s.inv_t);
    if (me == 0)
        c.whole = s;
    __syncthreads();
    const double u = qr_philox_unit(row.seed, (uint64_t)row.choice, (uint64_t)row.pos);
    int32_t id;
    if (greedy) {
        id = isnan(load(s.x, s.allowed, 0)) ? 0 : first_largest(c, s, most, a.n_stretches);
    } else if (whole) {
        id = draw_any(c, s, most, sum, a.n_stretches, u);
    } else {
        if (me == 0) {
            c.limit = 0;
            for (int32_t i = 0; !top && i < a.n_stretches; i++)
                c.limit += sum[i];
        }
        __syncthreads();
        id = draw_best(c, row, top, most, a.n_stretches, c.limit, u);
    }
    if (me == 0)
        *out = {id, load(s.x, s.allowed, id)};
}

/* ---- log-probabilities ---- */

/* The n_top best, best first: everything from the n_top-th on is collected, and each finds how many are better. */
QR_DEVICE void find_most_likely(struct room &c, const struct set &s, struct qr_drawn_detail *out, int32_t n_top)
{
    const int32_t me = (int32_t)threadIdx.x;
    if (me == 0)
        out->n_top = 0;
    if (n_top == 0 || !find(c, s, false, n_top, false))
        return;
    const number floor = c.key;
    if (me == 0)
        c.at = 0;
    __syncthreads();
    for (int32_t i = me; i < s.n; i += THREADS) {
        number key;
        float weight;
        if (element(s, i, &key, &weight) && key >= floor)
            c.list[atomicAdd(&c.at, 1)] = key;
    }
    __syncthreads();
    const int32_t n = c.at;
    QR_DEVICE_ASSERT(n <= n_top);
    if (me < n) {
        int32_t better = 0;
        for (int32_t i = 0; i < n; i++)
            better += c.list[i] > c.list[me];
        out->top_id[better] = id_of(c.list[me]);
        out->top[better] = logit_of(c.list[me]);
    }
    if (me == 0)
        out->n_top = n;
}

QR_KERNEL_CAPPED(THREADS, 1) describe(struct sample a)
{
    QR_SHARED(double, sum);
    QR_SHARED_ARRAY(struct room, rooms, 1);
    struct room &c = rooms[0];
    const int32_t r = (int32_t)blockIdx.x, me = (int32_t)threadIdx.x, warp = me / QR_WARP;
    const struct qr_draw_row row = a.draws.row[r];
    if (row.at < 0 || row.n_top < 0)
        return;
    struct qr_drawn_detail *out = &a.detail[r];
    const int32_t id = a.drawn[r].id;
    struct set s = {logits_of(a, row), NULL, NULL, a.n_vocab, -INFINITY, 1.0f, -1.0f, 0};
    for (int32_t i = me; i < a.n_vocab; i += THREADS)
        s.best = fmaxf(s.best, s.x[i]);
    s.best = block_most(c, s.best);
    for (int32_t i = warp; i < a.n_stretches; i += WARPS) {
        const int32_t n = min(a.n_vocab - i * STRETCH, STRETCH);
        float v[EACH], w[EACH];
        load_stretch(v, s.x, NULL, i * STRETCH, n);
        const double of = weigh(w, v, n, s.best, 1.0f);
        if (me % QR_WARP == 0)
            sum[i] = of;
    }
    const float mine = s.x[id];
    int32_t ahead = 0;
    for (int32_t i = me; i < a.n_vocab; i += THREADS)
        ahead += s.x[i] > mine || (s.x[i] == mine && i < id);
    if (me == 0)
        c.n = 0;
    __syncthreads();
    atomicAdd(&c.n, ahead);
    __syncthreads();
    if (me == 0) {
        double all = 0;
        for (int32_t i = 0; i < a.n_stretches; i++)
            all += sum[i];
        out->sum = all;
        out->best = s.best;
        out->logit = mine;
        out->rank = 1 + c.n;
    }
    find_most_likely(c, s, out, row.n_top);
}

/* ---- the host's side ---- */

extern "C" void qr_cuda_sample(struct qr_queue *q, const struct qr_sample_args *args)
{
    QR_ASSERT(q != NULL && args != NULL && args->logits != NULL && args->draws != NULL);
    QR_FITS_PLAIN(sizeof(struct room) + QR_DRAW_STRETCHES_MAX * (sizeof(double) + sizeof(float)));
    QR_ASSERT(args->n_vocab > 0 && args->n_vocab <= QR_DRAW_STRETCHES_MAX * STRETCH && args->drawn != NULL);
    const int32_t n_stretches = (int32_t)qr_blocks(args->n_vocab, STRETCH);
    const size_t n = (size_t)args->draws->n_rows, shared = (size_t)n_stretches * (sizeof(double) + sizeof(float));
    QR_ASSERT(n <= 65535 && n * (shared + sizeof(struct qr_drawn)) <= q->scratch_bytes); /* there are 64 KiB a row and more */
    if (n == 0)
        return;
    double *sum = (double *)q->scratch;
    struct qr_drawn *extra = (struct qr_drawn *)(sum + n * (size_t)n_stretches);
    const struct sample a = {.logits = args->logits, .draws = *args->draws, .drawn = args->drawn, .detail = args->detail, .most = (float *)(extra + n),
                             .sum = sum, .extra = extra, .stride = args->stride, .n_vocab = args->n_vocab, .n_stretches = n_stretches};
    const unsigned int rows = (unsigned int)n;
    QR_LAUNCH(change, rows, THREADS, 0, q, a);
    QR_LAUNCH(know, dim3(qr_blocks(n_stretches, WARPS), rows), THREADS, 0, q, a);
    QR_LAUNCH(draw, rows, THREADS, shared, q, a);
    if (args->detail) {
        QR_LAUNCH(change_back, rows, THREADS, 0, q, a);
        QR_LAUNCH(describe, rows, THREADS, shared, q, a);
    }
}

QR_STOPS(sample)
