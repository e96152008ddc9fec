#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "server/keys.h"
#include "tests/seed.h"
#include "tests/temp.h"

static struct qr_keys *make(const char **user, int32_t n_user, const char **admin, int32_t n_admin)
{
    struct qr_keys *k = NULL;
    struct qr_err err = {0};
    struct qr_str_list u = {.item = user, .n = n_user}, a = {.item = admin, .n = n_admin};
    const struct qr_keys_from from = {.list = {[QR_ROLE_USER] = &u, [QR_ROLE_ADMIN] = &a}};
    cr_assert_eq(qr_keys_new(&k, &from, &err), 0, "%s", err.msg);
    return k;
}

/* Of a file with that text. */
static int read_text(struct qr_keys **k, const char *text, struct qr_err *err)
{
    char path[64];
    temp_template(path, "/tmp", "keys");
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    const struct qr_keys_from from = {.file = {[QR_ROLE_USER] = path}, .kind = QR_FILE_REGULAR};
    const int rc = qr_keys_new(k, &from, err);
    unlink(path);
    return rc;
}

static struct qr_keys *of_text(const char *text)
{
    struct qr_keys *k = NULL;
    struct qr_err err = {0};
    cr_assert_eq(read_text(&k, text, &err), 0, "%s", err.msg);
    return k;
}

static struct qr_key *find(const struct qr_keys *k, const char *key)
{
    return qr_keys_find(k, key, key ? strlen(key) : 0);
}

static enum qr_role role_of(const struct qr_keys *k, const char *key)
{
    const struct qr_key *found = find(k, key);
    return found ? found->role : QR_ROLE_NONE;
}

