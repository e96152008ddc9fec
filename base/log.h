/* log.h - one line per fact on stderr: `2026-11-21T10:00:00.123Z info server listening addr=127.0.0.1:8000`. Any thread
 * may log; a line is one write(2). A thread that logs does not wait for a reader that stands still: lines are lost
 * then, and their number is logged later. A line is UTF-8: text that is cut is cut behind a character, and bytes that
 * are none become U+FFFD. Request content is never logged. stdout belongs to results. */
#ifndef QR_BASE_LOG_H
#define QR_BASE_LOG_H

#include <stdbool.h>

enum qr_log_level { QR_LOG_ERROR, QR_LOG_WARN, QR_LOG_INFO, QR_LOG_DEBUG };

/* Stands before every module from now on, as "prefill/server": for processes that share a log. name: static. Before there are threads. */
void qr_log_set_process(const char *name);

void qr_log_set_level(enum qr_log_level level);
bool qr_log_on(enum qr_log_level level);
void qr_log(enum qr_log_level level, const char *module, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* One that ends in `key="text"`: text from elsewhere, in which quotes and backslashes get a backslash; what does not fit is cut, inside of the quotes. */
void qr_log_text(enum qr_log_level level, const char *module, const char *fact, const char *key, const char *text);

#endif
