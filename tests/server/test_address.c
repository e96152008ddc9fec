#include <criterion/criterion.h>
#include <string.h>

#include "server/address.h"

static struct qr_networks nets(const char **item, int32_t n)
{
    struct qr_networks out;
    struct qr_err err = {0};
    const struct qr_str_list list = {.item = item, .n = n};
    cr_assert_eq(qr_networks_parse(&out, &list, "--trusted-proxy", &err), 0, "%s", err.msg);
    return out;
}

static struct qr_address address(const char *text)
{
    struct qr_address a = {0};
    cr_assert(qr_address_parse(&a, text, strlen(text)), "%s", text);
    return a;
}

Test(address, networks_have_what_is_in_them)
{
    const char *list[] = {"10.0.0.0/8", "192.0.2.7", "fd00::/9", "::ffff:203.0.113.0", "198.51.100.128/25"};
    static const struct {
        const char *text;
        bool inside;
    } row[] = {{"10.255.0.1", true}, {"11.0.0.1", false}, {"192.0.2.7", true}, {"192.0.2.6", false}, {"fd7f::1", true}, {"fd80::1", false},
               {"203.0.113.0", true}, {"::ffff:10.1.1.1", true}, {"198.51.100.127", false}, {"198.51.100.200", true}, {"::1", false}};
    struct qr_networks n = nets(list, 5);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const struct qr_address a = address(row[i].text);
        cr_assert_eq(qr_networks_have(&n, &a), row[i].inside, "%s", row[i].text);
    }
    cr_assert(!qr_networks_have(&n, &(struct qr_address){0}));
    qr_networks_release(&n);
    const char *all[] = {"0.0.0.0/0"};
    n = nets(all, 1);
    const struct qr_address four = address("1.2.3.4"), six = address("::2");
    cr_assert(qr_networks_have(&n, &four) && !qr_networks_have(&n, &six) && !qr_networks_have(&n, &(struct qr_address){0}));
    qr_networks_release(&n);
}

Test(address, what_is_no_network_is_refused)
{
    static const char *const wrong[] = {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/x", "10.0.0.0/08888", "fd00::/129", "host", "10.0.0.0/8/8", "[::1]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct qr_networks n;
        struct qr_err err = {0};
        const char *item[] = {wrong[i]};
        const struct qr_str_list list = {.item = item, .n = 1};
        cr_assert_eq(qr_networks_parse(&n, &list, "--trusted-proxy", &err), QR_E_USAGE, "%s", wrong[i]);
        cr_assert(strstr(err.msg, "--trusted-proxy: '"), "%s", err.msg);
    }
}

/* Fields are separated by '|'. peer NULL: a Unix socket's. */
static const char *client(char out[QR_ADDRESS_TEXT], const char *peer, const char *forwarded_for, const char *forwarded)
{
    const char *list[] = {"10.0.0.0/8", "fd00::/8", "unix"};
    struct qr_networks n = nets(list, 3);
    struct qr_http_forwarded said = {0};
    for (const char *at = forwarded_for; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        said.x_forwarded_for[said.n_for++] = (struct qr_span){at, strcspn(at, "|")};
    for (const char *at = forwarded; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        said.forwarded[said.n_forwarded++] = (struct qr_span){at, strcspn(at, "|")};
    const struct qr_address from = peer ? address(peer) : (struct qr_address){0}, found = qr_client_address(&from, &said, &n);
    qr_networks_release(&n);
    return qr_address_text(out, &found);
}

Test(address, only_trusted_proxies_are_believed)
{
    static const struct {
        const char *peer, *forwarded_for, *forwarded, *client;
    } row[] = {
        {"8.8.8.8", "1.2.3.4", NULL, "8.8.8.8"},                       /* a client that says who it is */
        {"8.8.8.8", NULL, "for=1.2.3.4", "8.8.8.8"},
        {"10.0.0.1", NULL, NULL, "10.0.0.1"},
        {"10.0.0.1", "1.2.3.4", NULL, "1.2.3.4"},
        {"10.0.0.1", "6.6.6.6, 1.2.3.4", NULL, "1.2.3.4"},             /* what the client put in front */
        {"10.0.0.1", "6.6.6.6|1.2.3.4", NULL, "1.2.3.4"},              /* the same as a field of its own */
        {"10.0.0.1", "10.0.0.9, 1.2.3.4", NULL, "1.2.3.4"},
        {"10.0.0.1", "1.2.3.4, 10.0.0.9", NULL, "1.2.3.4"},            /* two proxies */
        {"10.0.0.1", "1.2.3.4|10.0.0.9", NULL, "1.2.3.4"},
        {"10.0.0.1", "6.6.6.6,1.2.3.4 ,10.0.0.2,10.0.0.9", NULL, "1.2.3.4"},
        {"10.0.0.1", "1.2.3.4, unknown", NULL, "10.0.0.1"},            /* the nearest one that is known */
        {"10.0.0.1", "1.2.3.4, unknown, 10.0.0.9", NULL, "10.0.0.9"},
        {"10.0.0.1", "", NULL, "10.0.0.1"},
        {"10.0.0.1", "1.2.3.4,", NULL, "10.0.0.1"},
        {"10.0.0.1", "1.2.3.4:5678", NULL, "1.2.3.4"},
        {"10.0.0.1", "2001:db8::1", NULL, "2001:db8::1"},
        {"10.0.0.1", "[2001:db8::1]:5678", NULL, "2001:db8::1"},
        {"10.0.0.1", "[2001:db8::1", NULL, "10.0.0.1"},
        {"10.0.0.1", "[2001:db8::1]x", NULL, "10.0.0.1"},
        {"10.0.0.1", "10.0.0.2", NULL, "10.0.0.2"},
        {"10.0.0.1", "\"6.6.6.6, 1.2.3.4", NULL, "1.2.3.4"},           /* a quote that is not closed */
        {"fd00::1", "::ffff:1.2.3.4", NULL, "1.2.3.4"},
        {"10.0.0.1", NULL, "for=1.2.3.4", "1.2.3.4"},
        {"10.0.0.1", NULL, "for=6.6.6.6, For=\"[2001:db8::1]:4711\";proto=https;by=10.0.0.1", "2001:db8::1"},
        {"10.0.0.1", NULL, "proto=https;for=1.2.3.4|for=10.0.0.7;by=\"a,b;for=6.6.6.6\"", "1.2.3.4"},
        {"10.0.0.1", NULL, "for=\"6.6.6.6, for=1.2.3.4", "1.2.3.4"},
        {"10.0.0.1", NULL, "for=_hidden", "10.0.0.1"},
        {"10.0.0.1", NULL, "proto=https", "10.0.0.1"},
        {NULL, "6.6.6.6, 1.2.3.4", NULL, "1.2.3.4"},                   /* by a Unix socket */
        {NULL, "1.2.3.4, 10.0.0.9", NULL, "1.2.3.4"},
        {NULL, NULL, NULL, ""},
        {"10.0.0.1", "1.2.3.4", "for=6.6.6.6", "1.2.3.4"},             /* proxies that write the one pass the other on */
    };
    char out[QR_ADDRESS_TEXT];
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        cr_assert_str_eq(client(out, row[i].peer, row[i].forwarded_for, row[i].forwarded), row[i].client, "row %zu: %s", i, out);
}