static bool same(struct qr_hash128 a, struct qr_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

Test(keys, know_users_admins_and_strangers)
{
    const char *user[] = {"u1", "u2"}, *admin[] = {"a1", "u2"};
    struct qr_keys *k = make(user, 2, admin, 2);
    cr_assert_eq(role_of(k, "u1"), QR_ROLE_USER);
    cr_assert_eq(role_of(k, "a1"), QR_ROLE_ADMIN);
    cr_assert_eq(role_of(k, "u2"), QR_ROLE_ADMIN);
    cr_assert_eq(role_of(k, "u"), QR_ROLE_NONE);
    cr_assert_eq(role_of(k, "u11"), QR_ROLE_NONE);
    cr_assert_eq(role_of(k, ""), QR_ROLE_NONE);
    cr_assert_eq(role_of(k, NULL), QR_ROLE_NONE);
    qr_keys_free(k);
}

Test(keys, without_any_configured_key_everybody_shares_one_cache)
{
    struct qr_keys *k = make(NULL, 0, NULL, 0);
    cr_assert_eq(role_of(k, NULL), QR_ROLE_ADMIN);
    cr_assert_eq(role_of(k, "EMPTY"), QR_ROLE_ADMIN);
    const struct qr_key_digest a = find(k, NULL)->digest, b = find(k, "EMPTY")->digest;
    cr_assert(same(qr_keys_salt(&a, NULL, 0), qr_keys_salt(&b, NULL, 0)));
    cr_assert(!same(qr_keys_salt(&a, NULL, 0), qr_keys_salt(&a, "x", 1)));
    qr_keys_free(k);
}

Test(keys, different_keys_and_salts_never_share_a_cache)
{
    const char *user[] = {"k1", "k2"};
    struct qr_keys *k = make(user, 2, NULL, 0);
    const struct qr_key_digest a = find(k, "k1")->digest, b = find(k, "k2")->digest;
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
    struct qr_keys *k = make(user, 1, NULL, 0);
    cr_assert_eq(memcmp(find(k, "abc")->digest.bytes, expected, sizeof expected), 0);
    qr_keys_free(k);
}

/* Welch's t of the times that two keys take, tried in random order; what is slower than 5 us was interrupted. */
static double unlike(const struct qr_keys *k, char tried[2][64], struct qr_rng *rng)
{
    double n[2] = {0}, mean[2] = {0}, m2[2] = {0};
    for (int i = 0; i < 200000; i++) {
        int c = (int)qr_rng_below(rng, 2);
        int64_t t0 = qr_clock_ns();
        cr_assert_null(qr_keys_find(k, tried[c], 32));
        double dt = (double)(qr_clock_ns() - t0);
        if (dt > 5000)
            continue;
        n[c]++;
        double delta = dt - mean[c];
        mean[c] += delta / n[c];
        m2[c] += delta * (dt - mean[c]);
    }
    const double t = (mean[0] - mean[1]) / sqrt(m2[0] / (n[0] - 1) / n[0] + m2[1] / (n[1] - 1) / n[1]);
    printf("means %.1f ns and %.1f ns, t %.2f\n", mean[0], mean[1], t);
    return fabs(t);
}

/* dudect's idea: a key that differs from a configured one in its first byte, and one that differs in its last. |t| < 10 is far above what scheduling gives on
 * a shared machine, and far below what an early exit would give, each time: a machine that is busy may have a few trials. */
Test(keys, checking_takes_as_long_for_a_near_miss_as_for_a_far_one)
{
    const char *user[] = {"0123456789abcdef0123456789abcdef"};
    _Alignas(64) char tried[2][64] = {"x123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdex"}; /* one that lies in two lines takes longer */
    struct qr_keys *k = make(user, 1, NULL, 0);
    struct qr_rng rng = {.seed = test_seed()};
    printf("seed %llu\n", (unsigned long long)rng.seed);
    int trials = 0;
    while (trials < 5 && unlike(k, tried, &rng) >= 10)
        trials++;
    cr_assert_lt(trials, 5);
    qr_keys_free(k);
}

/* ---- files ---- */

Test(keys, a_line_says_name_and_limits_in_any_order)
{
    struct qr_keys *k = of_text("# comment\n\n  k1 \t rpm=60 name=alice tpm=1000 concurrent=4 weight=3 # hers\r\nk#2\n\tk3 tpm=7");
    const struct qr_key *a = find(k, "k1"), *b = find(k, "k#2"), *c = find(k, "k3");
    cr_assert(a && b && c);
    cr_assert_str_eq(a->name, "alice");
    cr_assert(a->terms.rpm == 60 && a->terms.tpm == 1000 && a->terms.concurrent == 4 && a->terms.weight == 3);
    cr_assert(b->terms.rpm == 0 && b->terms.tpm == 0 && b->terms.concurrent == 0 && b->terms.weight == 1);
    cr_assert_eq(strlen(b->name), 8);
    cr_assert_eq(c->terms.tpm, 7);
    qr_keys_free(k);
}

Test(keys, a_wrong_line_is_named_by_its_number_and_never_shown)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {"ok\nsecret rpm=0\n", ":2: rpm= has to be"},
        {"secret rpm=9999999999\n", ":1: rpm= has to be"},
        {"secret weight=1001\n", ":1: weight= has to be"},
        {"secret tpm=\n", ":1: tpm= has to be"},
        {"secret rpm=5k\n", ":1: rpm= has to be"},
        {"secret rpm=5 rpm=5\n", "given twice"},
        {"secret name=a name=b\n", "given twice"},
        {"secret name=a/b\n", "name= has to be"},
        {"secret name=\n", "name= has to be"},
        {"secret hidden\n", "field 1 behind the key"},
        {"secret rpm=5 hidden=6\n", "field 2 behind the key"},
        {"rpm=5 secret\n", "the key comes first"},
        {"name=secret\n", "the key comes first"},
        {"s\x01" "ecret\n", "visible"},
        {"\xc3\xa4secret\n", "visible"},
        {"a name=x\nsecret name=x\n", ":2: another key has the name x"},
        {"secret name=other\n", "name=other is taken"},
        {"secret rpm=5\nsecret rpm=6\n", ":2: the key was given before"},
        {"secret name=x\nsecret name=y\n", ":2: the key was given before"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct qr_keys *k = NULL;
        struct qr_err err = {0};
        cr_assert_eq(read_text(&k, row[i].text, &err), QR_E_USAGE, "%zu", i);
        cr_assert(strstr(err.msg, row[i].says), "%zu: %s", i, err.msg);
        cr_assert(!strstr(err.msg, "secret") && !strstr(err.msg, "hidden"), "%s", err.msg);
    }
}

