/* page.h - the page at "/" that people see: one HTML file inside the program, and the header fields that go with it.
 *
 * The fields follow from the file's bytes: its script and its style are the only ones that a browser runs. Nothing changes after
 * qr_page_init; any thread may read.
 */
#ifndef QR_SERVER_PAGE_PAGE_H
#define QR_SERVER_PAGE_PAGE_H

struct qr_page {
    char etag[48];    /* with its quotes */
    char fields[960]; /* whole header lines, each with CR LF */
};

void qr_page_init(struct qr_page *page);

#endif
