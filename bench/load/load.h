/* load.h - `quire bench load`: drives any OpenAI-compatible server over HTTP and says how fast it answered.
 *
 * Closed loop (N users, each asks again when its answer is complete), open loop (Poisson or gamma arrivals at a rate) or a recorded
 * trace. A request's clock starts when it should have been sent, so that a server that makes clients wait cannot hide it
 * (coordinated omission); the figures from the actual send stand beside. One thread, one event loop.
 */
#ifndef QR_BENCH_LOAD_LOAD_H
#define QR_BENCH_LOAD_LOAD_H

#include "base/command.h"

/* Exit status: 0 measured; 1 no request succeeded, or the server refused the set-up; 2
 * usage; 3 no connection; 4 no such model or trace file, or a file could not be written; 6 a --fail-if condition holds; 130 stopped by
 * Ctrl-C (what was measured until then is printed). */
extern const struct qr_command qr_bench_load_command;

#endif
