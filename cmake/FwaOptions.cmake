# Build options and compiler flags shared by all targets.
option(FWA_TESTS "Build the tests (needs cmocka)" ON)
option(FWA_POISON "Fill arenas with NaN when they are allocated" OFF)
option(FWA_SANITIZE "Address and undefined-behaviour sanitizers" OFF)
option(FWA_NATIVE "Tune the CPU kernels for this machine" ON)
option(FWA_CUDA "Build the CUDA backend where a CUDA compiler is found" ON)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(fwa_flags INTERFACE)
target_include_directories(fwa_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(fwa_flags INTERFACE _GNU_SOURCE $<$<BOOL:${FWA_POISON}>:FWA_POISON>)
target_compile_options(fwa_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wno-overlength-strings>)
if(FWA_SANITIZE)
  target_compile_options(fwa_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=address,undefined -fno-omit-frame-pointer
    -fno-sanitize-recover=undefined>)
  target_link_options(fwa_flags INTERFACE -fsanitize=address,undefined)
endif()
