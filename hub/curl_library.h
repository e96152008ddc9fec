/* curl_library.h - libcurl, opened when the first byte is to be fetched (with curl_get.c its only door). The program does not link it, so that a start that
 * fetches nothing does not load it, and one without it runs. Inside the door only: these are libcurl's own types.
 */
#ifndef QR_HUB_CURL_LIBRARY_H
#define QR_HUB_CURL_LIBRARY_H

#include <curl/curl.h>

#include "base/err.h"

/* The functions in use, by their names without "curl_". */
#define QR_CURL_FUNCTIONS(X)                                                                                                      \
    X(global_init) X(global_cleanup) X(easy_init) X(easy_cleanup) X(easy_reset) X(easy_setopt) X(easy_getinfo) X(easy_strerror)     \
    X(multi_init) X(multi_cleanup) X(multi_setopt) X(multi_add_handle) X(multi_remove_handle) X(multi_perform) X(multi_poll)        \
    X(multi_info_read) X(slist_append) X(slist_free_all) X(url) X(url_cleanup) X(url_set) X(url_get) X(free)

struct qr_curl {
#define X(name) __typeof__(curl_##name) *name;
    QR_CURL_FUNCTIONS(X)
#undef X
};

/* Errors: QR_E_NOT_FOUND with the package to install. It stays loaded. */
int qr_curl_open(struct qr_curl *c, struct qr_err *err);
void qr_curl_close(struct qr_curl *c);

#endif
