/* tls.c - libssl between two buffers. libssl sees no socket: it reads from one memory BIO and writes to another, which are emptied at once, so
 * that http_conn.c alone knows of libuv, time limits and slow readers. A certificate that is read again is a new SSL_CTX; connections that
 * have begun keep the one they began with. Loop thread. */
#include "server/tls.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/library.h"
#include "base/mem.h"

#define LIBRARY "libssl.so.3"
#define PIECE_BYTES 16384 /* a record's most */

struct libssl {
    const SSL_METHOD *(*method)(void);
    SSL_CTX *(*ctx_new)(const SSL_METHOD *m);
    void (*ctx_free)(SSL_CTX *x);
    long (*ctx_ctrl)(SSL_CTX *x, int what, long n, void *p);
    uint64_t (*ctx_options)(SSL_CTX *x, uint64_t options);
    void (*ctx_password)(SSL_CTX *x, pem_password_cb *cb);
    void (*ctx_alpn)(SSL_CTX *x, SSL_CTX_alpn_select_cb_func cb, void *arg);
    int (*ctx_chain)(SSL_CTX *x, const char *file);
    int (*ctx_key)(SSL_CTX *x, const char *file, int type);
    int (*ctx_check)(const SSL_CTX *x);
    SSL *(*new)(SSL_CTX *x);
    void (*free)(SSL *s);
    void (*accept)(SSL *s);
    void (*set_bio)(SSL *s, BIO *in, BIO *out);
    int (*handshake)(SSL *s);
    int (*finished)(const SSL *s);
    int (*read)(SSL *s, void *to, int n);
    int (*write)(SSL *s, const void *from, int n);
    int (*shutdown)(SSL *s);
    int (*error)(const SSL *s, int rc);
};

struct qr_tls {
    struct libssl lib;
    SSL_CTX *ctx;                     /* owned, counted: connections have it, too */
    const char *cert_file, *key_file; /* borrowed */
};

struct qr_tls_conn {
    const struct libssl *lib; /* borrowed */
    SSL *ssl;                 /* owned, with both BIOs */
    BIO *in, *out;            /* borrowed from ssl */
};

static const struct qr_library_symbol symbols[] = {
    {offsetof(struct libssl, method), "TLS_server_method"},
    {offsetof(struct libssl, ctx_new), "SSL_CTX_new"},
    {offsetof(struct libssl, ctx_free), "SSL_CTX_free"},
    {offsetof(struct libssl, ctx_ctrl), "SSL_CTX_ctrl"},
    {offsetof(struct libssl, ctx_options), "SSL_CTX_set_options"},
    {offsetof(struct libssl, ctx_password), "SSL_CTX_set_default_passwd_cb"},
    {offsetof(struct libssl, ctx_alpn), "SSL_CTX_set_alpn_select_cb"},
    {offsetof(struct libssl, ctx_chain), "SSL_CTX_use_certificate_chain_file"},
    {offsetof(struct libssl, ctx_key), "SSL_CTX_use_PrivateKey_file"},
    {offsetof(struct libssl, ctx_check), "SSL_CTX_check_private_key"},
    {offsetof(struct libssl, new), "SSL_new"},
    {offsetof(struct libssl, free), "SSL_free"},
    {offsetof(struct libssl, accept), "SSL_set_accept_state"},
    {offsetof(struct libssl, set_bio), "SSL_set_bio"},
    {offsetof(struct libssl, handshake), "SSL_do_handshake"},
    {offsetof(struct libssl, finished), "SSL_is_init_finished"},
    {offsetof(struct libssl, read), "SSL_read"},
    {offsetof(struct libssl, write), "SSL_write"},
    {offsetof(struct libssl, shutdown), "SSL_shutdown"},
    {offsetof(struct libssl, error), "SSL_get_error"},
};

static int open_library(struct libssl *lib, struct qr_err *err)
{
    const char *missing = qr_library_load(lib, LIBRARY, symbols, QR_COUNT(symbols));
    return missing ? qr_err_set(err, QR_E_UNSUPPORTED, "--tls-cert needs " LIBRARY " of OpenSSL 3, which cannot be used (%.200s); install it "
                                "(apt-get install libssl3)", missing) : 0;
}

/* A key with a password: nothing here could ask for it. */
static int no_password(char *to, int size, int writing, void *arg)
{
    return -1;
}

/* A client that offers protocols and not ours is refused; one that offers none speaks HTTP/1.1. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *n_out, const unsigned char *in, unsigned n_in, void *arg)
{
    static const char http[] = "http/1.1";
    for (unsigned i = 0; i < n_in && in[i] <= n_in - i - 1; i += 1u + in[i])
        if (in[i] == sizeof http - 1 && memcmp(in + i + 1, http, sizeof http - 1) == 0) {
            *out = in + i + 1;
            *n_out = in[i];
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* What libcrypto says of the last failure, the cause first. */
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());
    ERR_clear_error();
    return text ? text : "it is no PEM";
}

static int bad_file(struct qr_err *err, const char *option, const char *file, const char *what)
{
    if (access(file, R_OK) != 0)
        return qr_err_set(err, QR_E_NOT_FOUND, "%s: cannot read '%.200s': %s", option, file, strerror(errno));
    return qr_err_set(err, QR_E_DAMAGED, "%s: '%.200s' %s (%s)", option, file, what, reason());
}

