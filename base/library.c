#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"

const char *qr_library_why_not(const char *path)
{
    QR_ASSERT(path != NULL);
    const char *s = dlerror();
    if (!s)
        return "no reason given";
    const size_t n = strlen(path);
    return strncmp(s, path, n) == 0 && strncmp(s + n, ": ", 2) == 0 ? s + n + 2 : s;
}

const char *qr_library_load(void *to, const char *file, const struct qr_library_symbol *symbol, int32_t n)
{
    QR_ASSERT(to != NULL && file != NULL);
    QR_ASSERT(symbol != NULL && n > 0);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return qr_library_why_not(file);
    for (int32_t i = 0; i < n; i++) {
        void *at = dlsym(library, symbol[i].name);
        if (!at)
            return qr_library_why_not(file);
        memcpy((char *)to + symbol[i].offset, &at, sizeof at);
    }
    return NULL;
}

bool qr_library_find(char path[QR_PATH_MAX], const char *name)
{
    static const char *const place[] = {"", "/../lib/quire", "/../lib"};
    char exe[QR_PATH_MAX];
    QR_ASSERT(path != NULL && name != NULL);
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *slash = NULL;
    if (n > 0) {
        exe[n] = 0;
        slash = strrchr(exe, '/');
    }
    if (!slash)
        return false;
    *slash = 0;
    for (int i = 0; i < QR_COUNT(place); i++)
        if (snprintf(path, QR_PATH_MAX, "%s%s/%s", exe, place[i], name) < QR_PATH_MAX && access(path, R_OK) == 0)
            return true;
    return false;
}
