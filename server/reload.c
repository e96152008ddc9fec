/* What SIGHUP reads again. A file that is wrong changes nothing but the log; what is new holds from the next request on. */
#include "server/reload.h"

#include "base/assert.h"
#include "base/log.h"
#include "server/console.h"
#include "server/state.h"

int qr_reload_keys(struct qr_keys **out, const struct qr_server_config *c, enum qr_file_kind kind, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(err != NULL);
    const struct qr_keys_from from = {
        .list = {[QR_ROLE_METRICS] = &c->metrics_keys, [QR_ROLE_USER] = &c->api_keys, [QR_ROLE_ADMIN] = &c->admin_keys},
        .file = {[QR_ROLE_METRICS] = c->metrics_key_file, [QR_ROLE_USER] = c->api_key_file, [QR_ROLE_ADMIN] = c->admin_key_file}, .kind = kind};
    return qr_keys_new(out, &from, err);
}

/* A pipe would not be read again but waited for. */
static void read_keys(void *arg)
{
    struct qr_server *s = arg;
    qr_reload_keys(&s->reload.keys, &s->config, QR_FILE_REGULAR, &s->reload.err);
}

static void reload_run(void *arg)
{
    struct qr_server *s = arg;
    struct qr_account account;
    s->reload.keys = NULL;
    qr_account_init(&account, NULL);
    if (!qr_account_run(&account, read_keys, s)) {
        s->reload.keys = NULL;
        qr_err_set(&s->reload.err, QR_E_NO_ROOM, "the system has no memory for them");
    }
    qr_account_close(&account);
}

static void reload_keys(struct qr_server *s);

static void reload_done(void *arg)
{
    struct qr_server *s = arg;
    struct qr_reload *r = &s->reload;
    int32_t n_gone, n_new;
    r->running = false;
    if (!r->keys) {
        qr_log_text(QR_LOG_ERROR, "server", "keys are not reloaded, the old ones stay", "reason", r->err.msg);
    } else {
        n_new = qr_keys_replace(s->keys, r->keys, &n_gone);
        qr_log(QR_LOG_INFO, "server", "keys are reloaded users=%d admins=%d new=%d gone=%d", qr_keys_count(s->keys, QR_ROLE_USER),
               qr_keys_count(s->keys, QR_ROLE_ADMIN), n_new, n_gone);
        qr_console_recheck(s);
    }
    r->keys = NULL;
    if (r->again)
        reload_keys(s);
}

static void reload_certificate(struct qr_server *s)
{
    struct qr_err err;
    if (!s->tls)
        return;
    if (qr_tls_reload(s->tls, &err) != 0)
        qr_log_text(QR_LOG_ERROR, "server", "the certificate is not replaced", "reason", err.msg);
    else
        qr_log(QR_LOG_INFO, "server", "the certificate was read again");
}

static void reload_keys(struct qr_server *s)
{
    struct qr_reload *r = &s->reload;
    if (!s->config.api_key_file && !s->config.admin_key_file && !s->config.metrics_key_file)
        return;
    r->again = r->running;
    if (r->running)
        return;
    r->running = true;
    qr_http_work(r->job, reload_run, reload_done, s);
}

void qr_server_reload(struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->http != NULL);
    qr_log(QR_LOG_INFO, "server", "reload: key files, certificates and the access log, where there are any");
    if (s->access)
        qr_access_log_reopen(s->access);
    reload_certificate(s);
    reload_keys(s);
}

void qr_reload_open(struct qr_server *s)
{
    QR_ASSERT(s != NULL && s->http != NULL);
    QR_ASSERT(s->reload.job == NULL);
    s->reload.job = qr_http_job_new(s->http);
}

void qr_reload_close(struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(!s->reload.running && s->reload.keys == NULL);
    qr_http_job_free(s->reload.job);
}
