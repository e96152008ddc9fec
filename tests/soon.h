/* soon.h - how long something that is promised "within so long" may take in a test. A machine that runs other things may stop a test for a second, so that
 * by default ten times as much passes: that still tells an answer from a wait that never ends. With QUIRE_TEST_TIMING=1, on a machine that does nothing
 * else, the promise itself is asked for.
 */
#ifndef QR_TESTS_SOON_H
#define QR_TESTS_SOON_H

#include <stdint.h>
#include <stdlib.h>

#define TEST_SOON_US(us) ((int64_t)(us) * (getenv("QUIRE_TEST_TIMING") ? 1 : 10))

#endif
