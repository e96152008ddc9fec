/* open_model.h - everything that reads of a model, as `quire check` and a server do, for targets that make model files of their input. */
#ifndef QR_TESTS_FUZZ_OPEN_MODEL_H
#define QR_TESTS_FUZZ_OPEN_MODEL_H

#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "loader/check/check.h"
#include "loader/config/hf_config.h"
#include "loader/stores/tensor_files.h"
#include "model/model.h"
#include "tokenizer/chat.h"

#define DECODED_MAX (1 << 20) /* numbers of one tensor */

/* The first and the last row of each tensor, as they are stored and as numbers. */
static inline void open_tensors(struct qr_source *source)
{
    struct qr_tensor_files *st;
    struct qr_model_config c;
    struct qr_err err = {0};
    const bool has = qr_model_config_from(&c, source, &err) == 0;
    if (qr_tensor_files_open_from(&st, source, has ? &c.quant : NULL, &err) != 0)
        return;
    for (int32_t i = 0; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *s = qr_tensor_files_at(st, i), *t = qr_tensor_files_find(st, s->name);
        QR_ASSERT(s->n_bytes == 0 || qr_tensor_files_data(st, s) != NULL);
        if (!t || !t->type->computable || t->n_dims < 1 || t->n_dims > 2 || t->shape[0] < 1)
            continue;
        const int64_t n_columns = t->n_dims == 2 ? t->shape[1] : 1;
        if (n_columns < 1 || n_columns > DECODED_MAX)
            continue;
        float *row = qr_alloc((size_t)n_columns, sizeof *row);
        qr_tensor_files_decode(st, t, row, 0, 1);
        qr_tensor_files_decode(st, t, row, t->shape[0] - 1, 1);
        qr_free(row);
    }
    qr_tensor_files_close(st);
}

static inline void open_tokens(struct qr_source *source, struct qr_check_tokenizer *found)
{
    struct qr_tokenizer *tokenizer = NULL;
    struct qr_chat *chat = NULL;
    struct qr_err err = {0};
    if (qr_tokenizer_open_from(&tokenizer, source, &err) == 0) {
        found->n_ids = qr_tokenizer_vocab_size(tokenizer);
        qr_tokenizer_close(tokenizer);
    } else {
        QR_ASSERT(err.msg[0] != 0);
    }
    if (qr_chat_open_from(&chat, source, &found->err) != 0)
        QR_ASSERT(found->err.msg[0] != 0);
    qr_chat_close(chat);
}

static inline int open_weights(const char *path, struct qr_err *err)
{
    const struct qr_backend_options bo = {.device = "cpu", .isa = "ref", .n_threads = 1, .step_rows_max = 8};
    const struct qr_model_options o = {.compute = QR_COMPUTE_AUTO, .embeds = true};
    struct qr_backend *be;
    struct qr_model *m;
    int rc = qr_backend_open(&be, &bo, err);
    QR_ASSERT(rc == 0);
    rc = qr_model_open(&m, path, be, &o, err);
    if (rc == 0)
        qr_model_close(m);
    qr_backend_close(be);
    return rc;
}

/* `path`: a directory or a file, of few bytes. What check says is what opening does. With QUIRE_FUZZ_MS an input that takes longer is a finding. */
static inline void open_model(const char *path)
{
    const struct qr_check_options how[] = {{.all = true, .hash = true}, {.json = true}};
    const int64_t began = qr_clock_us();
    struct qr_source *source;
    struct qr_check_tokenizer tokens = {0};
    struct qr_err err = {0}, model_err = {0};
    int check_rc = 0;
    qr_log_set_level(QR_LOG_ERROR);
    if (qr_source_open(&source, path, &err) == 0) {
        open_tokens(source, &tokens);
        open_tensors(source);
        qr_source_unref(source);
    }
    for (int i = 0; i < QR_COUNT(how); i++) {
        struct qr_buf text = {0};
        check_rc = qr_model_check(&text, path, &how[i], &err);
        QR_ASSERT(text.len > 0 && (check_rc == 0 || (err.msg[0] != 0 && err.code == (enum qr_code)check_rc)));
        qr_buf_release(&text);
    }
    const int model_rc = open_weights(path, &model_err);
    if ((check_rc == 0) != (model_rc == 0))
        qr_panic("check says %d (%s), opening %d (%s)", check_rc, err.msg, model_rc, model_err.msg);
    const int64_t ms = (qr_clock_us() - began) / 1000;
    if (getenv("QUIRE_FUZZ_MS") && ms > atoll(getenv("QUIRE_FUZZ_MS")))
        qr_panic("took %lld ms: %s", (long long)ms, model_rc ? model_err.msg : "opened");
}

#endif
