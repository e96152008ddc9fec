/* libgit2 for test programs: nothing, until two texts are compared.
 *
 * Criterion starts a process for each test. In each of them the loader reads libgit2 and twelve libraries that it needs (TLS, SSH, Kerberos), and libgit2 reads
 * 140 certificates, for one function, which prints the difference of two texts when eq(str, ..) fails. Test programs are linked with this library, which has
 * libgit2's name, so that the loader does not look for the other; only when there is something to compare is that one opened. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef int diff_fn(const void *a, size_t a_size, const char *a_name, const void *b, size_t b_size, const char *b_name, const void *options, void *file,
                    void *binary, void *hunk, void *line, void *context);

int git_libgit2_init(void);
int git_libgit2_shutdown(void);
diff_fn git_diff_buffers;

int git_libgit2_init(void)
{
    return 1;
}

int git_libgit2_shutdown(void)
{
    return 0;
}

int git_diff_buffers(const void *a, size_t a_size, const char *a_name, const void *b, size_t b_size, const char *b_name, const void *options, void *file,
                     void *binary, void *hunk, void *line, void *context)
{
    void *lib = dlopen(QUIRE_LIBGIT2, RTLD_NOW | RTLD_LOCAL);
    int (*init)(void) = lib ? (int (*)(void))dlsym(lib, "git_libgit2_init") : NULL;
    diff_fn *diff = lib ? (diff_fn *)dlsym(lib, "git_diff_buffers") : NULL;
    if (!init || !diff || init() < 0) {
        fprintf(stderr, "tests: the difference of two texts cannot be printed: " QUIRE_LIBGIT2 " cannot be opened\n");
        abort(); /* Criterion takes no error for an answer */
    }
    return diff(a, a_size, a_name, b, b_size, b_name, options, file, binary, hunk, line, context);
}
