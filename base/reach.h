/* reach.h - the address at which other processes reach a listener of this one. Any thread. */
#ifndef QR_BASE_REACH_H
#define QR_BASE_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define QR_REACH_TEXT 64 /* room for an IPv6 address in brackets, and a port */

/* "10.0.0.7:8000" or "[fd00::7]:8000", numeric: of a socket that is bound to `bound`. Where that means every address it is the machine's first that is not a
 * loopback's or a link's; 127.0.0.1 where there is none. */
void qr_reach(char out[QR_REACH_TEXT], const struct sockaddr *bound);

/* The numeric address and port of sa; false: it is neither IPv4 nor IPv6, and out is "". */
bool qr_reach_text(char out[QR_REACH_TEXT], const struct sockaddr *sa);

#endif
