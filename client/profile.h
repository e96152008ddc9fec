/* profile.h - `quire profile`: a stretch of a server's time as a Chrome trace, from POST /v1/ops/profile. */
#ifndef QR_CLIENT_PROFILE_H
#define QR_CLIENT_PROFILE_H

#include "base/command.h"

/* Exit status: 0 the trace is written; 1 the server reported an error; 2 usage; 3 no connection; 4 the file cannot be written. */
extern const struct qr_command qr_profile_command;

#endif
