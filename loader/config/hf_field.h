/* hf_field.h - inside loader/ only: typed fields out of a JSON object, and into one. A field that is absent
 * or null leaves *out as it was; a field of the wrong type or outside its bounds is an error that names file, field, value and bound.
 */
#ifndef QR_LOADER_CONFIG_HF_FIELD_H
#define QR_LOADER_CONFIG_HF_FIELD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/sampling.h"

struct qr_hf_obj {
    const struct qr_json *v; /* borrowed, an object */
    const char *file;        /* "config.json" */
    const char *prefix;      /* "rope_scaling." or "" */
    struct qr_err *err;
};

int qr_hf_i32(const struct qr_hf_obj *o, const char *key, int32_t min, int32_t max, int32_t *out);
int qr_hf_f64(const struct qr_hf_obj *o, const char *key, double min, double max, double *out);
int qr_hf_sampling(const struct qr_hf_obj *o, struct qr_sampling_default gen[QR_P_N]); /* of generation_config.json */
int qr_hf_f32(const struct qr_hf_obj *o, const char *key, double min, double max, float *out);
int qr_hf_bool(const struct qr_hf_obj *o, const char *key, bool *out);
int qr_hf_str(const struct qr_hf_obj *o, const char *key, const char **out); /* borrowed from the document */

/* The same for a field that must be there. */
int qr_hf_need_i32(const struct qr_hf_obj *o, const char *key, int32_t min, int32_t max, int32_t *out);
int qr_hf_need_f64(const struct qr_hf_obj *o, const char *key, double min, double max, double *out);

/* A switch that must be off, or on, to be computed here: QR_E_UNSUPPORTED where it is `refused`. */
int qr_hf_refuse_if(const struct qr_hf_obj *o, const char *key, bool refused);

/* Appends a field, of numbers only what is not 0. */
void qr_hf_write_f32(struct qr_buf *out, const char *key, float value);
void qr_hf_write_f64(struct qr_buf *out, const char *key, double value);
void qr_hf_write_bool(struct qr_buf *out, const char *key, bool value);

int qr_hf_wrong_type(const struct qr_hf_obj *o, const char *key, const struct qr_json *v, const char *expected);

/* "config.json: eos_token_id is 99999, expected token ids from 0 to 511". */
int qr_hf_bad_value(const struct qr_hf_obj *o, const char *key, const struct qr_json *v, const char *expected, int64_t bound);

#endif
