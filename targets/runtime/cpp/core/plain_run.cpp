#include "plain_run.h"

#include "few.h"
#include "float_mode.h"
#include "memory_pool.h"

namespace stablexla {

alignas(64) char nothing[64];

Ending run_plain(Entry entry, bool flush_denormals, void** buffers, std::size_t count, std::size_t arena_bytes,
                 RunControl& control) {
  Few<void*, 64> packed(count);
  Block arena;
  if (arena_bytes != 0 && (arena = acquire_block(arena_bytes)).data == nullptr) return Ending::kNoMemory;
  buffers[count - 1] = arena.data != nullptr ? arena.data : nothing;
  for (std::size_t i = 0; i < count; ++i) packed[i] = &buffers[i];
  {
    FloatScope scope(program_float_state(flush_denormals));
    jmp_buf way_out;
    InnermostScope here(&control, &way_out, true);
    enter(entry, packed.data(), way_out);
  }
  if (arena.data != nullptr) release_block(arena);
  return control.end().why;
}

}  // namespace stablexla
