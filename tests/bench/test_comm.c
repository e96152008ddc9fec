/* The measurement of ranks: those that need nothing installed run through, and print every figure. */
#include <criterion/criterion.h>

#include "bench/bench.h"
#include "tests/run_main.h"

static void expect_figures(const char *words, const char *first, int n_reduces)
{
    struct qr_buf text = {0};
    cr_assert_eq(run_main(&qr_bench_comm_command, words, &text), 0);
    cr_assert(strncmp(text.data, first, strlen(first)) == 0, "%s", text.data);
    int n = 0;
    for (const char *at = text.data; (at = strstr(at, "\nall_reduce, ")) != NULL; at++)
        n++;
    cr_assert_eq(n, n_reduces, "%s", text.data);
    cr_assert_not_null(strstr(text.data, "\nmemcpy on every rank"));
    cr_assert_not_null(strstr(text.data, "\nwaiting for a late rank"));
    qr_buf_release(&text);
}

Test(bench_comm, figures_of_processes_are_printed_for_both_kinds_of_memory)
{
    expect_figures("comm --ranks 2 --mib 2.5 --rounds 2", "2 ranks, shm, 2.5 MiB of f32 on each\n", 2);
}

Test(bench_comm, more_ranks_than_there_may_be_are_a_usage_error)
{
    cr_assert_eq(run_main(&qr_bench_comm_command, "comm --ranks 65", NULL), 2);
}