Test(keys, a_long_key_is_refused_and_the_longest_is_taken)
{
    char text[600];
    memset(text, 'x', sizeof text);
    struct qr_key_line line;
    struct qr_err err = {0};
    cr_assert_eq(qr_key_line_parse(&line, text, 512, &err), 0);
    cr_assert_eq(line.len, 512);
    cr_assert_eq(qr_key_line_parse(&line, text, 513, &err), QR_E_USAGE);
}

Test(keys, the_same_key_twice_is_one_key)
{
    struct qr_keys *k = of_text("a rpm=5 name=x\na rpm=5 name=x\nb\nb\n");
    cr_assert_eq(qr_keys_count(k, QR_ROLE_USER), 2);
    qr_keys_free(k);
}

/* ---- another set ---- */

Test(keys, a_reload_keeps_what_those_that_stay_have_used)
{
    int32_t n_gone;
    struct qr_keys *k = of_text("a name=a rpm=5\nb\nc\n"), *fresh = of_text("d\na name=aa tpm=9\nc\n");
    struct qr_key *a = find(k, "a");
    qr_keys_use(k, a, &(struct qr_key_use){.n_requests = 3, .output_tokens = 7});
    a->state.requests = (struct qr_bucket){4, 1};
    cr_assert_eq(qr_keys_replace(k, fresh, &n_gone), 1);
    cr_assert_eq(n_gone, 1);
    cr_assert_eq(find(k, "a"), a);
    cr_assert(a->use.n_requests == 3 && a->use.output_tokens == 7 && a->state.requests.used == 4);
    cr_assert(strcmp(a->name, "aa") == 0 && a->terms.rpm == 0 && a->terms.tpm == 9);
    cr_assert(!find(k, "b") && find(k, "c") && find(k, "d"));
    qr_keys_free(k);
}

Test(keys, a_key_that_is_gone_lives_as_long_as_its_calls)
{
    int32_t n_gone;
    struct qr_keys *k = of_text("a\nb\n");
    struct qr_key *a = find(k, "a");
    qr_key_enter(a);
    qr_key_enter(a);
    qr_keys_replace(k, of_text("b\n"), &n_gone);
    cr_assert(n_gone == 1 && a->gone && !find(k, "a"));
    qr_keys_use(k, a, &(struct qr_key_use){.output_tokens = 1}); /* of one that runs */
    qr_key_leave(a);
    cr_assert_eq(a->use.output_tokens, 1);
    qr_key_leave(a); /* freed */
    qr_keys_free(k);
}

Test(keys, a_hundred_are_told_apart_and_the_others_together)
{
    char text[8000];
    int32_t n_gone, n_own = 0;
    size_t n = 0;
    for (int i = 0; i < 150; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "key%d name=n%d\n", i, i);
    struct qr_keys *k = of_text(text);
    struct qr_key *first = find(k, "key0"), *last = find(k, "key149");
    cr_assert(first->label == QR_LABEL_OWN && last->label == QR_LABEL_OTHERS);
    qr_keys_use(k, first, &(struct qr_key_use){.n_requests = 1});
    qr_keys_use(k, last, &(struct qr_key_use){.n_requests = 2});
    cr_assert_eq(qr_keys_others(k)->n_requests, 2);
    n = 0;
    for (int i = 249; i >= 50; i--)
        n += (size_t)snprintf(text + n, sizeof text - n, "key%d name=n%d\n", i, i);
    qr_keys_replace(k, of_text(text), &n_gone);
    cr_assert_eq(n_gone, 50);
    for (int32_t i = 0; qr_keys_at(k, i); i++)
        n_own += qr_keys_at(k, i)->label == QR_LABEL_OWN;
    cr_assert_eq(n_own, QR_KEY_LABELS_MAX);
    cr_assert(last == find(k, "key149") && last->label == QR_LABEL_OTHERS && qr_keys_others(k)->n_requests == 2);
    qr_keys_free(k);
}
