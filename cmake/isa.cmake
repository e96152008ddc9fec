# isa.cmake - one .c per CPU kernel, compiled once per instruction-set level into that level's own table.
#
# kernels/cpu/isa/ with its rooms is compiled with -DQR_ISA=<level> and the level's flags; everything else stays at the x86-64 baseline, so
# one binary starts anywhere and picks a table at run time. Names inside those files go through QR_ISA_NAME(), and every
# helper they share is static, so that the linker cannot keep one level's copy for all. The amx level has only what tiles are
# good for (kernels/cpu/amx/) and the packing for it; its table takes the rest from avx512. kernels/cpu/avx2/ and avx512/ have parts of linear.c for that level alone.

set(QUIRE_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(QUIRE_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
set(QUIRE_ISA_FLAGS_amx ${QUIRE_ISA_FLAGS_avx512} -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16)

# The intrinsics' header takes the compiler half a second, in each of fifty files. Behind ccache it is read each time: ccache keeps nothing of what a precompiled header
# went into. A compiler that cannot use the header it made takes the text.
function(quire_precompile target)
    if((CMAKE_C_COMPILER_ID STREQUAL "GNU" OR QUIRE_FUZZ) AND NOT "${CMAKE_C_COMPILER_LAUNCHER}" MATCHES "cache" AND NOT QUIRE_EMULATE_LEVELS)
        target_precompile_headers(${target} PRIVATE <immintrin.h>)
        set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
    endif()
endfunction()

# What /proc/cpuinfo calls the youngest of them.
set(QUIRE_ISA_NEEDS_avx2 avx2)
set(QUIRE_ISA_NEEDS_avx512 avx512vl)
set(QUIRE_ISA_NEEDS_amx amx_bf16)

# With QUIRE_EMULATE_LEVELS the two levels become AVX2 code: headers in tests/isa_emu/include stand in front of the compiler's intrinsics and of amx/tile.h, and
# kernels/cpu/detect.c says that both levels are here. `./dev emu` builds and tests that.
if(QUIRE_EMULATE_LEVELS)
    if(NOT QUIRE_TESTS)
        message(FATAL_ERROR "QUIRE_EMULATE_LEVELS is for tests: QUIRE_TESTS is OFF")
    endif()
    set(QUIRE_ISA_FLAGS_avx512 ${QUIRE_ISA_FLAGS_avx2} -Wno-psabi)
    set(QUIRE_ISA_FLAGS_amx ${QUIRE_ISA_FLAGS_avx512})
endif()

# A target whose files see the emulated intrinsics.
function(quire_emulated_level target)
    target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/isa_emu/include)
    target_compile_definitions(${target} PRIVATE QUIRE_EMULATE_LEVELS)
endfunction()

# emulated_tests: the programs that `./dev emu` runs. Those of the CUDA device know no levels.
function(quire_emulated_tests)
    get_property(tests DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
    list(FILTER tests INCLUDE REGEX "^(isa_emu|kernels|model)_(test|stress)_")
    list(FILTER tests EXCLUDE REGEX "^kernels_test_cuda")
    add_custom_target(emulated_tests DEPENDS ${tests})
    list(FILTER tests INCLUDE REGEX "^(isa_emu_|kernels_test_exp_avx512)")
    foreach(test ${tests})
        quire_emulated_level(${test})
        target_compile_options(${test} PRIVATE ${QUIRE_ISA_FLAGS_avx512})
    endforeach()
endfunction()

# A level's objects when it is not compiled: empty tables.
function(quire_absent_level target isa)
    add_library(${target} OBJECT ${PROJECT_SOURCE_DIR}/tests/absent_level.c)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_definitions(${target} PRIVATE QR_ISA=${isa})
    target_link_libraries(${target} PRIVATE quire_flags)
endfunction()

# Processors differ in the levels that they lack, and a sanitizer build leaves those out: whatever processor the tests run on, each such set has to link.
function(quire_absent_levels)
    if(NOT QUIRE_TESTS OR QUIRE_SANITIZE OR QUIRE_FUZZ OR QUIRE_EMULATE_LEVELS)
        return()
    endif()
    set(absent "")
    set(present avx2 avx512 amx)
    foreach(isa amx avx512 avx2) # a processor that lacks one lacks those before it, too
        quire_absent_level(quire_absent_${isa} ${isa})
        list(APPEND absent $<TARGET_OBJECTS:quire_absent_${isa}>)
        list(REMOVE_ITEM present ${isa})
        set(objects ${present})
        list(TRANSFORM objects REPLACE "(.+)" "$<TARGET_OBJECTS:quire_kernels_\\1>")
        add_executable(link_without_${isa} tests/kernels/link_absent.c $<TARGET_OBJECTS:quire_kernels> ${absent} ${objects})
        target_include_directories(link_without_${isa} PRIVATE ${PROJECT_SOURCE_DIR})
        target_link_libraries(link_without_${isa} PRIVATE quire_flags quire_base ${CMAKE_DL_LIBS})
        add_test(NAME kernels/link_without_${isa} COMMAND link_without_${isa})
        quire_test_properties(kernels/link_without_${isa})
    endforeach()
endfunction()

function(quire_isa_kernels)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/*.c ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/*/*.c)
    if(NOT sources OR NOT TARGET quire_kernels)
        return()
    endif()
    file(GLOB amx_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/amx/*.c)
    file(GLOB own_sources_avx2 CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/avx2/*.c)
    file(GLOB own_sources_avx512 CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/avx512/*.c)
    set(processor "avx2 avx512vl amx_bf16")
    if(EXISTS /proc/cpuinfo)
        file(STRINGS /proc/cpuinfo processor REGEX "^flags" LIMIT_COUNT 1)
    endif()
    # The products' sums are arrays in their source and registers behind -O2, which unrolls the loops over them. At -O1 asan looks at its shadow for each of their
    # multiply-adds: half of what a training run takes there. What stays an access of memory is looked at as before, and ubsan's questions are put in before either.
    # Packing is most of what is left to compile, and runs when a model is opened: there a function of asan's looks, instead of code at each access.
    if(QUIRE_TSAN AND CMAKE_C_COMPILER_ID STREQUAL "GNU") # half of what a server's answers take there
        set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cpu/isa/linear/micro.c PROPERTIES COMPILE_OPTIONS -O2 SKIP_PRECOMPILE_HEADERS ON)
    endif()
    if(QUIRE_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
        set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cpu/isa/linear/micro.c ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/linear/linear.c
            ${PROJECT_SOURCE_DIR}/kernels/ref/ref_linear.c
            PROPERTIES COMPILE_OPTIONS "-O2;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread"
                       SKIP_PRECOMPILE_HEADERS ON) # made at -O1, which gcc 12 takes and then falls over
        set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/cpu/isa/coded/pack.c ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/quant/pack.c
            PROPERTIES COMPILE_OPTIONS "--param=asan-instrumentation-with-call-threshold=0")
    endif()
    # No program that tsan runs has coded weights: of their blocks of many rows, which take the compiler five seconds, it is enough that they link.
    if(QUIRE_TSAN)
        file(GLOB unused ${PROJECT_SOURCE_DIR}/kernels/cpu/avx2/gemm_*.c)
        set_source_files_properties(${unused} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread;-O0" SKIP_PRECOMPILE_HEADERS ON)
    endif()
    foreach(isa avx2 avx512 amx)
        if(isa STREQUAL amx)
            set(shared linear/pack.c coded/pack.c attention/attention.c attention/kv.c) # whose layout or units differ on tiles
            list(TRANSFORM shared PREPEND ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/)
            set(sources ${amx_sources} ${shared})
        endif()
        set(level_sources ${sources} ${own_sources_${isa}})
        if(isa STREQUAL avx512) # its panels of coded weights are avx2's
            list(REMOVE_ITEM level_sources ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/coded/pack.c)
        endif()
        # A sanitizer would see nothing of a level that this processor lacks: empty tables are in its place, and that it compiles the release build says.
        set(draft FALSE)
        if(QUIRE_LEVELS_DRAFT AND NOT " ${processor} " MATCHES " ${QUIRE_ISA_NEEDS_${isa}} ")
            set(draft TRUE)
        endif()
        if(QUIRE_SANITIZE AND NOT QUIRE_FUZZ AND NOT QUIRE_EMULATE_LEVELS AND NOT " ${processor} " MATCHES " ${QUIRE_ISA_NEEDS_${isa}} ")
            quire_absent_level(quire_kernels_${isa} ${isa})
            target_sources(quire_kernels PRIVATE $<TARGET_OBJECTS:quire_kernels_${isa}>)
            continue()
        endif()
        add_library(quire_kernels_${isa} OBJECT ${level_sources})
        target_include_directories(quire_kernels_${isa} PRIVATE ${PROJECT_SOURCE_DIR})
        target_compile_definitions(quire_kernels_${isa} PRIVATE QR_ISA=${isa} QR_ISA_${isa}=1)
        target_compile_options(quire_kernels_${isa} PRIVATE ${QUIRE_ISA_FLAGS_${isa}} $<$<BOOL:${draft}>:-O1>)
        target_link_libraries(quire_kernels_${isa} PRIVATE quire_flags)
        set_target_properties(quire_kernels_${isa} PROPERTIES QUIRE_OF_KERNELS TRUE)
        quire_precompile(quire_kernels_${isa})
        if(QUIRE_FUZZ) # no fuzz target computes; instrumented, clang takes minutes over the unrolled kernels
            set_target_properties(quire_kernels_${isa} PROPERTIES QUIRE_UNSANITIZED TRUE)
            if(NOT isa STREQUAL amx) # whose blocks, inlined a hundred times, -O1 shortens before it makes code of them
                target_compile_options(quire_kernels_${isa} PRIVATE -O0)
            endif()
        endif()
        target_sources(quire_kernels PRIVATE $<TARGET_OBJECTS:quire_kernels_${isa}>)
        if(QUIRE_EMULATE_LEVELS AND NOT isa STREQUAL avx2)
            quire_emulated_level(quire_kernels_${isa})
        endif()
    endforeach()
    if(QUIRE_EMULATE_LEVELS)
        add_library(quire_isa_emu OBJECT ${PROJECT_SOURCE_DIR}/tests/isa_emu/tiles.c)
        target_include_directories(quire_isa_emu PRIVATE ${PROJECT_SOURCE_DIR})
        target_compile_options(quire_isa_emu PRIVATE ${QUIRE_ISA_FLAGS_avx2})
        target_link_libraries(quire_isa_emu PRIVATE quire_flags)
        target_sources(quire_kernels PRIVATE $<TARGET_OBJECTS:quire_isa_emu>)
        set_source_files_properties(kernels/cpu/detect.c kernels/cpu/avx2/gemm_vnni.c kernels/cpu/avx2/quant_vnni.c PROPERTIES COMPILE_DEFINITIONS QUIRE_EMULATE_LEVELS)
    endif()
endfunction()
