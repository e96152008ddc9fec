/* address.c - addresses, networks, and the way back through proxies. The fields that proxies write are read from their ends,
 * so what a client put in front of them, quotes that are not closed among it, changes nothing. Pure. */
#include "server/address.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/mem.h"

struct qr_address qr_address_of(const void *bytes, size_t n_bytes)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct qr_address a = {.n_bytes = (uint8_t)n_bytes};
    QR_ASSERT(bytes != NULL);
    QR_ASSERT(n_bytes == 4 || n_bytes == 16);
    if (n_bytes == 16 && memcmp(bytes, mapped, sizeof mapped) == 0)
        return qr_address_of((const uint8_t *)bytes + sizeof mapped, 4);
    memcpy(a.bytes, bytes, n_bytes);
    return a;
}

const char *qr_address_text(char out[QR_ADDRESS_TEXT], const struct qr_address *a)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(a != NULL);
    if (a->n_bytes == 0 || !inet_ntop(a->n_bytes == 4 ? AF_INET : AF_INET6, a->bytes, out, QR_ADDRESS_TEXT))
        out[0] = 0;
    return out;
}

bool qr_address_parse(struct qr_address *out, const char *text, size_t n)
{
    char copy[QR_ADDRESS_TEXT];
    uint8_t bytes[16];
    QR_ASSERT(out != NULL);
    QR_ASSERT(text != NULL || n == 0);
    if (n == 0 || n >= sizeof copy || memchr(text, 0, n))
        return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    const bool four = inet_pton(AF_INET, copy, bytes) == 1;
    if (!four && inet_pton(AF_INET6, copy, bytes) != 1)
        return false;
    *out = qr_address_of(bytes, four ? 4 : 16);
    return true;
}

bool qr_address_is_loopback(const struct qr_address *a)
{
    static const uint8_t one[16] = {[15] = 1};
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->n_bytes <= 16);
    return a->n_bytes == 4 ? a->bytes[0] == 127 : a->n_bytes == 16 && memcmp(a->bytes, one, sizeof one) == 0;
}

bool qr_address_equal(const struct qr_address *a, const struct qr_address *b)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(b != NULL);
    return a->n_bytes == b->n_bytes && memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

/* ---- networks ---- */

static bool parse_network(struct qr_network *out, const char *text)
{
    const char *slash = strchr(text, '/');
    int32_t n_bits = 0;
    if (strcmp(text, "unix") == 0) {
        *out = (struct qr_network){0}; /* what comes by a Unix socket has no address, and is inside */
        return true;
    }
    if (!qr_address_parse(&out->address, text, slash ? (size_t)(slash - text) : strlen(text)))
        return false;
    const int32_t most = out->address.n_bytes * 8;
    out->n_bits = most;
    if (!slash)
        return true;
    const size_t n = strlen(slash + 1);
    for (size_t i = 1; i <= n; i++) {
        if (slash[i] < '0' || slash[i] > '9' || n > 3)
            return false;
        n_bits = 10 * n_bits + (slash[i] - '0');
    }
    out->n_bits = n_bits;
    return n > 0 && n_bits <= most;
}

int qr_networks_parse(struct qr_networks *out, const struct qr_str_list *list, const char *what, struct qr_err *err)
{
    QR_ASSERT(out != NULL && list != NULL);
    QR_ASSERT(what != NULL && err != NULL);
    *out = (struct qr_networks){.net = qr_alloc(list->n > 0 ? (size_t)list->n : 1, sizeof *out->net)};
    for (int32_t i = 0; i < list->n; i++)
        if (!parse_network(&out->net[out->n++], list->item[i])) {
            qr_networks_release(out);
            return qr_err_set(err, QR_E_USAGE, "%s: '%.60s' is no address or network, as 10.0.0.7, 10.0.0.0/8 or fd00::/8, nor 'unix'", what, list->item[i]);
        }
    return 0;
}

void qr_networks_release(struct qr_networks *n)
{
    qr_free(n->net);
    *n = (struct qr_networks){0};
}

