#include "base/size.h"

#include <stdio.h>

#include "base/assert.h"

const char *qr_size_text(char text[QR_SIZE_TEXT], int64_t n_bytes)
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB"};
    QR_ASSERT(text != NULL);
    if (n_bytes < 1024) {
        snprintf(text, QR_SIZE_TEXT, "%lld B", (long long)n_bytes);
        return text;
    }
    double v = (double)n_bytes / 1024;
    int i = 0;
    for (; v >= 1024 && i < QR_COUNT(unit) - 1; i++)
        v /= 1024;
    snprintf(text, QR_SIZE_TEXT, "%.1f %s", v, unit[i]);
    return text;
}
