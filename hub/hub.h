/* hub.h - models by name: ORG/NAME[:FILE] becomes a path in the cache that huggingface_hub keeps, and what the cache lacks is fetched from the hub.
 *
 * A local path wins over a name. The cache is asked first; the hub only for what is not there, and never when that is forbidden (--offline, HF_HUB_OFFLINE).
 * What is in the files is the loader's: here they are names, sizes and hashes. libcurl does not leak through this header. One thread, before others exist.
 */
#ifndef QR_HUB_HUB_H
#define QR_HUB_HUB_H

#include <stdbool.h>

#include "base/command.h"
#include "base/err.h"
#include "base/file.h"

struct qr_hub_options {
    const char *revision; /* borrowed: branch, tag or commit; NULL: main */
    bool offline;
};

/* Rows of an option table for a struct T with a member `h` (struct qr_hub_options), under a heading. */
#define QR_HUB_ROWS(T, h, heading)                                                                                                \
    {.name = "revision", .type = QR_OPT_STR, .offset = offsetof(T, h.revision), .arg = "REV", .group = heading,                    \
     .help = "Branch, tag or commit of a model that is named ORG/NAME[:FILE]; main otherwise."},                                  \
    {.name = "offline", .type = QR_OPT_FLAG, .offset = offsetof(T, h.offline), .builtin = "false", .group = heading,               \
     .help = "Fetch nothing: a model that is named ORG/NAME[:FILE] has to be in the cache, as with HF_HUB_OFFLINE=1."}

/* For a command's `settle`: a row "model" that names a model of the hub gets its path, beside rows "revision" and "offline". What the cache lacks is fetched,
 * but for --check-config. A path that exists, and what is no name, stays as it is. Ctrl-C: QR_E_CLOSED and the status of the signal. */
int qr_hub_settle(struct qr_option_set *set, struct qr_command_run *r, struct qr_err *err);

/* The same for one model. path becomes where it is; `command` begins lines on stderr. *status is set with QR_E_CLOSED. */
int qr_hub_find(char path[QR_PATH_MAX], const char *model, const struct qr_hub_options *o, const char *command, int *status, struct qr_err *err);

/* Asks the hub what the revision means now, and fetches what of that the cache lacks; path becomes where the model is. Errors: QR_E_USAGE for no name, or for a
 * model of several GGUF files of which none is named; QR_E_NOT_FOUND, QR_E_DENIED by the hub; QR_E_IO, QR_E_NO_ROOM, QR_E_DAMAGED; QR_E_CLOSED and *status by a
 * signal. */
int qr_hub_pull(char path[QR_PATH_MAX], const char *model, const struct qr_hub_options *o, const char *command, int *status, struct qr_err *err);

/* Prints what the cache has, a line for each thing that can be named; json: a JSON object for each. */
int qr_hub_list(bool json, struct qr_err *err);

/* Removes a model, or one revision or file of it, and the blobs that nothing else of it uses. Asks on a terminal unless `yes`. */
int qr_hub_remove(const char *model, const struct qr_hub_options *o, bool yes, struct qr_err *err);

/* "ORG/NAME" of a path in the hub's cache: .../models--ORG--NAME/snapshots/REVISION or a file in that. False: it is none. */
#define QR_HUB_NAME_MAX 256
bool qr_hub_name_of_path(char out[QR_HUB_NAME_MAX], const char *path);

#endif
