# deps.cmake - libraries of other people that every build takes, found by header and name.
#
# CMAKE_PREFIX_PATH may name a directory with unpacked packages (tools/deps.sh unpack DIR), for machines that have none of them and no network: what
# lies there wins over the system's. pkg-config is asked where neither has it.

# quire_dependency(NAME header library pkg-config-name) makes Quire::NAME.
function(quire_dependency name header library module)
    find_path(QUIRE_${name}_INCLUDE ${header})
    find_library(QUIRE_${name}_LIBRARY ${library} PATH_SUFFIXES x86_64-linux-gnu)
    mark_as_advanced(QUIRE_${name}_INCLUDE QUIRE_${name}_LIBRARY)
    if(QUIRE_${name}_INCLUDE AND QUIRE_${name}_LIBRARY)
        add_library(Quire::${name} UNKNOWN IMPORTED GLOBAL)
        set_target_properties(Quire::${name} PROPERTIES IMPORTED_LOCATION ${QUIRE_${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${QUIRE_${name}_INCLUDE})
        return()
    endif()
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(QUIRE_${name} IMPORTED_TARGET GLOBAL ${module})
    endif()
    if(NOT TARGET PkgConfig::QUIRE_${name})
        message(FATAL_ERROR "${header} or lib${library} is missing: tools/deps.sh installs Debian's packages; CMAKE_PREFIX_PATH names a directory with unpacked ones")
    endif()
    add_library(Quire::${name} ALIAS PkgConfig::QUIRE_${name})
endfunction()
