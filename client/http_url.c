/* http_url.c - what comes from outside into a request head: the base URL and the key (see http_client.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "client/http_client.h"

static int parse_port(struct qr_http_url *u, const char *s, size_t n, const char *text, struct qr_err *err)
{
    char what[260], found[80];
    int32_t port = 0;
    bool ok = n <= 5;
    for (size_t i = 0; i < n && ok; i++) {
        ok = s[i] >= '0' && s[i] <= '9';
        port = port * 10 + (s[i] - '0');
    }
    snprintf(what, sizeof what, "the port of URL '%.200s'", text);
    snprintf(found, sizeof found, "'%.*s'", (int)(n < 70 ? n : 70), s);
    if (!ok || port < 1 || port > 65535)
        return qr_err_range(err, what, "1", "65535", found);
    u->port = port;
    return 0;
}

/* A host's bytes go into a request head: letters, digits and what addresses need, nothing that could end a line. */
static bool host_ok(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 127 || strchr("/?#@\\[]<>\"", s[i]) != NULL)
            return false;
    return n > 0;
}

static bool prefix_ok(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 127 || s[i] == '?' || s[i] == '#')
            return false;
    return true;
}

static int parse_prefix(struct qr_http_url *u, const char *path, const char *text, struct qr_err *err)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    if (n >= sizeof u->prefix || !prefix_ok(path, n))
        return qr_err_set(err, QR_E_USAGE, "URL '%.200s': its path is too long or has characters that no path may have", text);
    memcpy(u->prefix, path, n);
    u->prefix[n] = '\0';
    if (n == 0)
        strcpy(u->prefix, "/v1");
    return 0;
}

int qr_http_url_parse(struct qr_http_url *u, const char *text, struct qr_err *err)
{
    QR_ASSERT(u != NULL);
    QR_ASSERT(text != NULL);
    const char *s = text;
    if (strncasecmp(s, "https://", 8) == 0)
        return qr_err_set(err, QR_E_USAGE,
                          "URL '%.200s': https is not spoken here, only plain http. Put a local TLS proxy in front of the "
                          "server, or use its http:// address",
                          text);
    if (strncasecmp(s, "http://", 7) == 0)
        s += 7;
    else if (strstr(s, "://") != NULL)
        return qr_err_set(err, QR_E_USAGE, "URL '%.200s': expected http://HOST[:PORT][/PATH]", text);
    size_t n_authority = strcspn(s, "/");
    const char *host = s, *host_end = s + n_authority, *port = NULL;
    if (*s == '[') {
        const char *close = memchr(s, ']', n_authority);
        if (close == NULL || (close + 1 < s + n_authority && close[1] != ':'))
            return qr_err_set(err, QR_E_USAGE, "URL '%.200s': an IPv6 address looks like [::1]", text);
        host = s + 1;
        host_end = close;
        port = close + 1 < s + n_authority ? close + 2 : NULL;
    } else {
        const char *colon = memchr(s, ':', n_authority);
        host_end = colon != NULL ? colon : host_end;
        port = colon != NULL ? colon + 1 : NULL;
    }
    size_t n_host = (size_t)(host_end - host);
    if (!host_ok(host, n_host) || n_host >= sizeof u->host)
        return qr_err_set(err, QR_E_USAGE, "URL '%.200s': expected http://HOST[:PORT][/PATH]", text);
    memcpy(u->host, host, n_host);
    u->host[n_host] = '\0';
    u->port = 80;
    int rc = port != NULL ? parse_port(u, port, (size_t)(s + n_authority - port), text, err) : 0;
    return rc != 0 ? rc : parse_prefix(u, s + n_authority, text, err);
}

int qr_http_key_check(const char *key, struct qr_err *err)
{
    QR_ASSERT(key != NULL);
    QR_ASSERT(err != NULL);
    size_t n = strlen(key);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)key[i] <= ' ' || (unsigned char)key[i] >= 127)
            return qr_err_set(err, QR_E_USAGE, "the API key has a blank or a control character at position %zu; is a line end "
                              "left from copying it?", i + 1);
    if (n > 4096)
        return qr_err_set(err, QR_E_USAGE, "the API key has %zu characters; at most 4096 are sent", n);
    return 0;
}

const char *qr_http_from_env(const char *value, bool given, const char *variable)
{
    QR_ASSERT(variable != NULL);
    const char *env = getenv(variable);
    return !given && env != NULL && env[0] != '\0' ? env : value;
}
