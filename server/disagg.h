/* disagg.h - what routers of other engines say of prefill and decode apart: vLLM's kv_transfer_params, with llm-d's in it, SGLang's bootstrap_*, and llm-d's
 * header. To this server they only say which peer to ask for blocks. What they say of places (numbers of blocks, rooms) means nothing, as blocks have names.
 * A member of theirs is read or refused by name. An address that is not one of --peer, and an engine that is none of ours, is counted and not asked.
 *
 * Reading is pure, and finding the peer is for libuv's pool: both in the call's account. */
#ifndef QR_SERVER_DISAGG_H
#define QR_SERVER_DISAGG_H

#include "server/http_parser.h"
#include "server/openai.h"

struct qr_call;
struct qr_server;

#define QR_KV_TRANSFER_PARAMS "kv_transfer_params"
#define QR_ENGINE_ID "quire-" /* what ids of engines begin with, of which this one is ours */
#define QR_PORT_MAX 65535

/* kv_transfer_params, and the three fields of SGLang. */
qr_field_reader qr_read_kv_transfer_params, qr_read_bootstrap_host, qr_read_bootstrap_port, qr_read_bootstrap_room;

/* Once all fields are read, what they mean together. */
int qr_disagg_settle(struct qr_params *p, struct qr_err *err);

/* "HOST:PORT" or "unix:PATH" of a host (with an address of IPv6 bare or in brackets) and a port; false: it is too long, or lacks the port. */
bool qr_disagg_address(char *out, size_t size, const char *host, int64_t port);

/* The opposite, of a configured address: *port is 0 where it has none. */
void qr_disagg_split(char *host, size_t size, int32_t *port, const char *address);

/* The peer that the call's fields, else its header, name. On the side that computes prompts, by its role or by its address, SGLang's fields cut the answer.
 * False: call->error is set. */
bool qr_disagg_find(struct qr_call *call);
void qr_disagg_header(struct qr_call *call, struct qr_span field); /* before that; loop thread */

/* Behind the usage of a whole answer: where its prompt's blocks are, for the router to tell the other side. */
void qr_disagg_put(struct qr_buf *out, const struct qr_call *call);

/* Of a server that is ready. What SGLang calls the mode: "null", "prefill", "decode"; and the port for peers, 0: there is none. */
const char *qr_disagg_mode(const struct qr_server *s);
int32_t qr_disagg_port(const struct qr_server *s);

#endif
