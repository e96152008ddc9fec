/* cpus.c - reads what Linux says of processors: sched_getaffinity, /sys (cores, hyperthreads, memory nodes) and the
 * quota of control groups, versions 1 and 2. The order that results takes one hyperthread of each core first, then the
 * second ones. Files that are missing count as a machine without them; no error ends a start. Pure functions of the
 * root directory; any thread. */
#include "base/cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/cgroup.h"

#define PATH_BYTES 512
#define LINE_BYTES 4096

static bool read_line(char line[LINE_BYTES], const char *path)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, LINE_BYTES, f) != NULL;
    fclose(f);
    if (ok)
        line[strcspn(line, "\n")] = 0;
    return ok;
}

/* A number from 0 to QR_CPUS_MAX - 1 at *s, which moves behind it; -1 when there is none. */
static int32_t number(const char **s)
{
    int32_t v = 0;
    const char *p = *s;
    for (; *p >= '0' && *p <= '9'; p++)
        if ((v = v * 10 + (*p - '0')) >= QR_CPUS_MAX)
            return -1;
    if (p == *s)
        return -1;
    *s = p;
    return v;
}

/* The ranges of "0-3,8"; false when the text is anything else. each() says false to stop. */
static bool walk_ranges(const char *text, bool (*each)(void *user, int32_t cpu), void *user)
{
    for (const char *s = text;; s++) {
        int32_t first = number(&s), last = first;
        if (first >= 0 && *s == '-') {
            s++;
            last = number(&s);
        }
        if (first < 0 || last < first || (*s != ',' && *s != 0))
            return false;
        for (int32_t cpu = first; cpu <= last; cpu++)
            if (!each(user, cpu))
                return false;
        if (*s == 0)
            return true;
    }
}

static int32_t place_of(const struct qr_cpus *c, int32_t cpu)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->cpu[i] == cpu)
            return i;
    return -1;
}

static bool add_once(void *user, int32_t cpu)
{
    struct qr_cpus *c = user;
    if (place_of(c, cpu) >= 0)
        return false;
    c->core[c->n] = c->cpu[c->n] = (int16_t)cpu;
    c->n++;
    return true;
}

int qr_cpus_parse(struct qr_cpus *out, const char *text, struct qr_err *err)
{
    QR_ASSERT(out != NULL && text != NULL);
    QR_ASSERT(err != NULL);
    *out = (struct qr_cpus){.n_nodes = 1};
    if (!walk_ranges(text, add_once, out))
        return qr_err_set(err, QR_E_USAGE, "expected a list of processors such as 0-3,8 (numbers below %d, each once), found '%.80s'", QR_CPUS_MAX,
                          text);
    out->n_cores = out->n;
    return 0;
}

void qr_cpus_allowed(struct qr_cpus *out)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(CPU_SETSIZE == QR_CPUS_MAX);
    cpu_set_t set;
    *out = (struct qr_cpus){.n_nodes = 1};
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_ZERO(&set);
    for (int32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            add_once(out, cpu);
    if (out->n == 0)
        add_once(out, 0);
    out->n_cores = out->n;
}

int qr_cpus_parse_allowed(struct qr_cpus *out, const char *text, struct qr_err *err)
{
    struct qr_cpus allowed;
    QR_ASSERT(out != NULL && text != NULL);
    QR_ASSERT(err != NULL);
    qr_cpus_allowed(&allowed);
    int rc = qr_cpus_parse(out, text, err);
    if (rc)
        return qr_err_prefix(err, "cpus: ");
    for (int32_t i = 0; i < out->n; i++)
        if (!qr_cpus_has(&allowed, out->cpu[i]))
            return qr_err_set(err, QR_E_USAGE, "cpus: this process may not use processor %d; it may use %d of them, see taskset -p", (int)out->cpu[i],
                              (int)allowed.n);
    return 0;
}

int qr_cpus_keep_to(const char *text, struct qr_err *err)
{
    struct qr_cpus c;
    cpu_set_t set;
    QR_ASSERT(text != NULL);
    QR_ASSERT(err != NULL);
    int rc = qr_cpus_parse_allowed(&c, text, err);
    CPU_ZERO(&set);
    for (int32_t i = 0; rc == 0 && i < c.n; i++)
        CPU_SET(c.cpu[i], &set);
    if (rc == 0 && sched_setaffinity(0, sizeof set, &set) != 0)
        return qr_err_set(err, QR_E_USAGE, "cpus: the system does not let this process keep to %.100s", text);
    return rc;
}

bool qr_cpus_has(const struct qr_cpus *c, int32_t cpu)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->n >= 0 && c->n <= QR_CPUS_MAX);
    return place_of(c, cpu) >= 0;
}

/* ---- cores and nodes ---- */

struct node_walk {
    struct qr_cpus *c;
    int8_t node;
    bool any;
};

