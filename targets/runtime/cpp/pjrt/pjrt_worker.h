// A process of Python's that compiles, for a process without Python: started at the first question, and kept.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "pjrt_objects.h"

namespace stablexla::pjrt {

struct Answer {
  Json values;
  std::shared_ptr<Storage> data;
};

// Asks for `what` of stablexla/pjrt/serving.py, on `parts` of bytes and a number. Returns an error, or null. Questions
// of several threads are answered one after the other.
PJRT_Error* ask_worker(const char* what, const std::vector<std::string_view>& parts, std::size_t number, Answer& answer);

}  // namespace stablexla::pjrt
