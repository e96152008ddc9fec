/* OLMo 3: OLMo 2 with a window in three of four layers. Rotary scaling is for the layers without one. */
#include "loader/families/family.h"
#include "loader/families/rows.h"

#define WINDOW_EVERY 4

static int refuse_two_thetas(const char *file, const struct qr_model_config *c, struct qr_err *err)
{
    if (c->local_theta == c->rope.theta)
        return 0;
    return qr_err_set(err, QR_E_UNSUPPORTED, "%sthe frequency base is %g in layers with a window and %g in others, "
                      "expected the same", file, c->local_theta, c->rope.theta);
}

static int read_hf(const struct qr_hf_obj *o, struct qr_model_config *c)
{
    return refuse_two_thetas("config.json: ", c, o->err);
}

int qr_olmo3_read_gguf(const struct qr_gguf_reader *r)
{
    struct qr_model_config *c = r->c;
    c->arch = QR_ARCH_OLMO3;
    qr_arch_name(c->arch, c->arch_name);
    c->local_theta = c->rope.theta;
    int rc = qr_gguf_read_real(r, "rope.freq_base_swa", 2, 1e15, &c->local_theta);
    rc = rc ? rc : qr_gguf_read_windows(r, WINDOW_EVERY);
    return rc ? rc : refuse_two_thetas("", c, r->err);
}

static void make_small(struct qr_model_config *c)
{
    c->window = 37;
    c->unwindowed[0] = 2;
    c->rope.type = QR_ROPE_LINEAR;
    c->rope.factor = 2;
    c->local_theta = c->rope.theta;
}

const struct qr_family qr_family_olmo3 = {
    .name = {{"Olmo3ForCausalLM", "olmo3"}},
    .usual = {.ctx_max = 2048, .eps = 1e-5, .theta = 500000},
    .post_norms = true,
    .qk_norm = true,
    .qk_norm_rows = true,
    ATTENTION_BIAS,
    .window = 4096,
    .window_every = WINDOW_EVERY,
    .window_layers = QR_WINDOW_LISTED,
    .local_theta = QR_LOCAL_UNSCALED,
    .weights = qr_olmo2_rows,
    .gguf = "olmo2",
    .read_hf = read_hf,
    .make_small = make_small,
};
