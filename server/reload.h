/* reload.h - what a server reads again while it serves, when SIGHUP or qr_server_reload says so. Loop thread; files are read on libuv's pool. */
#ifndef QR_SERVER_RELOAD_H
#define QR_SERVER_RELOAD_H

#include <stdbool.h>

#include "server/http_server.h"
#include "server/keys.h"

struct qr_server;
struct qr_server_config;

struct qr_reload {
    struct qr_http_job *job; /* owned */
    bool running, again;     /* it is on the pool; what it reads has to be read once more */
    struct qr_keys *keys;    /* owned: what was read; NULL: err says why not */
    struct qr_err err;
};

void qr_reload_open(struct qr_server *s);
void qr_reload_close(struct qr_server *s);

/* The keys of a configuration; kind: of its files. */
int qr_reload_keys(struct qr_keys **out, const struct qr_server_config *config, enum qr_file_kind kind, struct qr_err *err);

#endif
