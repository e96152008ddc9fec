#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

static void write_hex(char *out, const uint8_t sum[QR_SHA256_BYTES])
{
    for (int i = 0; i < QR_SHA256_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

/* RFC 4231, test cases 1 to 4, 6 and 7; case 5 is of a sum that is cut. */
Test(sha256, of_a_key_and_a_text_is_that_of_the_standard)
{
    uint8_t b[20], aa[131], dd[50], cd[50], count[25], sum[QR_SHA256_BYTES];
    char hex[2 * QR_SHA256_BYTES + 1];
    static const char hi[] = "Hi There", jefe[] = "Jefe", what[] = "what do ya want for nothing?";
    static const char key_first[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    static const char long_text[] = "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before "
                                    "being used by the HMAC algorithm.";
    memset(b, 0x0b, sizeof b);
    memset(aa, 0xaa, sizeof aa);
    memset(dd, 0xdd, sizeof dd);
    memset(cd, 0xcd, sizeof cd);
    for (int i = 0; i < 25; i++)
        count[i] = (uint8_t)(i + 1);
    const struct {
        const void *key, *text;
        size_t n_key, n_text;
        const char *want;
    } row[] = {{b, hi, 20, 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
               {jefe, what, 4, 28, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
               {aa, dd, 20, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
               {count, cd, 25, 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
               {aa, key_first, 131, 54, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
               {aa, long_text, 131, 152, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        qr_hmac_sha256(sum, row[i].key, row[i].n_key, row[i].text, row[i].n_text);
        write_hex(hex, sum);
        cr_assert_str_eq(hex, row[i].want, "case %zu", i);
    }
}

Test(sha256, digests_are_the_same_only_when_each_bit_is)
{
    uint8_t a[QR_SHA256_BYTES], b[QR_SHA256_BYTES];
    qr_sha256(a, "abc", 3, NULL, 0);
    qr_sha256(b, "ab", 2, "c", 1);
    cr_assert(qr_same_digest(a, b));
    for (int bit = 0; bit < 8 * QR_SHA256_BYTES; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert(!qr_same_digest(a, b), "bit %d", bit);
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}
