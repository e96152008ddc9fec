/* config.h - all settings of a training run, from a YAML file and from NAME=VALUE pairs, checked.
 *
 * One table says names, types, defaults, ranges and help; the file, `--set`, the help text and the copy kept in checkpoints follow from it. Names with
 * dots are nested in the file. Errors name file and line (or the pair), the setting, what was found and what was expected. Plain data, one owner.
 */
#ifndef QR_TRAIN_CONFIG_H
#define QR_TRAIN_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/option.h"

struct qr_train_config {
    struct {
        const char *from;          /* a model directory to go on from; NULL: weights are drawn at random */
        const char *config;        /* the config.json of a model drawn at random; NULL with `from` */
        const char *tokenizer;     /* NULL: `from`, or where the data is */
        double std;
        struct qr_str_list freeze; /* beginnings of names of tensors that stay as they are */
    } model;
    struct {
        const char *train, *eval;  /* eval NULL: TRAIN/eval where that is there */
        int64_t sequence;
        bool shuffle;
    } data;
    struct {
        int64_t tokens, micro, sequences; /* of a micro-batch; micro-batches of a step; pieces of a micro-batch, 0: by the data's average */
        int64_t leaves;            /* of the tree that adds a step's gradients, 0: one for each rank */
    } batch;
    struct {
        int32_t shard;             /* enum qr_shard */
    } parallel;
    int64_t steps, seed; /* steps 0: as many as `epochs` are */
    double epochs;       /* 0: not set */
    struct {
        int32_t dtype, recompute;  /* 0: f32, 1: bf16; enum qr_recompute */
        int64_t threads;
        const char *device, *isa, *cpus;
        bool deterministic;
    } compute;
    struct {
        double lr, lr_last, beta1, beta2, eps, decay, clip;
        int32_t kind, schedule;    /* enum qr_optimizer, enum qr_schedule */
        double momentum;
        int64_t warmup;
    } optimizer;
    struct {
        const char *model;         /* NULL: none */
        double weight, temperature;
    } teacher;
    struct {
        int32_t type;              /* enum qr_quantize */
    } quantize;
    struct {
        int32_t kind;              /* enum qr_prune_kind */
        double fraction;
    } prune;
    struct {
        int64_t rank;              /* 0: no adapters */
        double alpha;
        struct qr_str_list targets; /* names of matrices; none: q_proj, k_proj, v_proj, o_proj */
    } lora;
    struct {
        int64_t every, tokens;
    } eval;
    struct {
        int64_t every, tokens, top_k;
        double temperature;
        struct qr_str_list prompts;
    } sample;
    struct {
        int64_t every, keep;
        const char *out, *final;   /* final NULL: OUT/final */
        bool best;
    } save;
    struct {
        int64_t every;
        bool plot_log;
    } log;
    struct qr_option_set *set;     /* owned: strings, and where each value came from */
};

/* file NULL: defaults and pairs alone. Release it in any case. */
int qr_train_config_load(struct qr_train_config *c, const char *file, const char *const *pairs, int32_t n_pairs, struct qr_err *err);
void qr_train_config_release(struct qr_train_config *c);

/* Where a setting's value came from, for messages: "run.yaml:3:8: data.train", "--set data.train", "data.train (built-in)". */
const char *qr_train_config_where(const struct qr_train_config *c, const char *name, char text[400]);

void qr_train_config_print(struct qr_buf *out, const struct qr_train_config *c); /* as a file that reads back the same */
void qr_train_config_help(struct qr_buf *out, int32_t columns);
const struct qr_option *qr_train_config_table(int32_t *n); /* its rows, static */

#endif