static bool set_node(void *user, int32_t cpu)
{
    struct node_walk *w = user;
    int32_t i = place_of(w->c, cpu);
    if (i >= 0) {
        w->c->node[i] = w->node;
        w->any = true;
    }
    return true;
}

#define NODE_IDS 256

static bool mark(void *user, int32_t id)
{
    bool *listed = user;
    if (id < NODE_IDS)
        listed[id] = true;
    return true;
}

/* Which nodes to look for: those that the system lists, or any. */
static void list_nodes(bool listed[NODE_IDS], const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/node/online", root);
    memset(listed, 0, NODE_IDS * sizeof *listed);
    if (!read_line(line, path) || !walk_ranges(line, mark, listed))
        memset(listed, 1, NODE_IDS * sizeof *listed);
}

/* Nodes without a processor of the list do not count; beyond QR_NODES_MAX everything is the last one. */
static void find_nodes(struct qr_cpus *c, const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    bool listed[NODE_IDS];
    int32_t n = 0;
    list_nodes(listed, root);
    for (int32_t id = 0; id < NODE_IDS; id++) {
        if (!listed[id])
            continue;
        snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/cpulist", root, id);
        struct node_walk w = {.c = c, .node = (int8_t)(n < QR_NODES_MAX ? n : QR_NODES_MAX - 1)};
        if (!read_line(line, path))
            continue;
        walk_ranges(line, set_node, &w);
        if (w.any)
            c->node_id[w.node] = (int16_t)id;
        n += w.any;
    }
    c->n_nodes = n < 1 ? 1 : n < QR_NODES_MAX ? n : QR_NODES_MAX;
}

static int16_t core_of(int32_t cpu, const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, (int)cpu);
    const char *s = line;
    int32_t first = read_line(line, path) ? number(&s) : -1;
    return (int16_t)(first >= 0 ? first : cpu);
}

void qr_cpus_examine(struct qr_cpus *c, const char *root, bool order)
{
    QR_ASSERT(c != NULL && c->n >= 1 && c->n <= QR_CPUS_MAX);
    QR_ASSERT(root != NULL);
    static const struct qr_cpus none;
    struct qr_cpus sorted = none;
    bool first[QR_CPUS_MAX], seen[QR_CPUS_MAX] = {false};
    find_nodes(c, root);
    c->n_cores = 0;
    for (int32_t i = 0; i < c->n; i++) {
        c->core[i] = core_of(c->cpu[i], root);
        first[i] = !seen[c->core[i]];
        seen[c->core[i]] = true;
        c->n_cores += first[i];
    }
    for (int pass = 0; order && pass < 2; pass++)
        for (int32_t i = 0; i < c->n; i++)
            if (first[i] == (pass == 0)) {
                sorted.cpu[sorted.n] = c->cpu[i];
                sorted.core[sorted.n] = c->core[i];
                sorted.node[sorted.n++] = c->node[i];
            }
    if (order) {
        sorted.n_cores = c->n_cores;
        sorted.n_nodes = c->n_nodes;
        memcpy(sorted.node_id, c->node_id, sizeof sorted.node_id);
        *c = sorted;
    }
}

/* ---- quotas ---- */

static int32_t round_up(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    long long n = quota / period + (quota % period != 0);
    return n < QR_CPUS_MAX ? (int32_t)n : QR_CPUS_MAX;
}

static int32_t least(int32_t a, int32_t b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

static void look_v2(void *user, const char *dir)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    int32_t *quota = user;
    long long time, period;
    int n = snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (n > 0 && (size_t)n < sizeof path && read_line(line, path) && sscanf(line, "%lld %lld", &time, &period) == 2) /* "max 100000" is no limit */
        *quota = least(*quota, round_up(time, period));
}

static int32_t quota_v1(const char *root)
{
    char path[PATH_BYTES], quota[LINE_BYTES], period[LINE_BYTES];
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu/cpu.cfs_quota_us", root);
    if (!read_line(quota, path))
        return 0;
    snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu/cpu.cfs_period_us", root);
    return read_line(period, path) ? round_up(strtoll(quota, NULL, 10), strtoll(period, NULL, 10)) : 0;
}

int32_t qr_cpus_quota(const char *root)
{
    QR_ASSERT(root != NULL);
    QR_ASSERT(strlen(root) < PATH_BYTES / 2);
    int32_t n = quota_v1(root);
    qr_cgroup_each(root, "", look_v2, &n);
    return n;
}

int32_t qr_cpus_default_threads(const struct qr_cpus *c, int32_t quota)
{
    QR_ASSERT(c != NULL && c->n >= 1);
    QR_ASSERT(quota >= 0);
    int32_t n = c->n_cores > 0 ? c->n_cores : c->n;
    return quota > 0 && quota < n ? quota : n;
}
