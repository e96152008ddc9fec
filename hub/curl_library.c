#include "hub/curl_library.h"

#include <dlfcn.h>

#include "base/assert.h"
#include "base/library.h"

/* Debian's packages libcurl4 (or libcurl4t64) and libcurl3-gnutls (libcurl3t64-gnutls): the same functions over OpenSSL and GnuTLS. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

static void *open_any(void)
{
    void *library = NULL;
    for (int i = 0; i < QR_COUNT(names) && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

int qr_curl_open(struct qr_curl *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    void *library = open_any();
    if (!library)
        return qr_err_set(err, QR_E_NOT_FOUND, "libcurl is missing, and nothing can be fetched without it: apt-get install libcurl4 (%.100s)",
                          qr_library_why_not(names[QR_COUNT(names) - 1]));
    const char *missing = NULL;
#define X(name)                                                                                                                   \
    c->name = (__typeof__(c->name))dlsym(library, "curl_" #name);                                                                  \
    missing = c->name ? missing : "curl_" #name;
    QR_CURL_FUNCTIONS(X)
#undef X
    if (missing || c->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return qr_err_set(err, QR_E_NOT_FOUND, "libcurl of this system cannot be used (%s): expected 7.66 or newer: apt-get install libcurl4",
                          missing ? missing : "curl_global_init");
    return 0;
}

void qr_curl_close(struct qr_curl *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->global_cleanup != NULL);
    c->global_cleanup();
}
