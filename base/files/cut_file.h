/* cut_file.h - the end of a process one of whose mapped files became shorter (map_file.h): rows of an embedding are read where the file has them as long as a
 * model is used. A thread that reads a page that is gone gets SIGBUS, and has no number to go on with.
 */
#ifndef QR_BASE_FILES_CUT_FILE_H
#define QR_BASE_FILES_CUT_FILE_H

/* From now on such an end prints a line that names the file to stderr, with status 4, that of a damaged file. Any other SIGBUS ends the process as before.
 * Before threads are started. */
void qr_cut_file_explain(void);

#endif
