#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench/trace.h"

/* Writes text to a file of its own and reads it as a trace. */
static int read_text(struct qr_trace *t, const char *text, int32_t n_max, struct qr_err *err)
{
    char path[] = "/tmp/quire-trace-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = qr_trace_read(t, path, n_max, err);
    unlink(path);
    return rc;
}

Test(trace, reads_times_and_lengths_from_csv)
{
    struct qr_trace t;
    struct qr_err err;
    int rc = read_text(&t,
                       "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-12-31 23:59:59.9000000,374,44\r\n"
                       "2024-01-01 00:00:00.1000000,396,109\r\n2024-03-01 00:00:00,1,1",
                       100, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
    cr_assert(t.n == 3 && t.entry[0].arrival_us == 0 && t.entry[0].n_prompt == 374 && t.entry[0].n_new == 44);
    cr_assert_eq(t.entry[1].arrival_us, 200000);
    cr_assert_eq(t.entry[2].arrival_us, 60ll * 86400 * 1000000 + 100000); /* January and a leap February */
    cr_assert_eq(t.entry[1].n_hashes, 0);
    qr_trace_release(&t);
}

Test(trace, reads_lengths_without_times)
{
    struct qr_trace t;
    struct qr_err err;
    cr_assert_eq(read_text(&t, "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.85\n1,2,3,0.5\n", 1, &err), 0);
    cr_assert(t.n == 1 && t.entry[0].arrival_us == 0 && t.entry[0].n_prompt == 3772 && t.entry[0].n_new == 54);
    qr_trace_release(&t);
}

Test(trace, makes_equal_prompts_of_equal_hash_ids)
{
    struct qr_trace t;
    struct qr_err err;
    int rc = read_text(&t,
                       "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 1]}\n"
                       "{\"timestamp\": 27, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [0, 2]}\n"
                       "{\"timestamp\": 27, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [0, 1]}\n",
                       100, &err);
    cr_assert_eq(rc, 0, "%s", err.msg);
    cr_assert(t.n == 3 && t.n_hashes == 6 && t.entry[1].arrival_us == 27000 && t.entry[2].first_hash == 4);
    static int32_t a[600], b[1024], c[1000];
    qr_trace_prompt(&t, 0, a, 32000);
    qr_trace_prompt(&t, 1, b, 32000);
    qr_trace_prompt(&t, 2, c, 32000);
    cr_assert_eq(memcmp(a, c, sizeof a), 0);
    cr_assert_eq(memcmp(a, b, 512 * sizeof *a), 0);
    cr_assert_neq(memcmp(a + 512, b + 512, 88 * sizeof *a), 0);
    for (int i = 0; i < 1024; i++)
        cr_assert(b[i] >= 0 && b[i] < 32000);
    qr_trace_release(&t);
}

Test(trace, refuses_what_is_no_trace_and_says_where)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "the file is empty"},
        {"a,b,c\n1,2,3\n", "line 1: the header names neither"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n", "there is no entry"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,374\n", "line 2: another number of fields"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16T18:15:46.6,374,4\n", "line 2: TIMESTAMP is not like"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:15:46.6,374,4\n", "line 2: TIMESTAMP is not like"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,374,4x\n", "line 2: a number of tokens is not a number"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,0,4\n", "line 2: the numbers of tokens must be from 1"},
        {"num_prefill_tokens,num_decode_tokens\n16777217,1\n", "line 2: the numbers of tokens must be from 1"},
        {"num_prefill_tokens,num_decode_tokens\n99999999999999999999,1\n", "line 2: a number of tokens is not a number"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,3,4\n2023-11-16 18:15:46.5,3,4\n", "line 3: the time goes backwards"},
        {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5", "line 1: "},
        {"{\"timestamp\": 0, \"input_length\": 600}", "line 1: timestamp, input_length and output_length must be"},
        {"{\"timestamp\": 0, \"input_length\": 600.5, \"output_length\": 5}", "must be integers"},
        {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": 7}", "hash_ids is not an array"},
        {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [-1, 2]}", "a hash id is not"},
        {"{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [1]}", "hash_ids are fewer"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct qr_trace t;
        struct qr_err err = {0};
        cr_assert_lt(read_text(&t, bad[i].text, 100, &err), 0, "accepted: %s", bad[i].text);
        cr_assert_not_null(strstr(err.msg, bad[i].says), "for <%s>: %s", bad[i].text, err.msg);
        cr_assert(t.entry == NULL && t.hashes == NULL);
    }
    struct qr_trace t;
    struct qr_err err;
    cr_assert_eq(qr_trace_read(&t, "/nowhere/trace.csv", 1, &err), QR_E_NOT_FOUND);
}
