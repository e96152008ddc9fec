/* events.h - what the prefix cache holds, told to routers over ZeroMQ in vLLM's format: blocks stored, removed, all cleared.
 *
 * A thread of its own packs and publishes; the engine thread only copies notes into a ring, and a subscriber that is slow or absent costs it nothing. libzmq
 * is opened when events are wanted (zmq_door.h). A message has three frames: topic, sequence number (8 bytes, big-endian), msgpack of [time, events, rank].
 * The last batches are kept for the replay socket. When notes were lost, a clear is published in their place. Events carry token ids, which are prompts.
 *
 * A batch is of one kind: what is of the model alone and in the first tier, or what is not (an adapter's, the second tier's). Some routers know the first kind
 * only, and refuse a batch for one event that they do not know. */
#ifndef QR_EXCHANGE_EVENTS_H
#define QR_EXCHANGE_EVENTS_H

#include "base/err.h"
#include "kvcache/kv_name.h"

struct qr_events; /* opaque */

struct qr_events_config {
    const char *endpoint;        /* borrowed: of the PUB socket, bound; tcp://127.0.0.1:5557, ipc:///PATH, tcp://0.0.0.0:5557 */
    const char *replay;          /* borrowed: of the ROUTER socket, bound; NULL: none */
    const char *topic;           /* borrowed while opening: ""; llm-d wants "kv@ADDRESS@MODEL". vllm-router takes no batch with another than it was told */
    bool maps;                   /* tagged maps, as vLLM since 0.29 and vllm-router; false: positional arrays, as before */
    int32_t block_tokens;
    int32_t n_notes;             /* room of the ring between engine and thread */
};

/* Whether the endpoints are some, without opening anything: QR_E_USAGE. */
int qr_events_check(const char *endpoint, const char *replay, struct qr_err *err);

/* Binds and starts the thread. QR_E_USAGE for endpoints, QR_E_UNSUPPORTED without libzmq (and what to install), QR_E_BIND. */
int qr_events_open(struct qr_events **out, const struct qr_events_config *config, struct qr_err *err);
void qr_events_close(struct qr_events *v); /* publishes what was noted and flushed. NULL is fine */

/* Engine thread: the note and its ids are copied. adapter: its name; NULL: none. Never waits, never allocates. */
void qr_events_note(struct qr_events *v, const struct qr_kv_note *note, const char *adapter);
void qr_events_flush(struct qr_events *v); /* the step is over: what was noted is one batch */

struct qr_events_stats {
    int64_t n_batches, n_events, n_lost; /* lost: notes, for want of room in the ring */
};
void qr_events_stats(const struct qr_events *v, struct qr_events_stats *out); /* any thread */

/* For tests: where the sockets are bound, when the system chose ports. */
const char *qr_events_endpoint(const struct qr_events *v, bool replay);

#endif
