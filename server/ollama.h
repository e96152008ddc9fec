/* ollama.h - inside api_ollama.c and ollama_in.c only: ollama's API as doors (door.h), one for /api/chat and one for /api/generate. */
#ifndef QR_SERVER_OLLAMA_H
#define QR_SERVER_OLLAMA_H

#include "server/door.h"

#define QR_OLLAMA_CHAT_FIELDS 12
#define QR_OLLAMA_GENERATE_FIELDS 16
#define QR_OLLAMA_PATHS 13
extern const struct qr_door_field qr_ollama_chat_field[QR_OLLAMA_CHAT_FIELDS], qr_ollama_generate_field[QR_OLLAMA_GENERATE_FIELDS];
extern const struct qr_door qr_door_ollama_chat, qr_door_ollama_generate;
extern const struct qr_door_path qr_ollama_path[QR_OLLAMA_PATHS];

/* A stream is what is answered with where the body does not say. */
int qr_ollama_settle(struct qr_door_in *in, struct qr_err *err);

#endif
