/* hf_rope.c - the rotary embedding of config.json: rope_parameters, rope_scaling and what stands beside them, and
 * the same written. */
#include "loader/config/hf_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "loader/families/family.h"

static const struct rope_row {
    enum qr_rope_type type;
    const char *name;
} rope_rows[] = {
    {QR_ROPE_DEFAULT, "default"}, {QR_ROPE_LINEAR, "linear"}, {QR_ROPE_DYNAMIC, "dynamic"},
    {QR_ROPE_LLAMA3, "llama3"},   {QR_ROPE_YARN, "yarn"},     {QR_ROPE_LONG, "longrope"},
    {QR_ROPE_LONG, "su"}, /* its older name */
};

static int read_rope_type(const struct qr_hf_obj *o, struct qr_rope_config *r)
{
    const char *name = "default";
    int rc = qr_hf_str(o, "type", &name); /* the older name of the field */
    if (!rc)
        rc = qr_hf_str(o, "rope_type", &name);
    if (rc)
        return rc;
    for (int i = 0; i < QR_COUNT(rope_rows); i++) {
        if (strcmp(name, rope_rows[i].name) == 0) {
            r->type = rope_rows[i].type;
            return 0;
        }
    }
    return qr_err_set(o->err, QR_E_UNSUPPORTED,
                      "%s: %srope_type is \"%.40s\", expected default, linear, dynamic, llama3, yarn or longrope",
                      o->file, o->prefix, name);
}

/* A divisor for each frequency. */
static int read_factors(const struct qr_hf_obj *o, const char *key, float *out, int32_t *n)
{
    const struct qr_json *v = qr_json_find(o->v, key);
    *n = 0;
    if (!v || qr_json_type(v) != QR_JSON_T_ARRAY)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: %s%s is missing, expected a list of numbers", o->file, o->prefix,
                          key);
    for (const struct qr_json *e = qr_json_first(v); e; e = qr_json_after(e)) {
        const double f = qr_json_type(e) == QR_JSON_T_NUMBER ? qr_json_f64(e) : 0;
        if (!(f >= 1e-6 && f <= 1e6) || *n == QR_ROPE_PAIRS_MAX)
            return qr_err_set(o->err, QR_E_DAMAGED, "%s: %s%s[%d]: expected at most %d numbers above 0", o->file,
                              o->prefix, key, *n, QR_ROPE_PAIRS_MAX);
        out[(*n)++] = (float)f;
    }
    return 0;
}

/* The context before it was stretched: what stands beside the object (as Phi-3's does) counts before what stands in
 * it. */
static int read_original_ctx(const struct qr_hf_obj *o, struct qr_rope_config *r, int32_t beside)
{
    const int rc = qr_hf_i32(o, "original_max_position_embeddings", 1, 1 << 27, &r->original_ctx);
    r->original_ctx = beside > 0 ? beside : r->original_ctx;
    return rc;
}

/* factor, where the file does not give it, is how much longer the context became. */
static int read_long_rope(const struct qr_hf_obj *o, struct qr_rope_config *r, int32_t ctx_max, int32_t beside)
{
    int32_t n_short;
    int rc = read_original_ctx(o, r, beside);
    r->factor = (double)ctx_max / r->original_ctx;
    if (rc || (rc = qr_hf_f64(o, "factor", 1e-3, 1e6, &r->factor)) ||
        (rc = qr_hf_f64(o, "attention_factor", 1e-3, 1e6, &r->attn_factor)) ||
        (rc = read_factors(o, "short_factor", r->short_factor, &n_short)) ||
        (rc = read_factors(o, "long_factor", r->long_factor, &r->n_factors)))
        return rc;
    if (n_short != r->n_factors)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: %sshort_factor has %d numbers, long_factor %d", o->file, o->prefix,
                          n_short, r->n_factors);
    return 0;
}

