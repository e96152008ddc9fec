# package_layout.cmake - run by CPack between installing and packing: places and forms that Debian's policy asks for. Its working directory is not the staged tree.
set(root ${CPACK_TEMPORARY_DIRECTORY})
set(doc ${root}/usr/share/doc/quire)

function(must)
    execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The unit and its settings where systemd and an administrator look for them.
file(READ ${root}/usr/share/quire/quire.service unit)
string(REPLACE /usr/local/bin/quire /usr/bin/quire unit "${unit}")
string(REPLACE "(./dev install)" "(the package's)" unit "${unit}")
file(WRITE ${root}/lib/systemd/system/quire.service "${unit}")
file(MAKE_DIRECTORY ${root}/etc/quire)
file(RENAME ${root}/usr/share/quire/server.yaml ${root}/etc/quire/server.yaml)
file(REMOVE_RECURSE ${root}/usr/share/quire)

# Debian's MPI lies where the loader looks.
if(EXISTS ${root}/usr/lib/quire/libquire_mpi.so)
    file(RPATH_REMOVE FILE ${root}/usr/lib/quire/libquire_mpi.so)
endif()

# The same bytes from the same commit: gzip keeps no name and no time, and every date is the commit's.
execute_process(COMMAND git -C ${CPACK_QUIRE_SOURCE} log -1 --format=%cD OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT date)
    execute_process(COMMAND date -R OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
file(WRITE ${doc}/changelog.Debian "quire (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
    "  * See changelog.gz.\n\n -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}\n")
file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
file(GLOB packed ${root}/usr/share/man/man1/*.1 ${doc}/changelog ${doc}/changelog.Debian)
must(gzip -9nf ${packed})

# What was linked in keeps its notice.
file(REMOVE ${doc}/LICENSE)
file(WRITE ${doc}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: quire\n\nFiles: *\n"
    "Copyright: the authors of quire\nLicense: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n")
if(CPACK_QUIRE_LLHTTP)
    file(APPEND ${doc}/copyright "\nFiles: llhttp (linked into /usr/bin/quire)\nCopyright: 2018 Fedor Indutny\nLicense: Expat\n"
        " Permission is hereby granted, free of charge, to any person obtaining a copy\n of this software and associated documentation files (the \"Software\"), to deal\n"
        " in the Software without restriction, including without limitation the rights\n to use, copy, modify, merge, publish, distribute, sublicense, and/or sell\n"
        " copies of the Software, and to permit persons to whom the Software is\n furnished to do so, subject to the following conditions:\n .\n"
        " The above copyright notice and this permission notice shall be included in\n all copies or substantial portions of the Software.\n .\n"
        " THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR\n IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,\n"
        " FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE\n AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER\n"
        " LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,\n OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE\n SOFTWARE.\n")
endif()

# dpkg-shlibdeps wants a source package around it.
set(around ${root}/../shlibdeps)
file(WRITE ${around}/debian/control "Source: quire\n\nPackage: quire\nArchitecture: any\n")
execute_process(COMMAND dpkg-shlibdeps -O -e${root}/usr/bin/quire WORKING_DIRECTORY ${around} OUTPUT_VARIABLE depends OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "shlibs:Depends=" "" CPACK_DEBIAN_PACKAGE_DEPENDS "${depends}")
must(chmod -R go-w ${root})
must(find ${root} -exec touch -h -d ${date} {} +)
execute_process(COMMAND date -d ${date} +%s OUTPUT_VARIABLE seconds OUTPUT_STRIP_TRAILING_WHITESPACE)
set(ENV{SOURCE_DATE_EPOCH} ${seconds})
