/* list.h - an intrusive, circular, doubly linked list. A node that is on no list points to itself. */
#ifndef QR_BASE_LIST_H
#define QR_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct qr_node {
    struct qr_node *prev, *next;
};

#define QR_CONTAINER(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

static inline void qr_list_init(struct qr_node *head)
{
    head->prev = head->next = head;
}

static inline bool qr_list_empty(const struct qr_node *head)
{
    return head->next == head;
}

static inline void qr_list_push_back(struct qr_node *head, struct qr_node *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void qr_list_push_front(struct qr_node *head, struct qr_node *node)
{
    qr_list_push_back(head->next, node);
}

static inline void qr_list_remove(struct qr_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = node;
}

/* The first node, taken off the list, or NULL. */
static inline struct qr_node *qr_list_pop_front(struct qr_node *head)
{
    struct qr_node *node = head->next;
    if (node == head)
        return NULL;
    qr_list_remove(node);
    return node;
}

/* Moves everything from `from` to the end of `to`. */
static inline void qr_list_splice_back(struct qr_node *to, struct qr_node *from)
{
    if (qr_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    qr_list_init(from);
}

#endif
