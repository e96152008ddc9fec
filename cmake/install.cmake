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
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/quire)
