/* library.h - shared libraries that the program opens when it needs them, and runs without. */
#ifndef QR_BASE_LIBRARY_H
#define QR_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

/* The path of library `name`: beside the program, then in ../lib/quire and ../lib of where the program is. False when it is in none of them. */
bool qr_library_find(char path[QR_PATH_MAX], const char *name);

/* A function of a library: the offset of the pointer to it in the struct that holds all of them, and its name. */
struct qr_library_symbol {
    size_t offset;
    const char *name;
};

/* Opens `file` until the process ends, and fills the pointers to its functions in *to. NULL, or what is missing: borrowed until the next use of a library. */
const char *qr_library_load(void *to, const char *file, const struct qr_library_symbol *symbol, int32_t n);

/* What the last dlopen of `path` has to say, without the path in front, which a message has already. */
const char *qr_library_why_not(const char *path);

#endif
