#include "model/kv_split.h"

#include "base/assert.h"

void qr_kv_split_of(struct qr_kv_split *out, const struct qr_model_config *c)
{
    int32_t n_windowed = 0, n_in[1 + QR_TWINS_MAX] = {0};
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(c->n_layers >= 1 && c->n_layers <= QR_LAYERS_MAX);
    for (int32_t l = 0; l < c->n_layers; l++)
        n_windowed += qr_layer_window(c, l) > 0;
    const int32_t n_full = c->n_layers - n_windowed, nearest = n_full > 0 && n_windowed >= n_full ? (2 * n_windowed + n_full) / (2 * n_full) : 0;
    *out = (struct qr_kv_split){0};
    out->n_twins = nearest < QR_TWINS_MAX ? nearest : QR_TWINS_MAX;
    out->n_layers = (c->n_layers + out->n_twins) / (1 + out->n_twins);
    if (out->n_twins > 0 && out->n_layers < n_full)
        out->n_layers = n_full;
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t part = qr_layer_window(c, l) > 0 && out->n_twins > 0;
        while (part > 0 && n_in[part] == out->n_layers)
            part = part < out->n_twins ? part + 1 : 0; /* the few that are too many for twins are kept whole */
        out->of[l].part = (int16_t)part;
        out->of[l].layer = (int16_t)n_in[part]++;
    }
    QR_ASSERT(n_in[0] <= out->n_layers);
}
