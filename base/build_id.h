/* build_id.h - which program this is: the linker's hash of all that it is made of. Two programs with one id compute the same. */
#ifndef QR_BASE_BUILD_ID_H
#define QR_BASE_BUILD_ID_H

#define QR_BUILD_ID_TEXT 80 /* in hexadecimal, with its end */

/* "" where it was linked without one. Returns out. Any thread. */
const char *qr_build_id(char out[QR_BUILD_ID_TEXT]);

#endif
