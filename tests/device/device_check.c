/* device_check - see check/check.h. */
#include "tests/device/check/check.h"

int main(int argc, char **argv)
{
    return qr_command_main(&device_check_command, argc, argv);
}
