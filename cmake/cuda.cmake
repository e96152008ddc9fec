# cuda.cmake - kernels/cuda/*.cu, built twice.
#
# With nvcc: libquire_cuda.so, which the program opens at run time where there is a driver (kernels/cuda/plugin.h). The program itself never links
# anything of CUDA. QUIRE_CUDA=AUTO builds it in release builds where nvcc is found, ON insists, OFF does not look.
# Without nvcc, for the tests: the same files as C++ against the emulated device of tests/cuda_emu/, which needs a C++ compiler and no CUDA.
set(QUIRE_CUDA AUTO CACHE STRING "libquire_cuda.so: AUTO (where nvcc is found), ON or OFF")
set(QUIRE_CUDA_ARCHS 80 86 89 90a 120 CACHE STRING "Compute capabilities of libquire_cuda.so")

# How kernels are compiled as C++: no C++ library, so that C programs can be linked with them. Without a sanitizer gcc announces each access of memory
# (its -fsanitize=thread, whose code its flow analysis loses its way in), and the emulated device, which takes the place of that sanitizer's library, looks for races.
function(quire_emulated_kernels name)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
    add_library(${name} OBJECT ${ARGN})
    target_include_directories(${name} BEFORE PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests/cuda_emu/include)
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE QR_CUDA_EMU QUIRE_VERSION="${PROJECT_VERSION}")
    target_compile_options(${name} PRIVATE -std=gnu++17 -fno-exceptions -fno-rtti -fno-threadsafe-statics -fvisibility=hidden -Wall -Wextra -Werror
        -Wno-unused-parameter -Wno-unused-function -Wno-unknown-pragmas -Wno-maybe-uninitialized
        -ffp-contract=off -fno-trapping-math -fno-math-errno -fno-strict-aliasing -fno-omit-frame-pointer -g1
        $<IF:$<CONFIG:Debug>,-O1,-O2>)
    if(QUIRE_SANITIZE)
        target_compile_options(${name} PRIVATE -fsanitize=${QUIRE_SANITIZE} -fno-sanitize-recover=all)
    else()
        target_compile_options(${name} PRIVATE -fsanitize=thread)
    endif()
endfunction()

# C files that see the emulated device's headers instead of CUDA's.
function(quire_emulated_host name)
    add_library(${name} OBJECT ${ARGN})
    target_include_directories(${name} BEFORE PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests/cuda_emu/include)
    target_compile_definitions(${name} PRIVATE QR_CUDA_EMU QR_CUDA_TARGETS="emulation")
    target_link_libraries(${name} PRIVATE quire_flags)
endfunction()

