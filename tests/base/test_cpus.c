/* Machines laid out as files: hyperthreads, memory nodes, quotas. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/cpus.h"
#include "base/thread.h"
#include "tests/temp.h"

struct machine {
    char root[64];
};

static void machine_begin(struct machine *m)
{
    temp_dir_make(m->root, "cpus");
}

static void machine_end(const struct machine *m)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", m->root);
    cr_assert_eq(system(command), 0);
}

__attribute__((format(printf, 3, 4))) static void put(const struct machine *m, const char *text, const char *format, ...)
{
    char path[512];
    va_list args;
    int n = snprintf(path, sizeof path, "%s", m->root);
    va_start(args, format);
    vsnprintf(path + n, sizeof path - (size_t)n, format, args);
    va_end(args);
    for (char *s = path + n + 1; (s = strchr(s, '/')); *s++ = '/') {
        *s = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(const struct qr_cpus *c, int32_t n, const int16_t *cpu)
{
    cr_assert_eq(c->n, n);
    for (int32_t i = 0; i < n; i++)
        cr_assert_eq(c->cpu[i], cpu[i], "place %d holds processor %d, expected %d", i, c->cpu[i], cpu[i]);
}

Test(cpus, a_list_of_numbers_and_ranges_is_kept_in_its_order)
{
    struct qr_cpus c;
    struct qr_err err;
    cr_assert_eq(qr_cpus_parse(&c, "8,0-3", &err), 0);
    expect(&c, 5, (int16_t[]){8, 0, 1, 2, 3});
    cr_assert(qr_cpus_has(&c, 2) && !qr_cpus_has(&c, 4));
    cr_assert_eq(qr_cpus_parse(&c, "1023", &err), 0);
    static const char *const bad[] = {"", ",", "1,", "a", "1-", "-1", "3-1", "1 2", "0,0", "0-3,2", "1024", "99999999999999999999", "0-1024"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(qr_cpus_parse(&c, bad[i], &err), QR_E_USAGE, "\"%s\" was taken", bad[i]);
        cr_assert_not_null(strstr(err.msg, "0-3,8"), "the message shows how it is done");
    }
}

Test(cpus, one_thread_of_each_core_comes_before_the_second_ones)
{
    struct machine m;
    struct qr_cpus c;
    struct qr_err err;
    machine_begin(&m);
    for (int i = 0; i < 8; i++) /* siblings side by side, as some systems number them */
        put(&m, (const char *[]){"0-1\n", "2-3\n", "4-5\n", "6-7\n"}[i / 2], "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
    cr_assert_eq(qr_cpus_parse(&c, "0-7", &err), 0);
    qr_cpus_examine(&c, m.root, true);
    expect(&c, 8, (int16_t[]){0, 2, 4, 6, 1, 3, 5, 7});
    cr_assert_eq(c.n_cores, 4);
    cr_assert_eq(qr_cpus_default_threads(&c, 0), 4);
    cr_assert_eq(qr_cpus_default_threads(&c, 3), 3);
    cr_assert_eq(qr_cpus_default_threads(&c, 64), 4);
    cr_assert_eq(qr_cpus_parse(&c, "7,3,6", &err), 0); /* a core whose first thread is not in the list is one all the same */
    qr_cpus_examine(&c, m.root, true);
    expect(&c, 3, (int16_t[]){7, 3, 6});
    cr_assert_eq(c.n_cores, 2);
    cr_assert_eq(qr_cpus_parse(&c, "1,0", &err), 0);
    qr_cpus_examine(&c, m.root, false);
    expect(&c, 2, (int16_t[]){1, 0});
    cr_assert_eq(c.n_cores, 1);
    machine_end(&m);
}

Test(cpus, belong_to_the_nodes_that_the_system_names)
{
    struct machine m;
    struct qr_cpus c;
    struct qr_err err;
    machine_begin(&m);
    put(&m, "0-1,4-5\n", "/sys/devices/system/node/node0/cpulist");
    put(&m, "\n", "/sys/devices/system/node/node1/cpulist"); /* memory without processors */
    put(&m, "2-3,6-7\n", "/sys/devices/system/node/node3/cpulist");
    cr_assert_eq(qr_cpus_parse(&c, "0-7", &err), 0);
    qr_cpus_examine(&c, m.root, true);
    cr_assert_eq(c.n_nodes, 2);
    cr_assert(c.node_id[0] == 0 && c.node_id[1] == 3);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(c.node[i], i / 2 % 2);
    cr_assert_eq(qr_cpus_parse(&c, "6,7", &err), 0);
    qr_cpus_examine(&c, m.root, true);
    cr_assert_eq(c.n_nodes, 1, "a node without workers does not count");
    cr_assert_eq(c.node[0] + c.node[1], 0);
    static const char *const online[] = {"0-1,3\n", "what is this\n", "0\n"}; /* where the system lists them, only these are looked for */
    for (int i = 0; i < 3; i++) {
        put(&m, online[i], "/sys/devices/system/node/online");
        cr_assert_eq(qr_cpus_parse(&c, "0-7", &err), 0);
        qr_cpus_examine(&c, m.root, true);
        cr_assert_eq(c.n_nodes, i < 2 ? 2 : 1);
        cr_assert(i == 2 || c.node_id[1] == 3);
    }
    machine_end(&m);
}

