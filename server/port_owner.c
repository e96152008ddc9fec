#include "server/port_owner.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"

#define STATE_LISTEN 0x0a

/* The inode of the listening socket in one of /proc/net/tcp and /proc/net/tcp6, or 0. */
static unsigned long find_inode(const char *path, int32_t port)
{
    FILE *f = fopen(path, "r");
    char line[512];
    unsigned long inode = 0;
    while (f && inode == 0 && fgets(line, sizeof line, f)) {
        unsigned local_port, state;
        unsigned long found;
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*s %*s %lu", &local_port, &state, &found) == 3 &&
            state == STATE_LISTEN && local_port == (unsigned)port)
            inode = found;
    }
    if (f)
        fclose(f);
    return inode;
}

static bool holds(const char *pid, const char *wanted)
{
    char path[300], link[64];
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    bool found = false;
    struct dirent *entry;
    while (dir && !found && (entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof path, "/proc/%.20s/fd/%.200s", pid, entry->d_name);
        ssize_t n = readlink(path, link, sizeof link - 1);
        found = n > 0 && (size_t)n == strlen(wanted) && memcmp(link, wanted, (size_t)n) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

static void describe(char *out, size_t size, const char *pid)
{
    char path[64], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    FILE *f = fopen(path, "r");
    if (f) {
        if (fgets(name, sizeof name, f))
            name[strcspn(name, "\n")] = 0;
        fclose(f);
    }
    snprintf(out, size, "pid %.20s (%s)", pid, name);
}

void qr_port_owner(char *out, size_t size, int32_t port)
{
    QR_ASSERT(out != NULL && size > 0);
    QR_ASSERT(port >= 0 && port <= 65535);
    out[0] = 0;
    unsigned long inode = find_inode("/proc/net/tcp", port);
    if (inode == 0)
        inode = find_inode("/proc/net/tcp6", port);
    if (inode == 0)
        return;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && out[0] == 0 && (entry = readdir(proc)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && holds(entry->d_name, wanted))
            describe(out, size, entry->d_name);
    if (proc)
        closedir(proc);
}
