/* stress_store - threads that compile, keep, find and drop grammars at once: the store never holds more than its bound, and what is found is what was asked. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "answers/constraint.h"
#include "tests/answers/words.h"

#define N_THREADS 4
#define N_ROUNDS 400
#define N_KEYS 12 /* more than fit */

static struct words words;
static struct qr_grammar_store *store;
static size_t bytes_max;
static _Atomic int32_t n_found, n_made, n_busy;

static struct qr_grammar *make(const char *text)
{
    struct qr_grammar *g;
    struct qr_err err;
    const struct qr_constraint c = {.kind = QR_CONSTRAINT_CHOICE, .text = text, .len = strlen(text)};
    const int rc = qr_constraint_compile(&g, &c, words.vocab, &err);
    QR_ASSERT(rc == 0);
    return g;
}

static void *run(void *arg)
{
    unsigned seed = (unsigned)(size_t)arg;
    for (int i = 0; i < N_ROUNDS; i++) {
        char text[32];
        struct qr_err err;
        snprintf(text, sizeof text, "[\"key %d\"]", rand_r(&seed) % N_KEYS);
        struct qr_grammar *g = qr_grammar_store_find(store, text, strlen(text));
        if (g) {
            atomic_fetch_add(&n_found, 1);
        } else {
            g = make(text);
            atomic_fetch_add(&n_made, 1);
            if (qr_grammar_store_add(store, text, strlen(text), g, &err) != 0) {
                QR_ASSERT(err.code == QR_E_BUSY);
                atomic_fetch_add(&n_busy, 1);
            }
        }
        QR_ASSERT(qr_grammar_store_bytes(store) <= bytes_max);
        qr_grammar_unref(g);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[N_THREADS];
    words_make(&words, NULL);
    struct qr_grammar *one = make("[\"key 0\"]");
    bytes_max = 5 * qr_grammar_bytes(one);
    store = qr_grammar_store_new(bytes_max);
    qr_grammar_unref(one);
    for (size_t i = 0; i < N_THREADS; i++)
        pthread_create(&thread[i], NULL, run, (void *)(i + 1));
    for (size_t i = 0; i < N_THREADS; i++)
        pthread_join(thread[i], NULL);
    const bool good = n_found > 0 && n_found + n_made == N_THREADS * N_ROUNDS;
    printf("%d found, %d made, %d had no room\n", n_found, n_made, n_busy);
    qr_grammar_store_free(store);
    words_free(&words);
    printf("%d passed, %d failed\n", good, !good);
    return !good;
}
