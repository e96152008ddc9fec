/* queue.h - how many prompt tokens wait, and when it is worth asking again: from what the engine counts and what was handed to it since. Loop thread. */
#ifndef QR_SERVER_QUEUE_H
#define QR_SERVER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct qr_request;
struct qr_server;
struct qr_api_error;

/* Whether a request with prompts of n_tokens may wait behind those that do (--max-waiting-tokens); where none waits, any may. False: *e says why not. */
bool qr_queue_admits(struct qr_server *s, int64_t n_tokens, struct qr_api_error *e);

/* Whole seconds, at least one, after which so many prompt tokens fewer wait, as fast as the engine computed them lately. */
int32_t qr_queue_wait_s(struct qr_server *s, int64_t n_tokens);

/* Whole seconds, at least one, after which one of those inside will have ended: their work, as it is estimated, over their number. */
int32_t qr_queue_place_s(struct qr_server *s);

/* Prompt tokens that wait. */
int64_t qr_queue_tokens(struct qr_server *s);

/* What the client of a request hears that was not begun (enum qr_late). */
void qr_queue_late(struct qr_server *s, const struct qr_request *r, struct qr_api_error *e);

#endif
