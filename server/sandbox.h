/* sandbox.h - calls of the system that a server which is serving has no use for: starting programs, looking into other processes, changing the machine. After
 * qr_sandbox_enter the kernel refuses them (EPERM) to all threads of the process until its end. By libseccomp, which is opened then.
 */
#ifndef QR_SERVER_SANDBOX_H
#define QR_SERVER_SANDBOX_H

#include "base/err.h"

/* Any thread; for all threads of the process. Errors: QR_E_UNSUPPORTED without libseccomp, or where the kernel takes no filter. */
int qr_sandbox_enter(struct qr_err *err);

#endif
