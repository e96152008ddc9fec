/* The server's settings: one row each. */
#include <string.h>

#include "base/assert.h"
#include "server/server.h"

#define AT(field) offsetof(struct qr_server_config, field)
#define SEC 1e6
#define HOUR 3.6e9
#define GIB 1073741824.0
#define NET "Server"
#define LIM "Server limits"

static const struct qr_option rows[] = {
    {.name = "host", .brief = true, .type = QR_OPT_STR, .offset = AT(host), .builtin = "127.0.0.1", .arg = "HOST", .group = NET,
     .help = "Address to listen on. Anything but a loopback address should come with --api-key."},
    {.name = "port", .brief = true, .letter = 'p', .type = QR_OPT_INT, .offset = AT(port), .builtin = "8000", .min = 0, .max = 65535, .arg = "N", .group = NET,
     .help = "TCP port; 0 takes any free one and prints it."},
    {.name = "served-model-name", .brief = true, .type = QR_OPT_LIST, .offset = AT(served_names), .arg = "NAME", .group = NET,
     .help = "Name that clients call the model by; may be repeated. The first one appears in answers."},
    {.name = "api-key", .brief = true, .type = QR_OPT_LIST, .offset = AT(api_keys), .arg = "KEY", .group = NET,
     .help = "Key that clients must send as 'Authorization: Bearer KEY'; may be repeated."},
    {.name = "api-key-file", .type = QR_OPT_STR, .offset = AT(api_key_file), .arg = "FILE", .group = NET,
     .help = "File with one key per line."},
    {.name = "admin-key", .type = QR_OPT_LIST, .offset = AT(admin_keys), .arg = "KEY", .group = NET,
     .help = "Key that may also call the administrative routes (/metrics)."},
    {.name = "admin-key-file", .type = QR_OPT_STR, .offset = AT(admin_key_file), .arg = "FILE", .group = NET,
     .help = "File with one admin key per line."},
    {.name = "lora-dir", .type = QR_OPT_STR, .offset = AT(lora_dir), .arg = "DIR", .group = "Adapters",
     .help = "Adapters below this directory may be loaded while the server runs (POST /v1/load_lora_adapter, admin key); links that lead out of it are "
             "refused."},
    {.name = "pooling", .type = QR_OPT_ENUM, .offset = AT(pooling), .builtin = "auto", .choices = QR_POOLING_CHOICES, .group = "Embeddings",
     .help = "Which of the model's last rows make an embedding (POST /v1/embeddings): the last one, the mean of all or the first; auto: as modules.json and "
             "its Pooling module say, else the last, normalised."},
    {.name = "cors-origin", .type = QR_OPT_LIST, .offset = AT(cors_origins), .arg = "ORIGIN", .group = NET,
     .help = "Origin whose web pages may call this server, such as https://example.org, or * for all; may be repeated."},
    {.name = "allowed-host", .type = QR_OPT_LIST, .offset = AT(allowed_hosts), .arg = "NAME", .group = NET,
     .help = "Further Host name accepted on a loopback address; others are refused, which stops DNS rebinding."},
    {.name = "trust-special-tokens", .type = QR_OPT_FLAG, .offset = AT(trust_special), .builtin = "false", .group = NET,
     .help = "Take special tokens written in user text as such. Off, they are plain text and cannot forge a role."},
    {.name = "request-timeout", .type = QR_OPT_TIME, .offset = AT(request_us), .builtin = "600s", .min = 0.1 * SEC, .max = 24 * HOUR, .arg = "T",
     .group = LIM, .help = "Longest time of one request from arrival to its last token."},
    {.name = "drain-timeout", .type = QR_OPT_TIME, .offset = AT(drain_us), .builtin = "30s", .min = 0, .max = HOUR, .arg = "T", .group = LIM,
     .help = "After SIGTERM, how long running requests may take to finish."},
    {.name = "watchdog", .type = QR_OPT_TIME, .offset = AT(watchdog_us), .builtin = "30s", .min = 0.1 * SEC, .max = HOUR, .arg = "T", .group = LIM,
     .help = "With work at hand and no engine step for so long, /readyz and /health answer 503."},
    {.name = "max-connections", .type = QR_OPT_INT, .offset = AT(connections_max), .builtin = "4096", .min = 1, .max = 1000000, .arg = "N",
     .group = LIM, .help = "Open connections; at the limit the longest idle one is closed first."},
    {.name = "max-connections-per-address", .type = QR_OPT_INT, .offset = AT(per_address_max), .builtin = "256", .min = 1, .max = 1000000, .arg = "N",
     .group = LIM, .help = "Open connections from one address; loopback clients are not counted."},
    {.name = "max-header-size", .type = QR_OPT_BYTES, .offset = AT(header_bytes), .builtin = "16KiB", .min = 1024, .max = 1048576, .arg = "BYTES",
     .group = LIM, .help = "Largest head of a request."},
    {.name = "max-header-fields", .type = QR_OPT_INT, .offset = AT(header_fields), .builtin = "100", .min = 10, .max = 10000, .arg = "N", .group = LIM,
     .help = "Most header fields of a request."},
    {.name = "max-body-size", .type = QR_OPT_BYTES, .offset = AT(body_bytes), .builtin = "4MiB", .min = 1024, .max = 4194304, .arg = "BYTES",
     .group = LIM, .help = "Largest body of a request."},
    {.name = "max-bodies-size", .type = QR_OPT_BYTES, .offset = AT(bodies_bytes), .builtin = "256MiB", .min = 1048576, .max = 64 * GIB, .arg = "BYTES",
     .group = LIM, .help = "Memory that all requests may hold together: bodies (half of it at most), what they are read to, and answers. Past it requests get "
             "503, embeddings 429. Less where the model leaves less: half of what is free then."},
    {.name = "header-timeout", .type = QR_OPT_TIME, .offset = AT(header_us), .builtin = "10s", .min = 0.1 * SEC, .max = HOUR, .arg = "T", .group = LIM,
     .help = "Longest time from the first byte of a head to its last; a body gets the same grace before its rate counts."},
    {.name = "idle-timeout", .type = QR_OPT_TIME, .offset = AT(idle_us), .builtin = "75s", .min = 0.1 * SEC, .max = 24 * HOUR, .arg = "T", .group = LIM,
     .help = "A connection without a request is closed after so long."},
    {.name = "min-body-rate", .type = QR_OPT_BYTES, .offset = AT(body_rate), .builtin = "1KiB", .min = 0, .max = GIB, .arg = "BYTES", .group = LIM,
     .help = "Bytes per second below which an arriving body is given up."},
    {.name = "stream-buffer", .type = QR_OPT_BYTES, .offset = AT(stream_soft_bytes), .builtin = "256KiB", .min = 4096, .max = GIB, .arg = "BYTES",
     .group = LIM, .help = "Unread bytes of a stream that a slow reader may leave for --stall-timeout."},
    {.name = "max-stream-buffer", .type = QR_OPT_BYTES, .offset = AT(stream_hard_bytes), .builtin = "1MiB", .min = 4096, .max = GIB, .arg = "BYTES",
     .group = LIM, .help = "Unread bytes of a stream that end it."},
    {.name = "stall-timeout", .type = QR_OPT_TIME, .offset = AT(stall_us), .builtin = "30s", .min = 0.1 * SEC, .max = HOUR, .arg = "T", .group = LIM,
     .help = "A reader that takes nothing for so long is given up."},
    {.name = "sse-ping", .type = QR_OPT_TIME, .offset = AT(ping_us), .builtin = "15s", .min = 0.1 * SEC, .max = HOUR, .arg = "T", .group = LIM,
     .help = "A silent stream gets a comment line after so long."},
};

int32_t qr_server_option_count(void)
{
    return QR_COUNT(rows);
}

void qr_server_option_rows(struct qr_option *out, size_t base_offset)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(base_offset < SIZE_MAX / 2);
    memcpy(out, rows, sizeof rows);
    for (int i = 0; i < QR_COUNT(rows); i++)
        out[i].offset += base_offset;
}

void qr_server_config_init(struct qr_server_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(rows[0].name != NULL);
    *c = (struct qr_server_config){
        .host = "127.0.0.1", .port = 8000, .connections_max = 4096, .per_address_max = 256, .header_bytes = 16 << 10,
        .header_fields = 100, .body_bytes = 4 << 20, .bodies_bytes = 256 << 20, .header_us = 10000000, .idle_us = 75000000,
        .body_rate = 1024, .stream_soft_bytes = 256 << 10, .stream_hard_bytes = 1 << 20, .stall_us = 30000000, .ping_us = 15000000,
        .request_us = 600000000, .drain_us = 30000000, .watchdog_us = 30000000,
    };
}
