#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define LINE_BYTES 512

/* Is a line of /proc/self/cgroup ("4:memory:/path", version 2: "0::/path") about this controller? */
static bool is_about(const char *line, const char *controller)
{
    const char *list = strchr(line, ':'), *end = list ? strchr(++list, ':') : NULL;
    const size_t n = strlen(controller);
    if (!end)
        return false;
    if (n == 0)
        return list == end;
    for (const char *at = list; at < end; at += strcspn(at, ",:") + 1)
        if (strcspn(at, ",:") == n && strncmp(at, controller, n) == 0)
            return true;
    return false;
}

static void read_group(char group[LINE_BYTES], const char *root, const char *controller)
{
    char path[QR_CGROUP_PATH_MAX], line[LINE_BYTES];
    group[0] = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (is_about(line, controller))
            snprintf(group, LINE_BYTES, "%s", strchr(strchr(line, ':') + 1, ':') + 1);
    if (f)
        fclose(f);
    group[strcspn(group, "\n")] = 0;
}

void qr_cgroup_each(const char *root, const char *controller, void (*each)(void *user, const char *dir), void *user)
{
    QR_ASSERT(root != NULL && strlen(root) < QR_CGROUP_PATH_MAX / 2);
    QR_ASSERT(controller != NULL && each != NULL);
    char group[LINE_BYTES], dir[QR_CGROUP_PATH_MAX];
    read_group(group, root, controller);
    if (strcmp(group, "/") == 0)
        group[0] = 0;
    for (;;) {
        const int n = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s%s%s", root, *controller ? "/" : "", controller, group);
        if (n > 0 && (size_t)n < sizeof dir)
            each(user, dir);
        char *slash = strrchr(group, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

/* The number that the file holds, or that stands behind "NAME " in one of its lines; -1 where there is none. */
static long long number_in(const char *dir, const char *file, const char *name)
{
    char path[QR_CGROUP_PATH_MAX + 32], line[128];
    const size_t len = strlen(name);
    long long value = -1;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    while (f && value < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, name, len) != 0 || sscanf(line + len, "%lld", &value) != 1)
            value = -1;
    if (f)
        fclose(f);
    return value;
}

static void lower(int64_t *left, long long max, long long used, long long inactive, long long active)
{
    if (max < 0 || used < 0) /* "max" is no limit */
        return;
    const long long files = (inactive > 0 ? inactive : 0) + (active > 0 ? active : 0), taken = used > files ? used - files : 0;
    const int64_t n = max > taken ? max - taken : 0;
    *left = n < *left ? n : *left;
}

static void look_v2(void *left, const char *dir)
{
    lower(left, number_in(dir, "memory.max", ""), number_in(dir, "memory.current", ""), number_in(dir, "memory.stat", "inactive_file "),
          number_in(dir, "memory.stat", "active_file "));
}

static void look_v1(void *left, const char *dir)
{
    lower(left, number_in(dir, "memory.limit_in_bytes", ""), number_in(dir, "memory.usage_in_bytes", ""),
          number_in(dir, "memory.stat", "total_inactive_file "), number_in(dir, "memory.stat", "total_active_file "));
}

int64_t qr_cgroup_memory_left(const char *root)
{
    QR_ASSERT(root != NULL);
    int64_t left = INT64_MAX;
    qr_cgroup_each(root, "", look_v2, &left);
    qr_cgroup_each(root, "memory", look_v1, &left);
    return left;
}