static int read_rope_scaling(const struct qr_hf_obj *o, struct qr_rope_config *r, int32_t ctx_max, int32_t beside)
{
    int rc;
    if ((rc = read_rope_type(o, r)) || (rc = qr_hf_f64(o, "rope_theta", 2, 1e15, &r->theta)) ||
        (rc = qr_hf_f64(o, "partial_rotary_factor", 0, 1, &r->partial)))
        return rc;
    if (r->type == QR_ROPE_DEFAULT)
        return 0;
    if (r->type == QR_ROPE_LONG)
        return read_long_rope(o, r, ctx_max, beside);
    if ((rc = qr_hf_need_f64(o, "factor", 1e-3, 1e6, &r->factor)))
        return rc;
    if (r->type == QR_ROPE_LLAMA3) {
        if ((rc = beside > 0 ? 0 : qr_hf_need_i32(o, "original_max_position_embeddings", 1, 1 << 27,
                                                  &r->original_ctx)) ||
            (rc = read_original_ctx(o, r, beside)) ||
            (rc = qr_hf_need_f64(o, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor)) ||
            (rc = qr_hf_need_f64(o, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor)))
            return rc;
        if (r->high_freq_factor <= r->low_freq_factor)
            return qr_err_set(o->err, QR_E_DAMAGED,
                              "%s: %shigh_freq_factor is %g, expected more than low_freq_factor %g",
                              o->file, o->prefix, r->high_freq_factor, r->low_freq_factor);
        return 0;
    }
    /* the latter stretches max_position_embeddings, whatever else it names */
    if (r->type == QR_ROPE_LINEAR || r->type == QR_ROPE_DYNAMIC)
        return 0;
    if ((rc = read_original_ctx(o, r, beside)) || (rc = qr_hf_f64(o, "attention_factor", 1e-3, 1e6, &r->attn_factor)) ||
        (rc = qr_hf_f64(o, "beta_fast", 1e-6, 1e6, &r->beta_fast)) ||
        (rc = qr_hf_f64(o, "beta_slow", 1e-6, 1e6, &r->beta_slow)) ||
        (rc = qr_hf_f64(o, "mscale", 0, 1e6, &r->mscale)) ||
        (rc = qr_hf_f64(o, "mscale_all_dim", 0, 1e6, &r->mscale_all_dim)))
        return rc;
    return qr_hf_bool(o, "truncate", &r->truncate);
}

/* An even number of a head's numbers rotates, and each pair has its factors. */
static int check_rope(const struct qr_hf_obj *o, const struct qr_model_config *c)
{
    const struct qr_rope_config *r = &c->rope;
    const int32_t n_rot = qr_rope_numbers(r, c->head_dim);
    if (r->partial != 1 && qr_family_of(c->arch)->usual.partial == 0)
        return qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: partial_rotary_factor is %g, expected 1", o->file, r->partial);
    if (n_rot < 2 || n_rot % 2 != 0)
        return qr_err_set(o->err, QR_E_UNSUPPORTED,
                          "%s: partial_rotary_factor is %g: of heads of %d that is %d numbers, expected an even number",
                          o->file,
                          r->partial, c->head_dim, n_rot);
    if (r->type == QR_ROPE_LONG && r->n_factors != n_rot / 2)
        return qr_err_set(o->err, QR_E_DAMAGED, "%s: long_factor has %d numbers, expected one for each of %d pairs",
                          o->file, r->n_factors, n_rot / 2);
    return 0;
}

/* One embedding for layers with a window, which nothing scales, and one for the others. */
static int read_two_ropes(const struct qr_hf_obj *o, const struct qr_json *full, const struct qr_json *sliding,
                          struct qr_model_config *c)
{
    struct qr_rope_config local = c->rope;
    struct qr_hf_obj sub = {.v = full, .file = o->file, .prefix = "rope_parameters.full_attention.", .err = o->err};
    if (!full || !sliding || qr_json_type(full) != QR_JSON_T_OBJECT || qr_json_type(sliding) != QR_JSON_T_OBJECT ||
        c->local_theta == 0)
        return qr_err_set(o->err, QR_E_UNSUPPORTED,
                          "%s: %s differs between layer types, expected one rotary embedding for all layers",
                          o->file, o->prefix);
    local.theta = c->local_theta > 0 ? c->local_theta : local.theta;
    int rc = read_rope_scaling(&sub, &c->rope, c->ctx_max, 0);
    sub.v = sliding;
    sub.prefix = "rope_parameters.sliding_attention.";
    rc = rc ? rc : read_rope_scaling(&sub, &local, c->ctx_max, 0);
    if (!rc && local.type != QR_ROPE_DEFAULT)
        rc = qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %srope_type is \"%s\", expected default", o->file, sub.prefix,
                        rope_rows[local.type].name);
    c->local_theta = local.theta;
    return rc;
}

/* One of the two keys, which is not null. */
static int read_rope_key(const struct qr_hf_obj *o, const char *key, const struct qr_json *v, struct qr_model_config *c,
                         int32_t beside)
{
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.", key);
    struct qr_hf_obj sub = {.v = v, .file = o->file, .prefix = key, .err = o->err};
    if (qr_json_type(v) != QR_JSON_T_OBJECT)
        return qr_hf_wrong_type(o, key, v, "an object");
    const struct qr_json *full = qr_json_find(v, "full_attention"), *sliding = qr_json_find(v, "sliding_attention");
    if (full || sliding)
        return read_two_ropes(&sub, full, sliding, c);
    sub.prefix = prefix;
    return read_rope_scaling(&sub, &c->rope, c->ctx_max, beside);
}

