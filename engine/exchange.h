/* exchange.h - blocks that come from, and go to, peers and a file tier (exchange/). Part of what engine.h shows; any thread may call what stands here.
 *
 * A request whose prompt has full blocks that are not here is held until the file tier and a peer have brought what they have, as far as that is predicted to
 * take less time than computing it. What comes is cached as if it had been computed here, and nothing else follows from it: the request finds it when it
 * begins. It is held no longer than the time that computing what came would have taken, and half a second. A process whose role is to decode, or that a
 * router has told of a peer, waits on while that peer says that it computes the blocks.
 */
#ifndef QR_ENGINE_EXCHANGE_H
#define QR_ENGINE_EXCHANGE_H

#include "engine/engine.h"
#include "exchange/events.h"
#include "exchange/file_tier.h"

/* Before anything is opened: whether blocks can come from elsewhere as `c` says, with n_ranks ranks. QR_E_USAGE names the flags. */
int qr_engine_check_outside(const struct qr_engine_config *c, int32_t n_ranks, struct qr_err *err);

/* Memory for names, and for blocks on their way, of blocks of block_bytes; 0 where there are none. */
int64_t qr_engine_outside_bytes(const struct qr_engine_config *c, const struct qr_engine_limits *l, int64_t block_bytes);

/* What this process does first, a hint that may change at any time. DECODE: prompts are asked of peers, which compute what they do not have.
 * PREFILL: prompts have whole steps, so that they are there one after another. */
enum qr_side { QR_ROLE_BOTH, QR_ROLE_PREFILL, QR_ROLE_DECODE };
enum qr_side qr_engine_role(const struct qr_engine *e);
void qr_engine_set_role(struct qr_engine *e, enum qr_side role);

int32_t qr_engine_peer(const struct qr_engine *e, const char *address); /* for qr_request.peer; -1: none has this address */
const char *qr_engine_peer_address(const struct qr_engine *e);          /* where this process listens for peers; NULL: it does not */

/* False, and zeros: there is no such part. */
bool qr_engine_exchange_stats(const struct qr_engine *e, struct qr_exchange_stats *out);
bool qr_engine_file_stats(const struct qr_engine *e, struct qr_file_tier_stats *out);
bool qr_engine_events_stats(const struct qr_engine *e, struct qr_events_stats *out);

#endif
