/* trace.h - recorded arrivals and lengths, for the simulator and the load generator.
 *
 * Read: CSV with a header line that names the columns (Azure: TIMESTAMP, ContextTokens, GeneratedTokens; summarisation lengths:
 * num_prefill_tokens, num_decode_tokens, no times), and JSON lines (Mooncake: timestamp in ms, input_length, output_length,
 * hash_ids: one id per 512 prompt tokens, equal ids meaning equal tokens up to there). Files come from outside: everything is bounded.
 */
#ifndef QR_BENCH_TRACE_H
#define QR_BENCH_TRACE_H

#include <stdint.h>

#include "base/err.h"

struct qr_trace_entry {
    int64_t arrival_us;         /* since the first entry; never decreasing; 0 throughout when the file has no times */
    int32_t n_prompt, n_new;    /* tokens, >= 1 each */
    int32_t first_hash, n_hashes; /* hash_ids: trace.hashes[first_hash ..); n_hashes 0 when the file has none */
};

struct qr_trace {
    struct qr_trace_entry *entry; /* owned [n] */
    int32_t n;
    int32_t *hashes;              /* owned [n_hashes] */
    int32_t n_hashes;
    int32_t hash_tokens;          /* prompt tokens one hash id stands for: 512 */
};

/* Reads at most n_max entries. Errors: QR_E_NOT_FOUND, QR_E_IO, QR_E_TOO_LARGE, QR_E_DAMAGED with path and line. */
int qr_trace_read(struct qr_trace *out, const char *path, int32_t n_max, struct qr_err *err);
void qr_trace_release(struct qr_trace *t);

/* The prompt's tokens, in [0, vocab): token j of hash block h is a function of (h, j), so that equal ids give equal prefixes. Without
 * hashes a function of (entry, j): no two prompts share anything. Writes n_prompt tokens. */
void qr_trace_prompt(const struct qr_trace *t, int32_t entry, int32_t *tokens, int32_t vocab);

#endif
