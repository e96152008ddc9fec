/* port_owner.h - who is listening on a TCP port of this machine, as far as /proc tells. For one error message. */
#ifndef QR_SERVER_PORT_OWNER_H
#define QR_SERVER_PORT_OWNER_H

#include <stddef.h>
#include <stdint.h>

/* Writes "pid 4711 (nginx)", or "" when it cannot be seen. */
void qr_port_owner(char *out, size_t size, int32_t port);

#endif
