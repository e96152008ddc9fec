/* exhausted.h - the end of a process that a limit keeps from starting: what a start needs of the machine, threads and
 * blocks of memory, is more than the system lets it have. Nothing is there yet that would have to be put in order.
 * Small blocks may be missing later, too (mem.h), when no thread can go on. */
#ifndef QR_BASE_EXHAUSTED_H
#define QR_BASE_EXHAUSTED_H

/* Prints a formatted line ("quire: no thread can be started for ...") to stderr and ends the process with status 5: it does not fit. */
_Noreturn void qr_exhausted(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
