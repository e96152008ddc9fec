# module.cmake - one static library per folder, its tests beside it in tests/<folder>/.
#
# quire_module(NAME DEPS lower modules LIBS imported targets SOURCES globs, if not the folder and its rooms EXCLUDE regex of files that this build leaves out)
# A file added to a folder or to one of its rooms is picked up without an edit here. The order of the calls in CMakeLists.txt is the order of the
# layers; tools/tidy.py checks the includes against it.

function(quire_module name)
    cmake_parse_arguments(M "" "EXCLUDE" "DEPS;LIBS;SOURCES" ${ARGN})
    if(NOT M_SOURCES)
        set(M_SOURCES ${name}/*.c ${name}/*/*.c)
    endif()
    list(TRANSFORM M_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/)
    file(GLOB sources CONFIGURE_DEPENDS ${M_SOURCES})
    if(M_EXCLUDE)
        list(FILTER sources EXCLUDE REGEX ${M_EXCLUDE})
    endif()
    if(NOT sources)
        return()
    endif()
    if(QUIRE_TSAN OR QUIRE_FUZZ) # few programs, which need few modules
        set(only_if_needed EXCLUDE_FROM_ALL)
    endif()
    add_library(quire_${name} STATIC ${only_if_needed} ${sources})
    target_include_directories(quire_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(quire_${name} PRIVATE quire_flags ${M_LIBS})
    foreach(dep ${M_DEPS})
        if(TARGET quire_${dep})
            target_link_libraries(quire_${name} PUBLIC quire_${dep})
        endif()
    endforeach()
endfunction()

# Test programs, 160 of them with the same libraries in each, are linked by a linker that uses all cores where there is one: what is shipped is not.
if(QUIRE_TESTS AND NOT DEFINED QUIRE_TEST_LINKER)
    include(CheckLinkerFlag)
    set(QUIRE_TEST_LINKER "" CACHE STRING "Linker of test programs, as in -fuse-ld=")
    foreach(linker mold lld)
        check_linker_flag(C -fuse-ld=${linker} QUIRE_HAS_${linker})
        if(QUIRE_HAS_${linker} AND NOT QUIRE_TEST_LINKER)
            set(QUIRE_TEST_LINKER ${linker} CACHE STRING "" FORCE)
        endif()
    endforeach()
endif()

# The reference kernels in double, which tests compare with: compiled once, and fast in every build. What a sanitizer has to say of these sources it says of level ref,
# which the same tests run.
function(quire_oracles)
    if(NOT QUIRE_TESTS OR QUIRE_TSAN OR QUIRE_FUZZ)
        return()
    endif()
    set(sources ${PROJECT_SOURCE_DIR}/tests/kernels/oracle.c ${PROJECT_SOURCE_DIR}/tests/kernels/wide_oracle.c)
    add_library(quire_oracles STATIC ${sources})
    set_target_properties(quire_oracles PROPERTIES QUIRE_UNSANITIZED TRUE QUIRE_UNCLEARED TRUE)
    target_compile_options(quire_oracles PRIVATE -O2)
    target_include_directories(quire_oracles PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(quire_oracles PRIVATE quire_flags PUBLIC quire_kernels quire_base)
endfunction()

# Criterion starts a process for each test, and in each of them the loader reads libgit2 and what that needs. Test programs get a library of its name instead, which opens
# the real one when two texts are to be compared (tests/criterion_git.c); where Criterion needs none, nothing.
function(quire_criterion)
    if(NOT QUIRE_TESTS OR QUIRE_TSAN OR QUIRE_FUZZ)
        return()
    endif()
    execute_process(COMMAND ldd ${CRITERION_LINK_LIBRARIES} OUTPUT_VARIABLE needed ERROR_QUIET)
    if(needed MATCHES "(libgit2[.]so[.0-9]*) => (/[^ ]+)")
        add_library(quire_criterion SHARED ${PROJECT_SOURCE_DIR}/tests/criterion_git.c)
        target_compile_definitions(quire_criterion PRIVATE QUIRE_LIBGIT2="${CMAKE_MATCH_2}")
        target_link_libraries(quire_criterion PRIVATE ${CMAKE_DL_LIBS})
        set_target_properties(quire_criterion PROPERTIES PREFIX "" SUFFIX "" OUTPUT_NAME ${CMAKE_MATCH_1} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    endif()
endfunction()

# Assertions with less code (tests/criterion_short.h), where the library's macro is the one that is known; any other keeps its own.
if(QUIRE_TESTS AND NOT QUIRE_TSAN AND NOT QUIRE_FUZZ)
    pkg_get_variable(criterion_include criterion includedir)
    set(criterion_text "")
    if(EXISTS ${criterion_include}/criterion/internal/assert.h)
        file(READ ${criterion_include}/criterion/internal/assert.h criterion_text)
    endif()
    string(FIND "${criterion_text}" "#define cr_assert_impl(" from)
    string(FIND "${criterion_text}" "#define cr_fail(" to)
    math(EXPR length "${to} - ${from}")
    if(from GREATER 0 AND length GREATER 0)
        string(SUBSTRING "${criterion_text}" ${from} ${length} criterion_macro)
        string(SHA256 criterion_macro "${criterion_macro}")
    endif()
    if("${criterion_macro}" STREQUAL "839a3a6ee8243968a95b4ab47b627a89504c4c3fc5aecd7c14ed88e878e53ed6") # of 2.4.1
        set(QUIRE_SHORT_ASSERTS -include ${PROJECT_SOURCE_DIR}/tests/criterion_short.h)
    endif()
endif()

set(QUIRE_TESTS_WITH_LOOPS kernels_test_adapt kernels_test_backward kernels_test_coded kernels_test_quant model_test_bf16)

# quire_tests(NAME DEPS modules): every tests/NAME/test_*.c is a Criterion program, every tests/NAME/stress_*.c a plain main().
# Both run with the repository as working directory and QUIRE_DATA pointing at the conformance data.
function(quire_tests name)
    cmake_parse_arguments(M "" "" "DEPS;LIBS" ${ARGN})
    if(NOT QUIRE_TESTS)
        return()
    endif()
    file(GLOB units CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/test_*.c)
    file(GLOB mains CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/stress_*.c)
    if(QUIRE_TSAN) # nor what would only say there that it is skipped
        set(units "")
        list(FILTER mains EXCLUDE REGEX "/stress_(mpi|neighbour|no_malloc|shm)[.]c$")
    endif()
    foreach(source ${units} ${mains})
        get_filename_component(stem ${source} NAME_WE)
        set(target ${name}_${stem})
        add_executable(${target} ${source})
        target_link_libraries(${target} PRIVATE quire_flags ${M_LIBS})
        target_compile_definitions(${target} PRIVATE QUIRE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
        # At -O2 they compile half as long again as at -O1, at -O3 three times as long. Under asan they compile at -O0 in half the time and run as long, but for those
        # with loops of their own; what gcc's flow analysis has to warn of, it says in release.
        target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
        if(QUIRE_SANITIZE MATCHES "address" AND source IN_LIST units AND NOT target IN_LIST QUIRE_TESTS_WITH_LOOPS)
            target_compile_options(${target} PRIVATE -O0)
        endif()
        if(QUIRE_TEST_LINKER)
            target_link_options(${target} PRIVATE -fuse-ld=${QUIRE_TEST_LINKER})
        endif()
        if(TARGET quire_oracles AND name MATCHES "^(kernels|train)$")
            target_link_libraries(${target} PRIVATE quire_oracles)
        endif()
        foreach(dep ${name} ${M_DEPS})
            if(TARGET quire_${dep})
                target_link_libraries(${target} PRIVATE quire_${dep})
            endif()
        endforeach()
        if(source IN_LIST units)
            if(TARGET quire_criterion)
                target_link_options(${target} PRIVATE -Wl,--no-as-needed)
                target_link_libraries(${target} PRIVATE quire_criterion)
            endif()
            target_link_libraries(${target} PRIVATE PkgConfig::CRITERION)
            target_compile_options(${target} PRIVATE ${QUIRE_SHORT_ASSERTS})
        endif()
        if(TARGET quire_cuda_emulated AND name MATCHES "^(kernels|device|bench)$") # opened by its path (QUIRE_CUDA_EMU_LIB)
            add_dependencies(${target} quire_cuda_emulated)
        endif()
        add_test(NAME ${name}/${stem} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
        quire_test_properties(${name}/${stem})
    endforeach()
endfunction()

# device_check: compares a device's kernels with others (tests/device/check). Programs of tests run its command; where there
# are no tests, tools/gpu.sh asks for the program by name.
function(quire_device_check)
    quire_module(device_check DEPS engine kernels base SOURCES tests/device/check/*.c bench/kern/scene.c)
    add_executable(device_check ${PROJECT_SOURCE_DIR}/tests/device/device_check.c)
    target_link_libraries(device_check PRIVATE quire_flags quire_device_check)
    if(NOT QUIRE_TESTS OR QUIRE_TSAN OR QUIRE_FUZZ)
        set_target_properties(quire_device_check device_check PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
endfunction()

# The longest first, so that no core is idle at the end: seconds that a test alone takes in release or under asan, whichever is more. Those that take two places begin
# before one is taken. Tests that run alone have none: they come last, when nothing has to end first for them.
set(QUIRE_TEST_COSTS
    e2e/test_ranks 60 e2e/test_pair 60 e2e/test_gpu_script 35 e2e/test_cli 25 e2e/test_train 25 kernels/test_attention 25 e2e/test_budget 23 http/test_life 22
    e2e/test_quantize 21 e2e/test_quantized_files 21 e2e/test_grammar 18 kernels/test_backward_levels 17 engine/test_engine 15 tokenizer/test_cost 15
    model/test_gguf 13 train/test_parallel 12 train/test_trainer 12 http/test_ops 12 e2e/test_balancers 12 e2e/test_tensor_parallel 11 device/test_check 11 tokenizer/test_vectors 10
    engine/test_exchange 12 e2e/test_ops 12 engine/test_draft_model 10 e2e/test_warm 10 e2e/test_serve 10 device/test_cuda_model 10 model/test_fused 9 model/test_quantize 9 model/test_ranks 9 device/test_cuda_ranks 9
    server/stress_missing_memory 9 engine/test_bad_files 8 bench/test_sim 8 e2e/test_parse 8 bench/test_device 8 kernels/test_experts 8
    kernels/test_cuda_few 8 kernels/test_rows 7 e2e/test_walks 7 train/test_crash 7 e2e/test_lora 7 engine/test_adapters 7 bench/test_load 7
    kernels/test_linear 7 model/test_damage 6 scheduler/test_sched 6 bench/test_load_sweep 6 e2e/test_embeddings 6 tokenizer/test_bpe 6
    bench/test_kern 6 model/test_model 6 loader/test_quantized 6 model/test_bf16 6 model/test_equal 5 kernels/test_coded 5 train/test_chat_ids 5
    engine/test_embeddings 5 client/test_repl 5 device/test_train 5 kernels/test_backward 5 scheduler/test_sched_random 5 train/test_tape 5
    device/test_cuda_engine 5 kernels/test_quant 5 kernels/test_fused 5 e2e/test_model_files 5)

# What every test has in common: a sanitizer's word is a failure, whatever the exit code says. One job a program: ctest runs
# the programs side by side already, and Criterion's own parallel runner leaks 48 bytes, which the leak checker would report. Below level 1 Criterion is silent
# about tests that are skipped.
function(quire_test_properties test)
    set_tests_properties(${test} PROPERTIES
        FAIL_REGULAR_EXPRESSION "Sanitizer:|runtime error:"
        ENVIRONMENT "QUIRE_DATA=${QUIRE_DATA};QUIRE_BIN=$<TARGET_FILE_DIR:quire_flags_anchor>/quire;QUIRE_DISCRETE_LIB=$<TARGET_FILE_DIR:quire_flags_anchor>/tests/libquire_discrete.so;QUIRE_CUDA_EMU_LIB=$<TARGET_FILE_DIR:quire_flags_anchor>/tests/libquire_cuda_emu.so;CRITERION_JOBS=1;CRITERION_VERBOSITY_LEVEL=1;QUIRE_CUDA_HOPPER=0;XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache"
        TIMEOUT 1200)
    list(FIND QUIRE_TEST_COSTS ${test} at)
    if(at GREATER_EQUAL 0)
        math(EXPR at "${at} + 1")
        list(GET QUIRE_TEST_COSTS ${at} cost)
        set_tests_properties(${test} PROPERTIES COST ${cost})
    endif()
endfunction()
