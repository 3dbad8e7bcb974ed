// Saved programs without Python: what `save` of an executable wrote, `stablexla-compile`, or JAX's serialization.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "pjrt_objects.h"

namespace stablexla::pjrt {

// Makes a program of a file's bytes, which it keeps. `options` is a CompileOptionsProto in the place of the one that it
// was compiled with; none where it is empty. Checksums are computed unless the bytes are of an `own` process.
PJRT_Error* load_saved(const PJRT_Client& client, std::shared_ptr<Storage> bytes, const std::string& options, bool own,
                       std::shared_ptr<PJRT_Executable>& made);

// The file in what JAX's executables serialize to: jaxlib writes a message of its own before it, and its length.
std::string_view file_in(std::string_view bytes);

// What a program's costs are found by, and the program of one of its partitions; set where there is a compiler.
extern PJRT_Error* (*costs_of_saved)(const Storage& bytes, std::vector<std::pair<std::string, float>>& found);
extern PJRT_Error* (*partition_of_saved)(const Storage& bytes, std::string& text);

}  // namespace stablexla::pjrt
