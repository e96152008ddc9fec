#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/assert.h"
#include "base/log.h"
#include "exchange/conn.h"

enum {
    QUIET_US = 1000 * 1000,     /* refusals that come sooner after one that was logged are only counted */
    PAGE_BYTES_MAX = 64 << 10,
};

static void refuse(struct qr_conn *c, const char *why)
{
    struct qr_exchange *x = c->x;
    atomic_fetch_add(&x->n_refused, 1);
    if (!c->peer && x->now_us - x->refused_us >= QUIET_US) { /* a peer's is said when it is lost */
        qr_log_text(QR_LOG_WARN, "exchange", "a process that wanted blocks is refused", "why", why);
        x->refused_us = x->now_us;
    }
    qr_conn_break(c, why);
}

static void say_hello(struct qr_conn *c)
{
    const struct qr_exchange *x = c->x;
    const bool shares = !c->peer && x->shared >= 0 && c->wire->passes_memory;
    c->mine = (struct qr_frame_hello){.version = QR_FRAME_VERSION, .lends = !c->peer, .block_bytes = x->config.block_bytes, .domain = x->config.domain};
    c->mine.n_shared = shares ? x->out.n : 0;
    c->mine.stride = shares ? x->out.stride : 0;
    const ssize_t n = getrandom(c->mine.nonce, sizeof c->mine.nonce, 0);
    QR_ASSERT(n == (ssize_t)sizeof c->mine.nonce);
    qr_conn_say(c, &(struct qr_frame){.kind = QR_FRAME_HELLO, .hello = c->mine});
}

static void say_proof(struct qr_conn *c)
{
    struct qr_frame f = {.kind = QR_FRAME_PROOF};
    const struct qr_exchange *x = c->x;
    qr_frame_prove(f.proof, x->secret, x->config.n_secret, !c->peer, c->peer ? &c->mine : &c->theirs, c->peer ? &c->theirs : &c->mine);
    qr_conn_say(c, &f);
}

/* NULL: this side and the other one may exchange blocks. */
static const char *why_not(const struct qr_conn *c)
{
    const struct qr_frame_hello *h = &c->theirs;
    if (h->lends == !c->peer)
        return "it is no peer, or this process itself";
    if (h->version != QR_FRAME_VERSION)
        return "it speaks another version of the protocol";
    if (memcmp(&h->domain, &c->mine.domain, sizeof h->domain) != 0 || h->block_bytes != c->mine.block_bytes)
        return "it has another model, or the same with other formats, sizes or instructions";
    if (h->n_shared > 0 && (!c->peer || !c->wire->passes_memory || h->stride - h->block_bytes > PAGE_BYTES_MAX))
        return "it wants to share memory, which cannot be done here";
    return NULL;
}

void qr_hello_begin(struct qr_conn *c)
{
    QR_ASSERT(c != NULL && c->peer != NULL);
    QR_ASSERT(c->stage == QR_CONN_CONNECTING);
    c->stage = QR_CONN_HELLO;
    say_hello(c);
}

void qr_hello_hello(struct qr_conn *c, const struct qr_frame *f)
{
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(c->stage == QR_CONN_HELLO);
    c->theirs = f->hello;
    if (!c->peer)
        say_hello(c);
    const char *why = why_not(c);
    if (why) {
        qr_conn_write(c); /* so that the other side finds out, too */
        refuse(c, why);
        return;
    }
    c->stage = QR_CONN_PROOF;
    if (c->peer)
        say_proof(c);
}

/* Maps what came with the proof, if it is memory that holds what the hello says and cannot become shorter: a read of a mapping must never be a fault. Huge
 * pages are refused for the same reason, as there may be none left when one is read first. */
static bool map_memory(struct qr_conn *c)
{
    struct stat st;
    struct statfs fs;
    const size_t n_bytes = (size_t)c->theirs.n_shared * c->theirs.stride;
    const int seals = c->memory >= 0 ? fcntl(c->memory, F_GET_SEALS) : -1;
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(c->memory, &st) != 0 || (uint64_t)st.st_size < n_bytes)
        return false;
    if (fstatfs(c->memory, &fs) != 0 || fs.f_type != TMPFS_MAGIC)
        return false;
    void *at = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, c->memory, 0);
    c->window = at == MAP_FAILED ? NULL : at;
    return c->window != NULL;
}

void qr_hello_proof(struct qr_conn *c, const struct qr_frame *f)
{
    uint8_t right[QR_SHA256_BYTES];
    QR_ASSERT(c != NULL && f != NULL);
    QR_ASSERT(c->stage == QR_CONN_PROOF);
    const struct qr_exchange *x = c->x;
    qr_frame_prove(right, x->secret, x->config.n_secret, c->peer != NULL, c->peer ? &c->mine : &c->theirs, c->peer ? &c->theirs : &c->mine);
    if (!qr_same_digest(right, f->proof)) {
        refuse(c, "it does not know the secret");
        return;
    }
    if (c->theirs.n_shared > 0 && !map_memory(c)) {
        refuse(c, "the memory that it shares is not as it says");
        return;
    }
    c->stage = QR_CONN_OPEN;
    if (c->peer) {
        qr_peer_connected(c->peer);
        return;
    }
    say_proof(c);
    c->pass_memory = c->mine.n_shared > 0;
}
