# fuzz.cmake - tests/fuzz/fuzz_*.c are libFuzzer targets; the corpus of fuzz_x is tests/fuzz/corpus/x/.
# In a fuzz build every module is compiled with coverage feedback (-fsanitize=fuzzer-no-link).
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
target_compile_options(quire_flags INTERFACE "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:QUIRE_UNSANITIZED>>>:-fsanitize=fuzzer-no-link>")
foreach(source ${fuzz_sources})
    get_filename_component(stem ${source} NAME_WE)
    add_executable(${stem} ${source})
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes) # libFuzzer has no header
    target_link_libraries(${stem} PRIVATE quire_flags)
    target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    foreach(module server train engine model scheduler kvcache tokenizer loader kernels base)
        if(TARGET quire_${module})
            target_link_libraries(${stem} PRIVATE quire_${module})
        endif()
    endforeach()
endforeach()
