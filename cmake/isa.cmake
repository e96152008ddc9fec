# isa.cmake - one .c per CPU kernel, compiled once per instruction-set level into that level's own table.
#
# kernels/cpu/isa/*.c is compiled with -DQR_ISA=<level> and the level's flags; everything else stays at the x86-64 baseline, so
# one binary starts anywhere and picks a table at run time. Names inside those files go through QR_ISA_NAME(), and every
# helper they share is static, so that the linker cannot keep one level's copy for all. The amx level has only what tiles are
# good for (kernels/cpu/amx/) and the packing for it; its table takes the rest from avx512.

set(QUIRE_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(QUIRE_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
set(QUIRE_ISA_FLAGS_amx ${QUIRE_ISA_FLAGS_avx512} -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16)

function(quire_isa_kernels)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/*.c)
    if(NOT sources OR NOT TARGET quire_kernels)
        return()
    endif()
    if(QUIRE_FUZZ) # no fuzz target computes; instrumented, clang takes minutes over the unrolled kernels
        set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
    endif()
    file(GLOB amx_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/amx/*.c)
    if(QUIRE_FUZZ)
        set_source_files_properties(${amx_sources} PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
    endif()
    foreach(isa avx2 avx512 amx)
        if(isa STREQUAL amx)
            set(shared linear_pack.c coded_pack.c attention.c kv.c) # whose layout or units differ on tiles
            list(TRANSFORM shared PREPEND ${PROJECT_SOURCE_DIR}/kernels/cpu/isa/)
            set(sources ${amx_sources} ${shared})
        endif()
        add_library(quire_kernels_${isa} OBJECT ${sources})
        target_include_directories(quire_kernels_${isa} PRIVATE ${PROJECT_SOURCE_DIR})
        target_compile_definitions(quire_kernels_${isa} PRIVATE QR_ISA=${isa} QR_ISA_${isa}=1)
        target_compile_options(quire_kernels_${isa} PRIVATE ${QUIRE_ISA_FLAGS_${isa}})
        target_link_libraries(quire_kernels_${isa} PRIVATE quire_flags)
        target_sources(quire_kernels PRIVATE $<TARGET_OBJECTS:quire_kernels_${isa}>)
    endforeach()
endfunction()
