/* assert.h - assertions that stay on in release builds.
 *
 * An assertion states what the program itself guarantees. It never guards input: what comes from outside is checked
 * at the edge and answered with a struct qr_err. A failed assertion prints where and what, then aborts.
 */
#ifndef QR_BASE_ASSERT_H
#define QR_BASE_ASSERT_H

#include <stddef.h>

#ifdef __cplusplus /* the CUDA kernels */
#define QR_NORETURN [[noreturn]]
extern "C" {
#else
#define QR_NORETURN _Noreturn
#endif

/* Prints one line to stderr and aborts. Async-signal-safe apart from the formatting of `line`. */
QR_NORETURN void qr_assert_failed(const char *file, int line, const char *what);

/* Prints a formatted line ("quire: out of memory: ...") to stderr and aborts: host memory gone, device lost. */
QR_NORETURN void qr_panic(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#define QR_ASSERT(cond) ((cond) ? (void)0 : qr_assert_failed(__FILE__, __LINE__, #cond))
#define QR_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#endif
