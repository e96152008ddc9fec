# install.cmake - cmake --install build --prefix DIR (./dev install): bin/quire, and in lib/quire the libraries it opens only where they are wanted, which it looks for there
# (base/library.h). Of those, what a build has left out is not missed.
install(TARGETS quire RUNTIME DESTINATION bin)
foreach(library quire_cuda quire_mpi)
    if(TARGET ${library} AND NOT (library STREQUAL quire_cuda AND QUIRE_CUDA_DRAFT))
        set_target_properties(${library} PROPERTIES INSTALL_RPATH_USE_LINK_PATH TRUE) # cuBLASLt lies where the toolkit is
        install(TARGETS ${library} LIBRARY DESTINATION lib/quire OPTIONAL)
    endif()
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/configs/server.yaml ${PROJECT_SOURCE_DIR}/configs/quire.service DESTINATION share/quire)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION share/doc/quire)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION share/doc/quire FILES_MATCHING PATTERN "*.md")
install(FILES ${PROJECT_SOURCE_DIR}/configs/grafana.json ${PROJECT_SOURCE_DIR}/configs/prometheus-alerts.yaml DESTINATION share/doc/quire/configs)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/kubernetes DESTINATION share/doc/quire/configs)
# Manual pages, completions and the options' reference are made by the program from its tables, when it is installed.
set(reference ${CMAKE_BINARY_DIR}/reference)
install(CODE "execute_process(COMMAND $<TARGET_FILE:quire> reference ${reference} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${reference}/man1 DESTINATION share/man)
install(FILES ${reference}/completions/quire DESTINATION share/bash-completion/completions)
install(FILES ${reference}/completions/_quire DESTINATION share/zsh/vendor-completions)
install(FILES ${reference}/completions/quire.fish DESTINATION share/fish/vendor_completions.d)
install(FILES ${reference}/options.md ${reference}/errors.md ${reference}/openapi.json ${reference}/server.schema.json ${reference}/train.schema.json DESTINATION share/doc/quire)
