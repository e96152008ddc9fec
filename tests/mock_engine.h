/* mock_engine.h - the functions of engine/engine.h without a model: scripted tokens at a given rate. For tests of the server.
 *
 * Choice c of any request gets the script's tokens from position 13*c on, over and over. Seeds steer what the real engine would
 * decide for itself: 1000+n ends the text after n tokens with the end id, 666 fails after 3 tokens, 667 fails before the first,
 * 668 stops the whole engine for 1.5 s after 3 tokens; 500000+k says script k once, and 669 the shortest text that the request's grammar takes, and then
 * each ends. Special tokens in a script are such tokens. A token that the request's grammar does not take fails the request, and so does an end
 * where it takes none: what the server made of the request is seen in that.
 * Number i of an embedding is the prompt's length, plus 1 when its id at i (over and over) is i modulo MOCK_EMBD.
 */
#ifndef QR_TESTS_MOCK_ENGINE_H
#define QR_TESTS_MOCK_ENGINE_H

#include "engine/engine.h"

#define MOCK_SEED_ERROR 666
#define MOCK_SEED_ERROR_AT_ONCE 667
#define MOCK_SEED_FREEZE 668
#define MOCK_SEED_SHORTEST 669
#define MOCK_SEED_LATE 670 /* to 672: not begun, for each of the reasons from QR_LATE_REFUSED on; to be tried again after 6.5 s */
#define MOCK_SEED_PEER 673 /* its cached tokens are the peer's number, plus 1, and 100 more where that expects the prompt */
#define MOCK_SEED_END 1000
#define MOCK_SEED_SAY 500000
#define MOCK_EMBD 8 /* numbers of an embedding */

struct mock_options {
    double rate;            /* events per second and choice; 0: as fast as they are taken */
    int32_t event_tokens;   /* tokens per event, 1 .. QR_EVENT_TOKENS */
    int32_t running_max, waiting_max, ctx_max, n_events;
    int32_t n_blocks;       /* of a cache that is there in looks only, at most QR_LOOK_CELLS_MAX */
    int64_t prefill_us;     /* before the first token */
    bool deaf;              /* it does not listen for peers; else at 127.0.0.1:7000. Peers are 127.0.0.1:7001, [::1]:7001, unix:/run/peer */
    struct qr_str_list scripts; /* what it says; empty: something */
};
void mock_options_init(struct mock_options *o);

int mock_engine_open(struct qr_engine **out, const struct mock_options *options, const struct qr_tokenizer *tokenizer,
                     void (*wake)(void *), void *wake_arg, struct qr_err *err);

/* Of mock_outside.c: the enum qr_side, and whether it was asked not to listen. */
_Atomic int *mock_engine_role(struct qr_engine *e);
bool mock_engine_is_deaf(const struct qr_engine *e);

#endif