static bool is_inside(const struct qr_network *net, const struct qr_address *a)
{
    const int32_t whole = net->n_bits / 8, rest = net->n_bits % 8;
    if (net->address.n_bytes != a->n_bytes || memcmp(net->address.bytes, a->bytes, (size_t)whole) != 0)
        return false;
    return rest == 0 || ((net->address.bytes[whole] ^ a->bytes[whole]) >> (8 - rest)) == 0;
}

bool qr_networks_have(const struct qr_networks *n, const struct qr_address *a)
{
    QR_ASSERT(n != NULL);
    QR_ASSERT(a != NULL);
    for (int32_t i = 0; i < n->n; i++)
        if (is_inside(&n->net[i], a))
            return true;
    return false;
}

/* ---- what proxies say ---- */

static struct qr_span trim(struct qr_span s)
{
    while (s.len > 0 && (*s.data == ' ' || *s.data == '\t')) {
        s.data++;
        s.len--;
    }
    while (s.len > 0 && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t'))
        s.len--;
    return s;
}

/* Takes what is behind the last `mark` off the end of *s, the mark too. A mark between quotes is none, as seen from the end. False: nothing is left. */
static bool take_last(struct qr_span *out, struct qr_span *s, char mark)
{
    bool quoted = false;
    size_t at = s->len;
    if (!s->data)
        return false;
    for (; at > 0; at--) {
        const char c = s->data[at - 1];
        if (c == '"' && (at < 2 || s->data[at - 2] != '\\'))
            quoted = !quoted;
        else if (c == mark && !quoted)
            break;
    }
    *out = trim((struct qr_span){s->data + at, s->len - at});
    *s = at > 0 ? (struct qr_span){s->data, at - 1} : (struct qr_span){0};
    return true;
}

/* ADDRESS, ADDRESS:PORT of IPv4, [ADDRESS] and [ADDRESS]:PORT of IPv6. */
static bool parse_node(struct qr_address *out, struct qr_span s)
{
    const char *colon = s.len > 0 ? memchr(s.data, ':', s.len) : NULL;
    if (s.len > 0 && s.data[0] == '[') {
        const char *end = memchr(s.data, ']', s.len);
        return end && (end + 1 == s.data + s.len || end[1] == ':') && qr_address_parse(out, s.data + 1, (size_t)(end - s.data) - 1);
    }
    const bool one = colon && !memchr(colon + 1, ':', (size_t)(s.data + s.len - colon) - 1);
    return qr_address_parse(out, s.data, one ? (size_t)(colon - s.data) : s.len);
}

/* The value of `for` in an element of Forwarded: for=192.0.2.1;proto=https, for="[2001:db8::1]:80". */
static struct qr_span for_value(struct qr_span element)
{
    struct qr_span pair;
    while (take_last(&pair, &element, ';')) {
        if (pair.len < 4 || strncasecmp(pair.data, "for=", 4) != 0)
            continue;
        struct qr_span v = {pair.data + 4, pair.len - 4};
        if (v.len >= 2 && v.data[0] == '"' && v.data[v.len - 1] == '"')
            v = (struct qr_span){v.data + 1, v.len - 2};
        return v;
    }
    return (struct qr_span){0};
}

/* The last element of all fields that was not taken yet. False: there is none. */
static bool take_element(struct qr_span *out, struct qr_span *rest, const struct qr_span *field, int32_t *n)
{
    while (!take_last(out, rest, ',')) {
        if (*n == 0)
            return false;
        *rest = field[--*n];
    }
    return true;
}

struct qr_address qr_client_address(const struct qr_address *peer, const struct qr_http_forwarded *said, const struct qr_networks *trusted)
{
    QR_ASSERT(peer != NULL && said != NULL && trusted != NULL);
    QR_ASSERT(said->n_for <= QR_HTTP_FORWARDED_MAX && said->n_forwarded <= QR_HTTP_FORWARDED_MAX);
    const bool old = said->n_for > 0;
    int32_t n = old ? said->n_for : said->n_forwarded;
    struct qr_address client = *peer;
    struct qr_span rest = {0}, element;
    while (qr_networks_have(trusted, &client) && take_element(&element, &rest, old ? said->x_forwarded_for : said->forwarded, &n))
        if (!parse_node(&client, old ? element : for_value(element)))
            break;
    return client;
}
