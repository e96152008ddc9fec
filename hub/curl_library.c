#include "hub/curl_library.h"

#include <stddef.h>

#include "base/assert.h"
#include "base/library.h"

/* Debian's packages libcurl4 (or libcurl4t64) and libcurl3-gnutls (libcurl3t64-gnutls): the same functions over OpenSSL and GnuTLS. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

#define X(name) {offsetof(struct qr_curl, name), "curl_" #name},
static const struct qr_library_symbol symbols[] = {QR_CURL_FUNCTIONS(X)};
#undef X

int qr_curl_open(struct qr_curl *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    const char *missing = "";
    for (int i = 0; i < QR_COUNT(names) && missing; i++)
        missing = qr_library_load(c, names[i], symbols, QR_COUNT(symbols));
    if (missing)
        return qr_err_set(err, QR_E_NOT_FOUND, "libcurl 7.66 or newer is missing, and nothing can be fetched without it: apt-get install libcurl4 (%.100s)",
                          missing);
    if (c->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return qr_err_set(err, QR_E_NOT_FOUND, "libcurl of this system cannot be used (curl_global_init): apt-get install libcurl4");
    return 0;
}

void qr_curl_close(struct qr_curl *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->global_cleanup != NULL);
    c->global_cleanup();
}
