#include "plain_run.h"

#include <utility>

#include "few.h"
#include "ffi_call.h"
#include "float_mode.h"
#include "memory_pool.h"

namespace stablexla {

alignas(64) char nothing[64];

namespace {

struct Running {
  const PlainCode* code = nullptr;
  std::string said;  // of a handler that failed
};
thread_local Running* running = nullptr;

}  // namespace

PlainEnd run_plain(const PlainCode& code, std::vector<void*>& buffers, RunControl& control, Device* device,
                   bool is_caller) {
  Few<void*, 64> packed(buffers.size());
  Block arena;
  if (code.arena_bytes != 0 && (arena = acquire_block(code.arena_bytes)).data == nullptr) return {Ending::kNoMemory, ""};
  buffers.back() = arena.data != nullptr ? arena.data : nothing;
  for (std::size_t i = 0; i < buffers.size(); ++i) packed[i] = &buffers[i];
  Running own{&code, {}};
  Running* const outer = std::exchange(running, &own);
  {
    FloatScope scope(program_float_state(code.flush_denormals));
    jmp_buf way_out;
    InnermostScope here(&control, &way_out, is_caller, nullptr, device);
    enter(code.entry, packed.data(), way_out);
  }
  running = outer;
  if (arena.data != nullptr) release_block(arena);
  if (!own.said.empty()) return {Ending::kFailed, std::move(own.said)};
  return {control.end().why, ""};
}

void call_handler(std::int64_t number, void** outputs, void** inputs) {
  const FfiCall& call = *running->code->calls.at(static_cast<std::size_t>(number));
  const Innermost& here = innermost_run_here;
  if (!here.run->is_stopped()) {
    const std::string said = call.execute(outputs, inputs);
    if (!said.empty()) running->said = running->code->name + ": custom call '" + call.name + "' failed: " + said;
  }
  if (!running->said.empty() || here.run->is_stopped()) _longjmp(*here.way_out, 1);
}

}  // namespace stablexla
