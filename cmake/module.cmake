# module.cmake - one static library per folder, its tests beside it in tests/<folder>/.
#
# quire_module(NAME DEPS lower modules LIBS imported targets SOURCES extra globs)
# A file added to a folder is picked up without an edit here. The order of the calls in CMakeLists.txt is the order of the
# layers; tools/tidy.py checks the includes against it.

function(quire_module name)
    cmake_parse_arguments(M "" "" "DEPS;LIBS;SOURCES" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.c)
    foreach(pattern ${M_SOURCES})
        file(GLOB more CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
        list(APPEND sources ${more})
    endforeach()
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

# quire_tests(NAME DEPS modules): every tests/NAME/test_*.c is a Criterion program, every tests/NAME/stress_*.c a plain main().
# Both run with the repository as working directory and QUIRE_DATA pointing at the conformance data.
function(quire_tests name)
    cmake_parse_arguments(M "" "" "DEPS;LIBS" ${ARGN})
    if(NOT QUIRE_TESTS)
        return()
    endif()
    file(GLOB units CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/test_*.c)
    file(GLOB mains CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/stress_*.c)
    if(QUIRE_TSAN)
        set(units "")
    endif()
    foreach(source ${units} ${mains})
        get_filename_component(stem ${source} NAME_WE)
        set(target ${name}_${stem})
        add_executable(${target} ${source})
        target_link_libraries(${target} PRIVATE quire_flags ${M_LIBS})
        target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>) # at -O3 the oracles compile twice as long and run no faster
        foreach(dep ${name} ${M_DEPS})
            if(TARGET quire_${dep})
                target_link_libraries(${target} PRIVATE quire_${dep})
            endif()
        endforeach()
        if(source IN_LIST units)
            target_link_libraries(${target} PRIVATE PkgConfig::CRITERION)
        endif()
        add_test(NAME ${name}/${stem} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
        quire_test_properties(${name}/${stem})
    endforeach()
endfunction()

# The longest first, so that no core is idle at the end: seconds under asan or in release, whichever says more.
set(QUIRE_TEST_COST_http/test_life 40)
set(QUIRE_TEST_COST_engine/test_engine 29)
set(QUIRE_TEST_COST_train/test_tape 23)
set(QUIRE_TEST_COST_model/test_bf16 18)
set(QUIRE_TEST_COST_kernels/test_quant 14)
set(QUIRE_TEST_COST_kernels/test_backward_levels 14)
set(QUIRE_TEST_COST_http/test_bad_http 13)
set(QUIRE_TEST_COST_model/test_equal 12)
set(QUIRE_TEST_COST_e2e/test_cli 11)
set(QUIRE_TEST_COST_kernels/test_backward 10)
set(QUIRE_TEST_COST_train/test_golden 9)
set(QUIRE_TEST_COST_model/test_golden_rand 9)
set(QUIRE_TEST_COST_kernels/test_attention 8)
set(QUIRE_TEST_COST_tokenizer/test_cost 8)
set(QUIRE_TEST_COST_bench/test_sim 8)
set(QUIRE_TEST_COST_bench/test_load_sweep 7)
set(QUIRE_TEST_COST_bench/test_load 7)
set(QUIRE_TEST_COST_client/test_repl 7)
set(QUIRE_TEST_COST_kernels/stress_neighbour 7)

# What every test has in common: a sanitizer's word is a failure, whatever the exit code says. One job a program: ctest runs
# the programs side by side already, and Criterion's own parallel runner leaks 48 bytes, which the leak checker would report.
function(quire_test_properties test)
    set_tests_properties(${test} PROPERTIES
        FAIL_REGULAR_EXPRESSION "Sanitizer:|runtime error:"
        ENVIRONMENT "QUIRE_DATA=${QUIRE_DATA};QUIRE_BIN=$<TARGET_FILE_DIR:quire_flags_anchor>/quire;QUIRE_DISCRETE_LIB=$<TARGET_FILE_DIR:quire_flags_anchor>/tests/libquire_discrete.so;QUIRE_CUDA_EMU_LIB=$<TARGET_FILE_DIR:quire_flags_anchor>/tests/libquire_cuda_emu.so;CRITERION_JOBS=1;XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache"
        TIMEOUT 300)
    if(DEFINED QUIRE_TEST_COST_${test})
        set_tests_properties(${test} PROPERTIES COST ${QUIRE_TEST_COST_${test}})
    endif()
endfunction()