# libquire_cuda_emu.so: the whole plugin on the emulated device, and what tests set and count there (tests/cuda_emu/emu.h). QUIRE_CUDA_LIB names it.
function(quire_cuda_emulation)
    if(NOT QUIRE_TESTS OR QUIRE_TSAN OR QUIRE_FUZZ)
        return()
    endif()
    if(NOT CMAKE_CXX_COMPILER)
        message(WARNING "no C++ compiler: the CUDA kernels are not tested (tools/deps.sh test installs g++)")
        return()
    endif()
    file(GLOB runtime CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cuda_emu/*.c)
    list(FILTER runtime EXCLUDE REGEX "/test_[^/]*$")
    quire_emulated_host(quire_cuda_device ${runtime})
    file(GLOB host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.c)
    quire_emulated_host(quire_cuda_host ${host})
    file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
    set(objects $<TARGET_OBJECTS:quire_cuda_device> $<TARGET_OBJECTS:quire_cuda_host>)
    if(kernels)
        quire_emulated_kernels(quire_cuda_kernels ${kernels})
        list(APPEND objects $<TARGET_OBJECTS:quire_cuda_kernels>)
    endif()
    add_library(quire_cuda_emulated MODULE ${objects})
    set_target_properties(quire_cuda_emulated PROPERTIES OUTPUT_NAME quire_cuda_emu LINKER_LANGUAGE C LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    target_link_libraries(quire_cuda_emulated PRIVATE quire_flags quire_kernels quire_base ${CMAKE_DL_LIBS} -Wl,-Bsymbolic -Wl,--exclude-libs,ALL)
    if(NOT QUIRE_SANITIZE)
        target_link_options(quire_cuda_emulated PRIVATE -Wl,-z,defs)
    endif()

    # The emulated device alone, with small kernels right and wrong: linked into its own test.
    file(GLOB mistakes CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cuda_emu/*.cu)
    quire_emulated_kernels(quire_cuda_mistakes ${mistakes})
    add_library(quire_cuda_emu STATIC $<TARGET_OBJECTS:quire_cuda_device> $<TARGET_OBJECTS:quire_cuda_mistakes>)
    set_target_properties(quire_cuda_emu PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(quire_cuda_emu BEFORE INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests/cuda_emu/include)
    target_link_libraries(quire_cuda_emu PUBLIC quire_kernels quire_base ${CMAKE_DL_LIBS})
endfunction()

function(quire_cuda_library)
    if(QUIRE_CUDA STREQUAL "OFF" OR QUIRE_TSAN OR QUIRE_FUZZ OR QUIRE_SANITIZE)
        return()
    endif()
    find_program(QUIRE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
    file(GLOB host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.c)
    if(NOT QUIRE_NVCC)
        if(QUIRE_CUDA STREQUAL "ON")
            message(FATAL_ERROR "QUIRE_CUDA=ON, but there is no nvcc: looked in PATH, CUDA_HOME and /usr/local/cuda/bin")
        endif()
        return()
    endif()
    set(archs "")
    foreach(arch ${QUIRE_CUDA_ARCHS})
        list(APPEND archs -gencode arch=compute_${arch},code=sm_${arch})
    endforeach()
    set(objects "")
    foreach(source ${sources})
        get_filename_component(stem ${source} NAME_WE)
        set(object ${CMAKE_BINARY_DIR}/cuda/${stem}.o)
        add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${stem}.cu" VERBATIM
            COMMAND ${QUIRE_NVCC} -c ${source} -o ${object} -MD -MF ${object}.d -std=c++17 -O3 -fmad=false --threads 0 ${archs}
                    -I${PROJECT_SOURCE_DIR} -DQUIRE_VERSION="${PROJECT_VERSION}" -D_GNU_SOURCE -Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-Wall
                    -Werror all-warnings)
        list(APPEND objects ${object})
    endforeach()
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
    get_filename_component(cuda_root ${QUIRE_NVCC} REALPATH)
    get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)
    string(REPLACE ";" " " targets "${QUIRE_CUDA_ARCHS}")
    add_library(quire_cuda_library_host OBJECT ${host})
    target_include_directories(quire_cuda_library_host PRIVATE ${PROJECT_SOURCE_DIR})
    target_include_directories(quire_cuda_library_host SYSTEM BEFORE PRIVATE ${cuda_root}/include)
    target_compile_definitions(quire_cuda_library_host PRIVATE QR_CUDA_TARGETS="${targets}")
    target_compile_options(quire_cuda_library_host PRIVATE -fvisibility=hidden)
    target_link_libraries(quire_cuda_library_host PRIVATE quire_flags)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/libquire_cuda.so DEPENDS ${objects} quire_cuda_library_host quire_base quire_kernels VERBATIM
        COMMAND ${QUIRE_NVCC} -shared -cudart static -o ${CMAKE_BINARY_DIR}/libquire_cuda.so ${objects} $<TARGET_OBJECTS:quire_cuda_library_host>
                $<TARGET_FILE:quire_kernels> $<TARGET_FILE:quire_base> -lcublasLt -Xlinker=--exclude-libs,ALL,-z,defs COMMAND_EXPAND_LISTS)
    add_custom_target(quire_cuda ALL DEPENDS ${CMAKE_BINARY_DIR}/libquire_cuda.so)
endfunction()
