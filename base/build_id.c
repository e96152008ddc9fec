#include "base/build_id.h"

#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

static int find_build(struct dl_phdr_info *info, size_t size, void *user)
{
    char *hex = user;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_NOTE)
            continue;
        const char *at = (const char *)(uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), *end = at + info->dlpi_phdr[i].p_memsz;
        while (end - at >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) n;
            memcpy(&n, at, sizeof n);
            at += sizeof n;
            const char *name = at, *id = at + qr_align_up(n.n_namesz, 4);
            at = id + qr_align_up(n.n_descsz, 4);
            if (n.n_type != NT_GNU_BUILD_ID || n.n_namesz != 4 || memcmp(name, "GNU", 4) != 0 || at > end)
                continue;
            for (uint32_t k = 0; k < n.n_descsz && k < QR_BUILD_ID_TEXT / 2 - 1; k++)
                snprintf(hex + (size_t)2 * k, 3, "%02x", (unsigned)(uint8_t)id[k]);
        }
    }
    return 1; /* the program is the first, and libraries do not count */
}

const char *qr_build_id(char out[QR_BUILD_ID_TEXT])
{
    QR_ASSERT(out != NULL);
    out[0] = 0;
    dl_iterate_phdr(find_build, out);
    QR_ASSERT(strlen(out) < QR_BUILD_ID_TEXT);
    return out;
}
