#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "server/keys.h"
#include "tests/seed.h"

static struct qr_keys *make(const char **user, int32_t n_user, const char **admin, int32_t n_admin)
{
    struct qr_keys *k = NULL;
    struct qr_err err = {0};
    struct qr_str_list u = {.item = user, .n = n_user}, a = {.item = admin, .n = n_admin};
    cr_assert_eq(qr_keys_new(&k, &u, NULL, &a, NULL, &err), 0, "%s", err.msg);
    return k;
}

static bool same(struct qr_hash128 a, struct qr_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

Test(keys, know_users_admins_and_strangers)
{
    const char *user[] = {"u1", "u2"}, *admin[] = {"a1", "u2"};
    struct qr_key_digest d;
    struct qr_keys *k = make(user, 2, admin, 2);
    cr_assert_eq(qr_keys_check(k, "u1", 2, &d), QR_ROLE_USER);
    cr_assert_eq(qr_keys_check(k, "a1", 2, &d), QR_ROLE_ADMIN);
    cr_assert_eq(qr_keys_check(k, "u2", 2, &d), QR_ROLE_ADMIN);
    cr_assert_eq(qr_keys_check(k, "u", 1, &d), QR_ROLE_NONE);
    cr_assert_eq(qr_keys_check(k, "u11", 3, &d), QR_ROLE_NONE);
    cr_assert_eq(qr_keys_check(k, "", 0, &d), QR_ROLE_NONE);
    cr_assert_eq(qr_keys_check(k, NULL, 0, &d), QR_ROLE_NONE);
    qr_keys_free(k);
}

Test(keys, without_any_configured_key_everybody_shares_one_cache)
{
    struct qr_key_digest a, b;
    struct qr_keys *k = make(NULL, 0, NULL, 0);
    cr_assert_eq(qr_keys_check(k, NULL, 0, &a), QR_ROLE_ADMIN);
    cr_assert_eq(qr_keys_check(k, "EMPTY", 5, &b), QR_ROLE_ADMIN);
    cr_assert(same(qr_keys_salt(&a, NULL, 0), qr_keys_salt(&b, NULL, 0)));
    cr_assert(!same(qr_keys_salt(&a, NULL, 0), qr_keys_salt(&a, "x", 1)));
    qr_keys_free(k);
}

Test(keys, different_keys_and_salts_never_share_a_cache)
{
    const char *user[] = {"k1", "k2"};
    struct qr_key_digest a, b;
    struct qr_keys *k = make(user, 2, NULL, 0);
    qr_keys_check(k, "k1", 2, &a);
    qr_keys_check(k, "k2", 2, &b);
    cr_assert(!same(qr_keys_salt(&a, NULL, 0), qr_keys_salt(&b, NULL, 0)));
    cr_assert(!same(qr_keys_salt(&a, "s", 1), qr_keys_salt(&b, "s", 1)));
    cr_assert(!same(qr_keys_salt(&a, "s", 1), qr_keys_salt(&a, "t", 1)));
    cr_assert(same(qr_keys_salt(&a, "s", 1), qr_keys_salt(&a, "s", 1)));
    qr_keys_free(k);
}

/* SHA-256 of "abc" from FIPS 180-2, appendix B.1. */
Test(keys, digests_are_sha_256)
{
    static const uint8_t expected[8] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea};
    const char *user[] = {"abc"};
    struct qr_key_digest d;
    struct qr_keys *k = make(user, 1, NULL, 0);
    cr_assert_eq(qr_keys_check(k, "abc", 3, &d), QR_ROLE_USER);
    cr_assert_eq(memcmp(d.bytes, expected, sizeof expected), 0);
    qr_keys_free(k);
}

/* dudect's idea: time two classes in random order and compare means with Welch's t. The classes are a key that differs from a
 * configured one in its first byte and one that differs in its last. |t| < 10 is far above what scheduling noise
 * alone gives on a shared machine once the slowest tenth is cut off, and far below what an early exit would give. */
Test(keys, checking_takes_as_long_for_a_near_miss_as_for_a_far_one)
{
    const char *user[] = {"0123456789abcdef0123456789abcdef"};
    static const char *const tried[2] = {"x123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdex"};
    struct qr_keys *k = make(user, 1, NULL, 0);
    struct qr_rng rng = {.seed = test_seed()};
    double n[2] = {0}, mean[2] = {0}, m2[2] = {0};
    printf("seed %llu\n", (unsigned long long)rng.seed);
    for (int i = 0; i < 200000; i++) {
        struct qr_key_digest d;
        int c = (int)qr_rng_below(&rng, 2);
        int64_t t0 = qr_clock_ns();
        cr_assert_eq(qr_keys_check(k, tried[c], 32, &d), QR_ROLE_NONE);
        double dt = (double)(qr_clock_ns() - t0);
        if (dt > 5000)
            continue;
        n[c]++;
        double delta = dt - mean[c];
        mean[c] += delta / n[c];
        m2[c] += delta * (dt - mean[c]);
    }
    double t = (mean[0] - mean[1]) / sqrt(m2[0] / (n[0] - 1) / n[0] + m2[1] / (n[1] - 1) / n[1]);
    printf("means %.1f ns and %.1f ns, t %.2f\n", mean[0], mean[1], t);
    cr_assert_lt(fabs(t), 10);
    qr_keys_free(k);
}
