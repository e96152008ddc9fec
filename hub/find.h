/* find.h - inside hub/ only: what the places of one run are, and what finding a model and fetching it share. */
#ifndef QR_HUB_FIND_H
#define QR_HUB_FIND_H

#include "hub/cache.h"

struct qr_hub_place {
    struct qr_hub_cache cache;
    char endpoint[512];   /* no slash at its end */
    const char *revision; /* borrowed: "main" */
    bool offline;
};

/* From options and environment. Errors: QR_E_USAGE. */
int qr_hub_place_find(struct qr_hub_place *p, const struct qr_hub_options *o, struct qr_err *err);

/* Fetches what the cache lacks; path becomes where the model is (hub.h: qr_hub_pull). */
int qr_hub_fetch_model(char path[QR_PATH_MAX], const struct qr_hub_place *place, const struct qr_hub_name *name, const char *command, int *status,
                       struct qr_err *err);

/* Adds to *err what to type on a machine that has a network, and where to put it. Returns the code. */
int qr_hub_say_elsewhere(const struct qr_hub_place *place, const struct qr_hub_name *name, struct qr_err *err);

#endif
