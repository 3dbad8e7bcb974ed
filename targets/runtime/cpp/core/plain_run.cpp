#include "plain_run.h"

#include "few.h"
#include "float_mode.h"
#include "memory_pool.h"

namespace stablexla {

alignas(64) char nothing[64];

Ending run_plain(const PlainCode& code, std::vector<void*>& buffers, RunControl& control, Device* device,
                 bool is_caller) {
  Few<void*, 64> packed(buffers.size());
  Block arena;
  if (code.arena_bytes != 0 && (arena = acquire_block(code.arena_bytes)).data == nullptr) return Ending::kNoMemory;
  buffers.back() = arena.data != nullptr ? arena.data : nothing;
  for (std::size_t i = 0; i < buffers.size(); ++i) packed[i] = &buffers[i];
  {
    FloatScope scope(program_float_state(code.flush_denormals));
    jmp_buf way_out;
    InnermostScope here(&control, &way_out, is_caller, nullptr, device);
    enter(code.entry, packed.data(), way_out);
  }
  if (arena.data != nullptr) release_block(arena);
  return control.end().why;
}

}  // namespace stablexla
