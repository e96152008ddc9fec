#include "exchange/parcel.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"

static int map_memory(struct qr_parcels *p, size_t n_bytes, bool shared, struct qr_err *err)
{
    if (shared) {
        p->fd = memfd_create("quire-blocks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (p->fd < 0 || ftruncate(p->fd, (off_t)n_bytes) != 0)
            return qr_err_set(err, QR_E_IO, "no shared memory of %zu bytes for blocks: %s", n_bytes, strerror(errno));
    }
    void *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, p->fd, 0);
    if (at == MAP_FAILED)
        return qr_err_set(err, QR_E_NO_ROOM, "no memory of %zu bytes for blocks on their way: %s", n_bytes, strerror(errno));
    p->memory = at;
    return 0;
}

int qr_parcels_open(struct qr_parcels *p, int32_t n, size_t block_bytes, bool shared, struct qr_err *err)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    QR_ASSERT(p != NULL && err != NULL);
    QR_ASSERT(n >= 1 && block_bytes >= 1 && block_bytes <= SIZE_MAX / 4 / (size_t)n);
    *p = (struct qr_parcels){.fd = -1, .n = n, .block_bytes = block_bytes, .stride = (block_bytes + page - 1) / page * page};
    qr_list_init(&p->here);
    pthread_mutex_init(&p->lock, NULL);
    const int rc = map_memory(p, (size_t)n * p->stride, shared, err);
    if (rc != 0) {
        qr_parcels_close(p);
        return rc;
    }
    p->parcel = qr_alloc((size_t)n, sizeof *p->parcel);
    for (int32_t i = 0; i < n; i++) {
        p->parcel[i] = (struct qr_parcel){.home = p, .bytes = p->memory + (size_t)i * p->stride, .number = i};
        qr_list_push_back(&p->here, &p->parcel[i].link);
    }
    p->n_here = n;
    return 0;
}

void qr_parcels_close(struct qr_parcels *p)
{
    QR_ASSERT(p != NULL && p->n >= 1);
    QR_ASSERT(p->parcel == NULL || p->n_here == p->n); /* all are back */
    pthread_mutex_destroy(&p->lock);
    if (p->memory)
        munmap(p->memory, (size_t)p->n * p->stride);
    if (p->fd >= 0)
        close(p->fd);
    qr_free(p->parcel);
}

struct qr_parcel *qr_parcels_take(struct qr_parcels *p, int32_t leave)
{
    QR_ASSERT(p != NULL && leave >= 0);
    QR_ASSERT(p->parcel != NULL);
    pthread_mutex_lock(&p->lock);
    struct qr_node *node = p->n_here > leave ? qr_list_pop_front(&p->here) : NULL;
    p->n_here -= node != NULL;
    pthread_mutex_unlock(&p->lock);
    return node ? QR_CONTAINER(node, struct qr_parcel, link) : NULL;
}

void qr_parcel_give_back(struct qr_parcel *parcel)
{
    QR_ASSERT(parcel != NULL);
    QR_ASSERT(parcel->home != NULL);
    struct qr_parcels *p = parcel->home;
    parcel->fetch = NULL;
    parcel->lend = NULL;
    pthread_mutex_lock(&p->lock);
    qr_list_push_front(&p->here, &parcel->link); /* its memory is warm */
    const bool first = p->n_here++ == 0;
    pthread_mutex_unlock(&p->lock);
    if (first && p->back)
        p->back(p->back_arg);
}
