# package.cmake - `./dev package`: build-package/quire_VERSION_ARCH.deb by CPack, from what cmake/install.cmake installs. package_layout.cmake lays the staged files out
# as Debian wants them. Nothing is started by an installation: quire.service waits for its model and for `systemctl enable --now quire`.
#
# Depends is what dpkg-shlibdeps finds in the program; what it opens at run time, and works without, is recommended. Libraries in /usr/lib/quire are opened where their
# own libraries are (MPI, cuBLASLt), so these are none of the package's dependencies.
set(QUIRE_MAINTAINER "quire <maintainers@quire.invalid>" CACHE STRING "Maintainer of packages built here: NAME <ADDRESS>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quire)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "serves and trains Llama-family language models")
set(CPACK_PACKAGE_DESCRIPTION
    "One program with an OpenAI-compatible HTTP server, a chat for the terminal and
training, for safetensors and GGUF files. Its kernels choose the best
instruction set that the processor has.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${QUIRE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libssl3, libseccomp2, libcurl4, libzmq5, ca-certificates")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libopenmpi3")
file(GLOB control ${PROJECT_SOURCE_DIR}/configs/debian/*)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${control})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/package_layout.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
if(TARGET llhttp_from_source)
    set(CPACK_QUIRE_LLHTTP TRUE)
endif()
set(CPACK_QUIRE_SOURCE ${PROJECT_SOURCE_DIR})
include(CPack)
