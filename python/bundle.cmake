# SPDX-License-Identifier: Apache-2.0
# Run at install: copies the libraries that ${library} needs and that are no part of the C library beside it, each under the
# name that it is asked for by, and what Debian says of their terms.
file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${library} RESOLVED_DEPENDENCIES_VAR found
  PRE_EXCLUDE_REGEXES "^lib(c|m|pthread|dl)\\.so" "^ld-linux")
foreach(path IN LISTS found)
  get_filename_component(name ${path} NAME)
  file(REAL_PATH ${path} real)
  file(COPY_FILE ${real} ${CMAKE_INSTALL_PREFIX}/fp8/lib/${name})
  string(REGEX REPLACE "^(lib[a-z0-9-]+)\\.so\\.([0-9]+)$" "\\1;\\2" parts ${name})
  list(JOIN parts "-" package)  # Debian's libpcre2-8-0; libgomp1 and libxxhash0 have no dash
  list(JOIN parts "" short)
  foreach(candidate ${package} ${short})
    if(EXISTS /usr/share/doc/${candidate}/copyright)
      file(COPY_FILE /usr/share/doc/${candidate}/copyright ${CMAKE_INSTALL_PREFIX}/fp8/lib/${name}.copyright)
    endif()
  endforeach()
endforeach()