static int make_context(const struct qr_tls *t, SSL_CTX **out, struct qr_err *err)
{
    const struct libssl *lib = &t->lib;
    const char *key = t->key_file ? t->key_file : t->cert_file;
    SSL_CTX *x = lib->ctx_new(lib->method());
    if (!x)
        return qr_err_set(err, QR_E_NO_ROOM, "libssl has no memory for a context");
    lib->ctx_ctrl(x, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
    lib->ctx_ctrl(x, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL); /* tickets serve, and take no memory here */
    lib->ctx_ctrl(x, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL);
    lib->ctx_options(x, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    lib->ctx_password(x, no_password);
    lib->ctx_alpn(x, choose_protocol, NULL);
    ERR_clear_error();
    int rc = 0;
    if (lib->ctx_chain(x, t->cert_file) != 1)
        rc = bad_file(err, "--tls-cert", t->cert_file, "has no certificate in PEM");
    else if (lib->ctx_key(x, key, SSL_FILETYPE_PEM) != 1)
        rc = bad_file(err, "--tls-key", key, "has no private key in PEM that needs no password and fits the certificate");
    else if (lib->ctx_check(x) != 1)
        rc = bad_file(err, "--tls-key", key, "is not the key of the certificate");
    if (rc)
        lib->ctx_free(x);
    else
        *out = x;
    return rc;
}

int qr_tls_open(struct qr_tls **out, const char *cert_file, const char *key_file, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(cert_file != NULL);
    struct qr_tls *t = qr_alloc(1, sizeof *t);
    t->cert_file = cert_file;
    t->key_file = key_file;
    int rc = open_library(&t->lib, err);
    rc = rc ? rc : make_context(t, &t->ctx, err);
    if (rc) {
        qr_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

int qr_tls_reload(struct qr_tls *t, struct qr_err *err)
{
    SSL_CTX *now;
    QR_ASSERT(t != NULL && t->ctx != NULL);
    QR_ASSERT(err != NULL);
    const int rc = make_context(t, &now, err);
    if (rc)
        return rc;
    t->lib.ctx_free(t->ctx);
    t->ctx = now;
    return 0;
}

void qr_tls_close(struct qr_tls *t)
{
    if (!t)
        return;
    QR_ASSERT(t->ctx != NULL);
    t->lib.ctx_free(t->ctx);
    qr_free(t);
}

/* ---- connections ---- */

struct qr_tls_conn *qr_tls_begin(struct qr_tls *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->ctx != NULL);
    struct qr_tls_conn *c = qr_alloc(1, sizeof *c);
    SSL *ssl = c ? t->lib.new(t->ctx) : NULL;
    BIO *in = ssl ? BIO_new(BIO_s_mem()) : NULL, *out = in ? BIO_new(BIO_s_mem()) : NULL;
    if (!out) {
        BIO_free(in);
        t->lib.free(ssl);
        qr_free(c);
        return NULL;
    }
    t->lib.set_bio(ssl, in, out);
    t->lib.accept(ssl);
    *c = (struct qr_tls_conn){.lib = &t->lib, .ssl = ssl, .in = in, .out = out};
    return c;
}

void qr_tls_end(struct qr_tls_conn *c)
{
    if (!c)
        return;
    QR_ASSERT(c->ssl != NULL);
    c->lib->free(c->ssl);
    qr_free(c);
}

bool qr_tls_begins(char first)
{
    return first == SSL3_RT_HANDSHAKE;
}

bool qr_tls_ready(const struct qr_tls_conn *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->ssl != NULL);
    return c->lib->finished(c->ssl) == 1;
}

static void take_out(struct qr_tls_conn *c, struct qr_buf *wire)
{
    const size_t n = BIO_ctrl_pending(c->out);
    if (n > 0 && qr_buf_reserve(wire, n)) {
        const int got = BIO_read(c->out, wire->data + wire->len, (int)n);
        QR_ASSERT(got == (int)n);
        wire->len += n;
        wire->data[wire->len] = 0;
    }
}

/* Whether a call that gave rc waits for nothing but more bytes. */
static bool wants_more(const struct qr_tls_conn *c, int rc)
{
    const int e = c->lib->error(c->ssl, rc);
    return e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE;
}

bool qr_tls_read(struct qr_tls_conn *c, struct qr_buf *plain, struct qr_buf *wire, const char *bytes, size_t n)
{
    QR_ASSERT(c != NULL && plain != NULL && wire != NULL);
    QR_ASSERT(bytes != NULL && n > 0 && n <= 1 << 20);
    ERR_clear_error();
    bool open = BIO_write(c->in, bytes, (int)n) == (int)n;
    for (int rc = 1; open && rc > 0;) {
        if (!qr_tls_ready(c) && (rc = c->lib->handshake(c->ssl)) <= 0) {
            open = wants_more(c, rc);
            break;
        }
        if (!qr_buf_reserve(plain, PIECE_BYTES))
            break;
        rc = c->lib->read(c->ssl, plain->data + plain->len, PIECE_BYTES);
        if (rc > 0) {
            plain->len += (size_t)rc;
            plain->data[plain->len] = 0;
        } else {
            open = wants_more(c, rc);
        }
    }
    take_out(c, wire);
    return open;
}

bool qr_tls_write(struct qr_tls_conn *c, struct qr_buf *wire, const char *plain, size_t n)
{
    QR_ASSERT(c != NULL && wire != NULL);
    QR_ASSERT(plain != NULL && n > 0);
    ERR_clear_error();
    for (size_t at = 0; at < n;) {
        const int piece = n - at < PIECE_BYTES ? (int)(n - at) : PIECE_BYTES;
        if (c->lib->write(c->ssl, plain + at, piece) != piece)
            return false;
        take_out(c, wire);
        at += (size_t)piece;
    }
    return true;
}

void qr_tls_shut(struct qr_tls_conn *c, struct qr_buf *wire)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(wire != NULL);
    ERR_clear_error();
    if (qr_tls_ready(c))
        c->lib->shutdown(c->ssl);
    take_out(c, wire);
}