Test(cpus, without_files_every_processor_is_a_core_on_one_node)
{
    struct qr_cpus c;
    struct qr_err err;
    cr_assert_eq(qr_cpus_parse(&c, "0-2", &err), 0);
    qr_cpus_examine(&c, "/nowhere", true);
    expect(&c, 3, (int16_t[]){0, 1, 2});
    cr_assert_eq(c.n_cores, 3);
    cr_assert_eq(c.n_nodes, 1);
    cr_assert_eq(qr_cpus_quota("/nowhere"), 0);
    qr_cpus_allowed(&c);
    cr_assert_eq(c.n, qr_cpu_count());
}

Test(cpus, the_smallest_quota_on_the_way_to_the_root_holds_rounded_up)
{
    struct machine m;
    machine_begin(&m);
    put(&m, "1:cpu:/old\n0::/a/b\n", "/proc/self/cgroup");
    cr_assert_eq(qr_cpus_quota(m.root), 0);
    put(&m, "max 100000\n", "/sys/fs/cgroup/a/b/cpu.max");
    cr_assert_eq(qr_cpus_quota(m.root), 0);
    put(&m, "250000 100000\n", "/sys/fs/cgroup/a/cpu.max");
    cr_assert_eq(qr_cpus_quota(m.root), 3);
    put(&m, "50000 100000\n", "/sys/fs/cgroup/a/b/cpu.max");
    cr_assert_eq(qr_cpus_quota(m.root), 1);
    put(&m, "nonsense\n", "/sys/fs/cgroup/a/b/cpu.max");
    cr_assert_eq(qr_cpus_quota(m.root), 3);
    put(&m, "0::/\n", "/proc/self/cgroup"); /* inside a container */
    put(&m, "200000 100000\n", "/sys/fs/cgroup/cpu.max");
    cr_assert_eq(qr_cpus_quota(m.root), 2);
    machine_end(&m);
}

Test(cpus, an_old_quota_counts_as_well)
{
    struct machine m;
    machine_begin(&m);
    put(&m, "-1\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    put(&m, "100000\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    cr_assert_eq(qr_cpus_quota(m.root), 0);
    put(&m, "150000\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    cr_assert_eq(qr_cpus_quota(m.root), 2);
    machine_end(&m);
}

Test(cpus, memory_is_what_the_tightest_group_on_the_way_to_the_root_leaves)
{
    struct machine m;
    machine_begin(&m);
    cr_assert_eq(qr_cgroup_memory_left(m.root), INT64_MAX);
    put(&m, "4:cpu,memory:/old/one\n0::/a/b.service\n", "/proc/self/cgroup");
    put(&m, "max\n", "/sys/fs/cgroup/a/b.service/memory.max");
    put(&m, "300\n", "/sys/fs/cgroup/a/b.service/memory.current");
    cr_assert_eq(qr_cgroup_memory_left(m.root), INT64_MAX);
    put(&m, "1000\n", "/sys/fs/cgroup/a/b.service/memory.max");
    cr_assert_eq(qr_cgroup_memory_left(m.root), 700, "as systemd's MemoryMax= sets it");
    put(&m, "anon 50\nfile 250\ninactive_file 100\nactive_file 150\n", "/sys/fs/cgroup/a/b.service/memory.stat");
    cr_assert_eq(qr_cgroup_memory_left(m.root), 950, "pages of files go when memory is needed");
    put(&m, "2000\n", "/sys/fs/cgroup/a/memory.max");
    put(&m, "1900\n", "/sys/fs/cgroup/a/memory.current");
    cr_assert_eq(qr_cgroup_memory_left(m.root), 100, "a parent's limit holds, too");
    put(&m, "9223372036854771712\n", "/sys/fs/cgroup/memory/old/one/memory.limit_in_bytes");
    put(&m, "70\n", "/sys/fs/cgroup/memory/old/one/memory.usage_in_bytes");
    cr_assert_eq(qr_cgroup_memory_left(m.root), 100);
    put(&m, "80\n", "/sys/fs/cgroup/memory/old/one/memory.limit_in_bytes");
    put(&m, "total_inactive_file 5\ntotal_active_file 0\n", "/sys/fs/cgroup/memory/old/one/memory.stat");
    cr_assert_eq(qr_cgroup_memory_left(m.root), 15, "of version 1");
    put(&m, "90\n", "/sys/fs/cgroup/memory/old/one/memory.usage_in_bytes");
    cr_assert_eq(qr_cgroup_memory_left(m.root), 0, "beyond the limit");
    machine_end(&m);
}