int qr_hf_rope_read(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    QR_ASSERT(o != NULL && o->v != NULL);
    QR_ASSERT(c != NULL && c->ctx_max > 0);
    const struct qr_family *f = qr_family_of(c->arch);
    const double theta = f->usual.theta > 0 ? f->usual.theta : 10000;
    const double partial = f->usual.partial > 0 ? f->usual.partial : 1;
    static const char *const keys[] = {"rope_parameters", "rope_scaling"}; /* the newer name and the older one */
    struct qr_rope_config silent = {.type = QR_ROPE_DEFAULT, .theta = theta, .factor = 1, .beta_fast = 32,
                                    .beta_slow = 1,
                                    .attn_factor = -1, .truncate = true, .partial = partial}, first;
    int32_t beside = 0, n = 0;
    int rc = qr_hf_f64(o, "rope_theta", 2, 1e15, &silent.theta);
    rc = rc ? rc : qr_hf_f64(o, "partial_rotary_factor", 0, 1, &silent.partial);
    rc = rc ? rc : qr_hf_i32(o, "original_max_position_embeddings", 1, 1 << 27, &beside);
    silent.original_ctx = beside > 0 ? beside : f->usual.original_ctx > 0 ? f->usual.original_ctx : c->ctx_max;
    memcpy(&c->rope, &silent, sizeof silent);
    for (int i = 0; i < QR_COUNT(keys) && !rc; i++) {
        const struct qr_json *v = qr_json_find(o->v, keys[i]);
        if (qr_json_is_null(v) || (qr_json_type(v) == QR_JSON_T_OBJECT && qr_json_count(v) == 0))
            continue;
        memcpy(&first, &c->rope, sizeof first);
        memcpy(&c->rope, &silent, sizeof silent);
        rc = read_rope_key(o, keys[i], v, c, beside);
        if (!rc && n++ > 0 && memcmp(&first, &c->rope, sizeof first) != 0)
            rc = qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s and %s are both there and differ, expected one of them",
                            o->file, keys[0], keys[1]);
    }
    if (!rc && c->local_theta > 0)
        rc = qr_hf_f64(o, "rope_local_base_freq", 2, 1e15, &c->local_theta);
    if (c->local_theta < 0)
        c->local_theta = c->rope.theta;
    return rc ? rc : check_rope(o, c);
}

static void write_factors(struct qr_buf *out, const char *key, const float *factor, int32_t n)
{
    qr_buf_printf(out, ", \"%s\": [", key);
    for (int32_t i = 0; i < n; i++) {
        qr_buf_put_str(out, i ? ", " : "");
        qr_json_put_f32(out, factor[i]);
    }
    qr_buf_put_byte(out, ']');
}

void qr_hf_rope_write(struct qr_buf *out, const struct qr_model_config *c)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(c != NULL);
    const struct qr_rope_config *r = &c->rope;
    const double usual = qr_family_of(c->arch)->usual.partial;
    const double partial = r->partial > 0 ? r->partial : 1;
    if (partial != (usual > 0 ? usual : 1)) {
        qr_buf_put_str(out, "  \"partial_rotary_factor\": ");
        qr_json_put_f64(out, partial);
        qr_buf_put_str(out, ",\n");
    }
    if (qr_family_of(c->arch)->usual.original_ctx > 0)
        qr_buf_printf(out, "  \"original_max_position_embeddings\": %d,\n", r->original_ctx);
    if (qr_family_of(c->arch)->local_theta > 0)
        qr_hf_write_f64(out, "rope_local_base_freq", c->local_theta);
    qr_buf_put_str(out, "  \"rope_theta\": ");
    qr_json_put_f64(out, r->theta);
    if (r->type == QR_ROPE_DEFAULT) {
        qr_buf_put_str(out, ",\n  \"rope_scaling\": null");
        return;
    }
    const struct {
        const char *key;
        double value;
        bool on;
    } fields[] = {
        {"factor", r->factor, true},
        {"low_freq_factor", r->low_freq_factor, r->type == QR_ROPE_LLAMA3},
        {"high_freq_factor", r->high_freq_factor, r->type == QR_ROPE_LLAMA3},
        {"beta_fast", r->beta_fast, r->type == QR_ROPE_YARN},
        {"beta_slow", r->beta_slow, r->type == QR_ROPE_YARN},
        {"attention_factor", r->attn_factor, (r->type == QR_ROPE_YARN || r->type == QR_ROPE_LONG) &&
         r->attn_factor >= 0},
        {"mscale", r->mscale, r->type == QR_ROPE_YARN && r->mscale != 0},
        {"mscale_all_dim", r->mscale_all_dim, r->type == QR_ROPE_YARN && r->mscale_all_dim != 0},
        {"original_max_position_embeddings", r->original_ctx, r->type != QR_ROPE_LINEAR && r->type != QR_ROPE_DYNAMIC},
    };
    qr_buf_printf(out, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"", rope_rows[r->type].name);
    if (r->type == QR_ROPE_LONG) {
        write_factors(out, "short_factor", r->short_factor, r->n_factors);
        write_factors(out, "long_factor", r->long_factor, r->n_factors);
    }
    for (int i = 0; i < QR_COUNT(fields); i++) {
        if (fields[i].on) {
            qr_buf_printf(out, ", \"%s\": ", fields[i].key);
            qr_json_put_f64(out, fields[i].value);
        }
    }
    if (r->type == QR_ROPE_YARN)
        qr_buf_printf(out, ", \"truncate\": %s", r->truncate ? "true" : "false");
    qr_buf_put_str(out, "}");
}
