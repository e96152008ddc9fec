/* The commit of this build. This file alone is compiled again when it changes (cmake/commit.cmake). */
#include "cli/cli.h"
#include "commit.h"

const char *qr_cli_commit(void)
{
    return QUIRE_COMMIT;
}
