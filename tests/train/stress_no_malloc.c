/* A training step after the tape was opened allocates nothing, under any policy: every allocation of any thread is counted while two steps run. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "loader/write/make_model.h"
#include "train/optim.h"
#include "train/tape.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    printf("SKIP stress_no_malloc: the sanitizer owns malloc\n0 passed, 0 failed, 1 skipped\n");
    return 0;
}
#else
#include "tests/count_mallocs.h"

static bool steps(struct qr_backend *be, struct qr_params *p, enum qr_recompute recompute)
{
    enum { N = 33 };
    const struct qr_tape_options o = {.recompute = recompute, .n_tokens_max = 2 * N, .n_seqs_max = 2};
    const struct qr_optim_config oc = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip = 1};
    struct qr_train_batch b;
    struct qr_optim optim;
    struct qr_tape *t;
    struct qr_err err = {0};
    double norm;
    int32_t ids[N];
    for (int32_t i = 0; i < N; i++)
        ids[i] = i * 7 % p->config.n_vocab;
    if (qr_tape_open(&t, p, &o, &err) != 0)
        return false;
    qr_optim_init(&optim, p, &oc);
    qr_train_batch_init(&b, 2 * N, 2);
    atomic_store(&n_calls, 0);
    atomic_store(&counting, true);
    int rc = 0;
    for (int step = 0; step < 2 && !rc; step++) {
        qr_train_batch_clear(&b);
        qr_train_batch_add(&b, ids, N, NULL);
        qr_train_batch_add(&b, ids, N - step, NULL);
        qr_tape_loss(t, &b, 1.0f / (float)b.b.n_logits, NULL);
        rc = qr_tape_backward(t, &err);
        rc = rc ? rc : qr_optim_step(&optim, 1e-3, &norm, &err);
    }
    atomic_store(&counting, false);
    printf("policy %d: %ld allocations in two steps\n", (int)recompute, (long)atomic_load(&n_calls));
    qr_train_batch_release(&b);
    qr_optim_release(&optim);
    qr_tape_close(t);
    return rc == 0 && atomic_load(&n_calls) == 0;
}

int main(void)
{
    const struct qr_backend_options bo = {.n_threads = 2};
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3);
    struct qr_backend *be;
    struct qr_params *p;
    struct qr_err err = {0};
    int passed = 0;
    if (qr_backend_open(&be, &bo, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    qr_params_init(&p, &c, be, QR_BF16, 0.02, 1);
    for (int policy = QR_RECOMPUTE_NONE; policy <= QR_RECOMPUTE_FULL; policy++)
        passed += steps(be, p, policy);
    qr_params_close(p);
    qr_backend_close(be);
    printf("%d passed, %d failed\n", passed, 3 - passed);
    return passed == 3 ? 0 : 1;
}
#endif
