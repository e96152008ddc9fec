#include "loader/config/dense.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "loader/stores/tensor_files.h"

#define FEATURES_MAX (1 << 20)
#define NUMBERS_MAX ((int64_t)1 << 30)
#define LANES 16 /* a power of two */

static int read_features(int32_t *out, const char *dir, const struct qr_json *config, const char *name, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(config, name);
    int64_t n = 0;
    if (!v || !qr_json_i64(v, &n) || n < 1 || n > FEATURES_MAX)
        return qr_err_set(err, QR_E_DAMAGED, "%s/config.json: %s, expected a whole number from 1 to %d", dir, name, FEATURES_MAX);
    *out = (int32_t)n;
    return 0;
}

/* "torch.nn.modules.activation.Tanh" */
static int read_activation(bool *tanh, const char *dir, const struct qr_json *config, struct qr_err *err)
{
    const struct qr_json *v = qr_json_find(config, "activation_function");
    const char *text = !v ? "torch.Tanh" : qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, NULL) : "null";
    const char *dot = strrchr(text, '.'), *name = dot ? dot : "";
    *tanh = strcmp(name, ".Tanh") == 0;
    if (strncmp(text, "torch.", 6) == 0 && (*tanh || strcmp(name, ".Identity") == 0))
        return 0;
    return qr_err_set(err, QR_E_UNSUPPORTED, "%s/config.json: the activation_function %.80s is not computed here, expected Identity or Tanh", dir, text);
}

/* Stages of later versions may read and write other vectors of a text than the pooled one, and add what they were given. */
static int check_kind(const char *dir, const struct qr_json *config, struct qr_err *err)
{
    static const char *const name[] = {"module_input_name", "module_output_name"};
    const struct qr_json *residual = qr_json_find(config, "use_residual");
    if (!qr_json_is_null(residual) && (qr_json_type(residual) != QR_JSON_T_BOOL || qr_json_bool(residual)))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s/config.json: use_residual is set, expected false", dir);
    for (int i = 0; i < QR_COUNT(name); i++) {
        const struct qr_json *v = qr_json_find(config, name[i]);
        if (!qr_json_is_null(v) && (qr_json_type(v) != QR_JSON_T_STRING || strcmp(qr_json_str(v, NULL), "sentence_embedding") != 0))
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s/config.json: %s is set, expected \"sentence_embedding\"", dir, name[i]);
    }
    return 0;
}

/* rows by columns numbers; columns 0: a vector. */
static int read_tensor(float **out, const struct qr_tensor_files *st, const char *dir, const char *name, int32_t rows, int32_t columns, struct qr_err *err)
{
    const struct qr_stored_tensor *t = qr_tensor_files_find(st, name);
    const int64_t want[] = {rows, columns}, n = (int64_t)rows * (columns > 0 ? columns : 1);
    const int32_t n_dims = columns > 0 ? 2 : 1;
    char found[160], expected[160];
    if (!t)
        return qr_err_set(err, QR_E_DAMAGED, "%s/model.safetensors: there is no tensor %s", dir, name);
    if (t->n_dims != n_dims || t->shape[0] != rows || (n_dims == 2 && t->shape[1] != columns))
        return qr_err_set(err, QR_E_DAMAGED, "%s/model.safetensors: tensor %s is %s, expected %s by config.json", dir, name,
                          qr_shape_text(found, sizeof found, t->shape, t->n_dims), qr_shape_text(expected, sizeof expected, want, n_dims));
    if (!t->type->computable)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s/model.safetensors: tensor %s is %s, expected F32, F16 or BF16", dir, name, t->type->name);
    float *x = *out = qr_alloc((size_t)n, sizeof *x);
    qr_tensor_files_decode(st, t, x, 0, rows);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return qr_err_set(err, QR_E_DAMAGED, "%s/model.safetensors: tensor %s: number %lld is not finite", dir, name, (long long)i);
    return 0;
}

static int read_weights(struct qr_dense *d, const char *dir, bool bias, struct qr_err *err)
{
    char path[4096];
    struct qr_tensor_files *st;
    if ((int64_t)d->n_in * d->n_out > NUMBERS_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "%s/config.json: %d features to %d, expected at most %lld numbers", dir, d->n_in, d->n_out,
                          (long long)NUMBERS_MAX);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (access(path, F_OK) != 0)
        return qr_err_set(err, QR_E_NOT_FOUND, "%s does not exist; pickles (pytorch_model.bin) are never read", path);
    int rc = qr_safetensors_open(&st, path, err);
    if (rc)
        return rc;
    rc = read_tensor(&d->weight, st, dir, "linear.weight", d->n_out, d->n_in, err);
    if (rc == 0 && bias)
        rc = read_tensor(&d->bias, st, dir, "linear.bias", d->n_out, 0, err);
    qr_tensor_files_close(st);
    return rc;
}

int qr_dense_open(struct qr_dense *d, const char *dir, const struct qr_json *config, struct qr_err *err)
{
    QR_ASSERT(d != NULL && dir != NULL);
    QR_ASSERT(config != NULL && err != NULL);
    const struct qr_json *bias = qr_json_find(config, "bias");
    *d = (struct qr_dense){0};
    if (!qr_json_is_null(bias) && qr_json_type(bias) != QR_JSON_T_BOOL)
        return qr_err_set(err, QR_E_DAMAGED, "%s/config.json: bias, expected true or false", dir);
    int rc = read_features(&d->n_in, dir, config, "in_features", err);
    rc = rc ? rc : read_features(&d->n_out, dir, config, "out_features", err);
    rc = rc ? rc : read_activation(&d->tanh, dir, config, err);
    rc = rc ? rc : check_kind(dir, config, err);
    rc = rc ? rc : read_weights(d, dir, qr_json_is_null(bias) || qr_json_bool(bias), err);
    if (rc)
        qr_dense_release(d);
    return rc;
}

void qr_dense_release(struct qr_dense *d)
{
    QR_ASSERT(d != NULL);
    QR_ASSERT(d->weight != NULL || d->bias == NULL);
    qr_free(d->weight);
    qr_free(d->bias);
    *d = (struct qr_dense){0};
}

static float dot(const float *a, const float *b, int32_t n)
{
    float sum[LANES] = {0};
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += a[i + l] * b[i + l];
    for (int l = 0; i + l < n; l++)
        sum[l] += a[i + l] * b[i + l];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0];
}

void qr_dense_apply(const struct qr_dense *d, float *y, const float *x)
{
    QR_ASSERT(d != NULL && d->weight != NULL);
    QR_ASSERT(y != NULL && x != NULL && y != x);
    for (int32_t i = 0; i < d->n_out; i++) {
        const float sum = dot(d->weight + (int64_t)i * d->n_in, x, d->n_in) + (d->bias ? d->bias[i] : 0);
        y[i] = d->tanh ? tanhf(sum) : sum;
    }
}
