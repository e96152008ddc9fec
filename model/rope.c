#include "model/rope.h"

#include <math.h>

#include "base/assert.h"
#include "base/mem.h"

#define TAU 6.283185307179586476925286766559

static void fill_powers(double *inv_freq, double base, int32_t n_rot)
{
    for (int32_t i = 0; i < n_rot / 2; i++)
        inv_freq[i] = pow(base, -2.0 * i / n_rot);
}

/* The base that makes the longest wave of a context of `ctx` what it was at original_ctx, factor times stretched beyond it. */
static double dynamic_base(const struct qr_rope_config *r, int32_t n_rot, int32_t ctx)
{
    if (ctx <= r->original_ctx || n_rot <= 2)
        return r->theta;
    double stretch = r->factor * ctx / r->original_ctx - (r->factor - 1);
    return r->theta * pow(stretch, (double)n_rot / (n_rot - 2));
}

/* Waves longer than the old context are slowed by factor, short ones stay, those between go over smoothly. */
static void scale_llama3(double *inv_freq, const struct qr_rope_config *r, int32_t n_rot)
{
    double longest = r->original_ctx / r->low_freq_factor, shortest = r->original_ctx / r->high_freq_factor;
    for (int32_t i = 0; i < n_rot / 2; i++) {
        double wave = TAU / inv_freq[i];
        if (wave < shortest)
            continue;
        double keep = 0; /* the share that is not slowed */
        if (wave <= longest)
            keep = (r->original_ctx / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
        inv_freq[i] *= keep + (1 - keep) / r->factor;
    }
}

/* The index of the frequency that turns `turns` times within the old context (a real number). */
static double yarn_index(const struct qr_rope_config *r, int32_t n_rot, double turns)
{
    return n_rot * log(r->original_ctx / (turns * TAU)) / (2 * log(r->theta));
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn_attn_factor(const struct qr_rope_config *r)
{
    if (r->attn_factor >= 0)
        return r->attn_factor;
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim);
    return yarn_mscale(r->factor, 1);
}

static void scale_yarn(double *inv_freq, const struct qr_rope_config *r, int32_t n_rot)
{
    double low = yarn_index(r, n_rot, r->beta_fast), high = yarn_index(r, n_rot, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, n_rot - 1);
    if (low == high)
        high += 0.001; /* as the reference does, so that the ramp stays defined */
    for (int32_t i = 0; i < n_rot / 2; i++) {
        double slow = fmin(fmax((i - low) / (high - low), 0), 1);
        inv_freq[i] *= (1 - slow) + slow / r->factor;
    }
}

static void scale_long(struct qr_rope_freqs *out, const struct qr_rope_config *r, int32_t ctx_max)
{
    QR_ASSERT(r->n_factors == out->n_rot / 2 && r->original_ctx > 0);
    const float *divisor = ctx_max > r->original_ctx ? r->long_factor : r->short_factor;
    for (int32_t i = 0; i < r->n_factors; i++)
        out->inv_freq[i] /= (double)divisor[i];
    out->attn_factor = (float)(r->attn_factor >= 0 ? r->attn_factor : r->factor > 1 ? sqrt(1 + log(r->factor) / log(r->original_ctx)) : 1);
}

void qr_rope_freqs_init(struct qr_rope_freqs *out, const struct qr_rope_config *r, int32_t head_dim, int32_t ctx_max)
{
    QR_ASSERT(out != NULL && r != NULL);
    QR_ASSERT(head_dim >= 2 && head_dim % 2 == 0);
    QR_ASSERT(ctx_max > 0 && r->theta >= 1 && r->factor > 0);
    const int32_t n_rot = qr_rope_numbers(r, head_dim);
    *out = (struct qr_rope_freqs){.n_rot = n_rot, .attn_factor = 1};
    out->inv_freq = qr_alloc((size_t)n_rot / 2, sizeof *out->inv_freq);
    fill_powers(out->inv_freq, r->type == QR_ROPE_DYNAMIC ? dynamic_base(r, n_rot, ctx_max) : r->theta, n_rot);
    if (r->type == QR_ROPE_LINEAR)
        for (int32_t i = 0; i < n_rot / 2; i++)
            out->inv_freq[i] /= r->factor;
    if (r->type == QR_ROPE_LLAMA3)
        scale_llama3(out->inv_freq, r, n_rot);
    if (r->type == QR_ROPE_LONG)
        scale_long(out, r, ctx_max);
    if (r->type == QR_ROPE_YARN) {
        scale_yarn(out->inv_freq, r, n_rot);
        out->attn_factor = (float)yarn_attn_factor(r);
    }
}

void qr_rope_freqs_release(struct qr_rope_freqs *f)
{
    QR_ASSERT(f != NULL);
    qr_free(f->inv_freq);
    *f = (struct qr_rope_freqs){0};
}
