#include <criterion/criterion.h>
#include <string.h>

#include "base/assert.h"
#include "server/disagg.h"

Test(disagg, an_address_is_a_host_and_a_port_and_comes_apart_again)
{
    static const struct {
        const char *host, *address;
        int32_t port;
    } rows[] = {{"10.0.0.1", "10.0.0.1:7001", 7001}, {"p.example", "p.example:1", 1}, {"::1", "[::1]:65535", 65535},
                {"ucx:10.0.0.1", "ucx:10.0.0.1:7001", 7001}, {"unix:/run/a:b", "unix:/run/a:b", 0}};
    for (int i = 0; i < QR_COUNT(rows); i++) {
        char address[64], host[64];
        int32_t port = -1;
        cr_assert(qr_disagg_address(address, sizeof address, rows[i].host, rows[i].port));
        cr_assert_str_eq(address, rows[i].address);
        qr_disagg_split(host, sizeof host, &port, address);
        cr_assert_str_eq(host, rows[i].host);
        cr_assert_eq(port, rows[i].port);
    }
}

Test(disagg, an_address_without_a_port_or_one_that_is_too_long_is_none)
{
    char address[16];
    cr_assert_not(qr_disagg_address(address, sizeof address, "a", 0));
    cr_assert(qr_disagg_address(address, sizeof address, "unix:/a", 0));
    cr_assert(qr_disagg_address(address, sizeof address, "1234567890", 7001), "15 bytes and the end");
    cr_assert_not(qr_disagg_address(address, sizeof address, "12345678901", 7001));
    cr_assert(qr_disagg_address(address, sizeof address, "[::1]", 7001), "brackets are not doubled");
    cr_assert_str_eq(address, "[::1]:7001");
}
