# commit.cmake - the commit that a build is of, as build/commit/commit.h. It is asked for at every build (milliseconds), and written when it has changed: cli/version.c
# alone includes it. Without git, or with sources that no repository holds, it is "unknown"; changes that are not committed are said ("1a2b3c4d-dirty").
#
# Included, it makes the target; run by that target (cmake -P), it asks git.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    add_custom_target(quire_commit COMMENT "" VERBATIM BYPRODUCTS ${CMAKE_BINARY_DIR}/commit/commit.h
        COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DHEADER=${CMAKE_BINARY_DIR}/commit/commit.h -P ${CMAKE_CURRENT_LIST_FILE})
    return()
endif()

get_filename_component(above ${SOURCE}/.. ABSOLUTE)
set(ENV{GIT_CEILING_DIRECTORIES} ${above}) # a repository around these sources is another program's
execute_process(COMMAND git describe --always --dirty --abbrev=8 --exclude=* WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status ERROR_QUIET)
if(NOT status EQUAL 0 OR NOT commit MATCHES "^[0-9a-f]+(-dirty)?$")
    set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define QUIRE_COMMIT \"${commit}\"\n" @ONLY)
