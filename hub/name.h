/* name.h - what may be a name: of a model, of a revision, of a file in it. Everything that comes from the hub or the user passes here before it becomes part
 * of a path. Pure functions.
 */
#ifndef QR_HUB_NAME_H
#define QR_HUB_NAME_H

#include <stdbool.h>

#include "hub/hub.h"

#define QR_HUB_HASH_MAX 65 /* SHA-256 in hex, and its end */

struct qr_hub_name {
    char repo[QR_HUB_NAME_MAX];   /* "ORG/NAME" */
    char folder[QR_HUB_NAME_MAX]; /* "models--ORG--NAME" */
    const char *file;             /* borrowed: behind ':', or NULL */
};

/* False: `text` is no ORG/NAME[:FILE]. */
bool qr_hub_name_parse(struct qr_hub_name *out, const char *text);

/* The name of "models--ORG--NAME"; false for anything else. */
bool qr_hub_name_of_folder(struct qr_hub_name *out, const char *folder);

/* A relative path whose parts cannot lead out of where it begins: "1_Pooling/config.json". */
bool qr_hub_path_ok(const char *path);

/* Lower-case hex of 40 digits (SHA-1: commits, small files) or of 64 (SHA-256: large files). */
bool qr_hub_sha1_ok(const char *hex);
bool qr_hub_hash_ok(const char *hex);

#endif
