/* library.h - shared libraries that the program opens when it needs them, and runs without. */
#ifndef QR_BASE_LIBRARY_H
#define QR_BASE_LIBRARY_H

#include <stdbool.h>

#include "base/err.h"
#include "base/file.h"

/* The path of library `name`: beside the program, then in ../lib/quire and ../lib of where the program is. False when it is in none of them. */
bool qr_library_find(char path[QR_PATH_MAX], const char *name);

/* What the last dlopen of `path` has to say, without the path in front, which a message has already. */
const char *qr_library_why_not(const char *path);

#endif
