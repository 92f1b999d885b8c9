# fwa_library(NAME): a static library fwa_NAME from every .c file of the calling folder.
function(fwa_library name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c)
  add_library(fwa_${name} STATIC ${sources})
  target_link_libraries(fwa_${name} PUBLIC fwa_flags ${ARGN})
endfunction()
