# mpi.cmake - libquire_mpi.so, where there is an MPI to build it with (Debian: libopenmpi-dev). The program never links it: it opens it when mpirun started it.
#
# Everything the library takes from the modules is inside it and hidden; it exports one symbol (comm/mpi/plugin.h).

option(QUIRE_MPI "Build libquire_mpi.so where MPI is installed" ON)

function(quire_mpi)
    if(NOT QUIRE_MPI OR QUIRE_TSAN OR QUIRE_FUZZ)
        return()
    endif()
    find_package(MPI QUIET COMPONENTS C)
    if(NOT MPI_C_FOUND)
        message(STATUS "no MPI found: libquire_mpi.so is not built (apt-get install libopenmpi-dev openmpi-bin)")
        return()
    endif()
    add_library(quire_mpi SHARED ${PROJECT_SOURCE_DIR}/comm/mpi/comm_mpi.c)
    target_link_libraries(quire_mpi PRIVATE quire_flags quire_comm MPI::MPI_C)
    target_include_directories(quire_mpi SYSTEM PRIVATE ${MPI_C_INCLUDE_DIRS})
    target_link_options(quire_mpi PRIVATE -Wl,--exclude-libs,ALL)
    set_target_properties(quire_mpi PROPERTIES C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
