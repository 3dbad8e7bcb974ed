// Machine code of saved programs: whether this machine runs it, what it calls, and where that is. As saved_code.py.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ffi_abi.h"
#include "json.h"
#include "object_code.h"

namespace stablexla::pjrt {

// Throws Refused where code that was made on another machine cannot run on this one.
void check_machine(const Json& function);
// Loads object files, each of which may call those before it. Throws Refused for a call of what is not there.
std::vector<std::unique_ptr<ObjectCode>> load_code(std::string_view section, const Json& sizes);

// Handlers of XLA's foreign function interface, by the names of custom calls' targets; null where there is none.
void register_handler(const std::string& name, ffi::Handler* handler);
ffi::Handler* find_handler(const std::string& name);
std::string handler_names();  // one a line

}  // namespace stablexla::pjrt
