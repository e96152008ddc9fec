/* chat.h - `quire chat`: talk to any OpenAI-compatible server, as a terminal conversation or as a filter in a pipe. */
#ifndef QR_CLIENT_CHAT_H
#define QR_CLIENT_CHAT_H

#include "base/command.h"

/* Exit status: 0 answered; 1 the server reported an error; 2 usage; 3 no connection; 4 no such model; 5 stopped by length
 * with --fail-on-length; 130 interrupted; 128 + n killed by signal n. */
extern const struct qr_command qr_chat_command;

#endif
