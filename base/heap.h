/* heap.h - what malloc keeps for later. Any thread.
 */
#ifndef QR_BASE_HEAP_H
#define QR_BASE_HEAP_H

/* Free pages of all heaps go back to the system, also those between blocks that are in use. Takes some 0.1 ms; what is needed next is mapped anew. Nothing
 * happens with a malloc that has no such call. */
void qr_heap_trim(void);

#endif
