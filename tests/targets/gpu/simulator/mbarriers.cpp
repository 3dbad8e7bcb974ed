// mbarrier: barriers in shared memory. A word of 64 bits: how many are awaited in a phase and still, and the phase.
#include <cstring>

#include "../../../../targets/runtime/cpp/gpu/cuda_abi.h"
#include "async_copies.h"
#include "checks.h"
#include "decode.h"
#include "spaces.h"

namespace simulator {

namespace cuda = stablexla::cuda;

void lane_addresses(Warp& w, const Instruction& i, std::uint64_t* out);

namespace {

struct Word {
  std::uint32_t phase;
  std::uint16_t awaited, left;
};
constexpr std::uint16_t kMagic = 0x8000;  // set in `awaited`: this is a barrier

Word* word_at(Warp& w, int lane, std::uint64_t address, bool made) {
  if (address / kWindow * kWindow == kSharedWindow) address -= kSharedWindow;
  Block& b = *w.block;
  if (address < std::uint64_t(kReservedShared) || address + 8 > b.shared.size() || address % 8) {
    fault(cuda::kIllegalAddress, where(w, lane) + " no place for an mbarrier at " + std::to_string(address));
  }
  auto* found = reinterpret_cast<Word*>(b.shared.data() + address);
  if (made && !(found->awaited & kMagic)) fault(cuda::kIllegalInstruction, where(w, lane) + " an mbarrier that was not initialised");
  return found;
}

void init(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes];
  lane_addresses(w, i, address);
  std::uint32_t buffer[kLanes];
  const std::uint32_t* count = w.read<std::uint32_t>(i.b, buffer);
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    Word* word = word_at(w, l, address[l], false);
    if (!count[l] || count[l] >= kMagic) fault(cuda::kIllegalInstruction, where(w, l) + " a count of " + std::to_string(count[l]));
    *word = {0, std::uint16_t(count[l] | kMagic), std::uint16_t(count[l])};
  }
}

void invalidate(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes];
  lane_addresses(w, i, address);
  for (int l = 0; l < kLanes; ++l) {
    if (mask >> l & 1) word_at(w, l, address[l], true)->awaited = 0;
  }
}

void arrive(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes], state[kLanes] = {};
  lane_addresses(w, i, address);
  std::uint32_t buffer[kLanes];
  const std::uint32_t* count = i.flags & 1 ? w.read<std::uint32_t>(i.b, buffer) : nullptr;
  Block& b = *w.block;
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    Word* word = word_at(w, l, address[l], true);
    state[l] = word->phase;
    std::uint32_t n = count ? count[l] : 1;
    if (!n || n > word->left) fault(cuda::kIllegalInstruction, where(w, l) + " more arrivals than the mbarrier is for");
    auto& known = b.mbarrier_known[std::uint32_t(address[l])];
    known.resize(b.warps.size());
    auto mine = b.knowledge(w.index);
    for (std::size_t k = 0; k < known.size(); ++k) known[k] = std::max(known[k], mine[k]);
    word->left = std::uint16_t(word->left - n);
    if (word->left) continue;
    word->left = word->awaited & std::uint16_t(~kMagic);
    ++word->phase;
  }
  ++b.stamp;
  if (i.d.bytes) w.write(i.d, state, mask);
}

// Whether a phase is over. All a warp's lanes know then what those that came did before.
void test(Warp& w, const Instruction& i, Mask mask) {
  std::uint64_t address[kLanes], state_buffer[kLanes];
  std::uint32_t parity_buffer[kLanes];
  lane_addresses(w, i, address);
  const std::uint64_t* state = i.flags & 1 ? nullptr : w.read<std::uint64_t>(i.b, state_buffer);
  const std::uint32_t* parity = i.flags & 1 ? w.read<std::uint32_t>(i.b, parity_buffer) : nullptr;
  Block& b = *w.block;
  Mask over = 0;
  for (int l = 0; l < kLanes; ++l) {
    if (!(mask >> l & 1)) continue;
    Word* word = word_at(w, l, address[l], true);
    bool done = parity ? (word->phase & 1) != (parity[l] & 1) : word->phase != std::uint32_t(state[l]);
    if (!done) continue;
    over |= Mask(1) << l;
    b.acquire(w.index, b.mbarrier_known[std::uint32_t(address[l])]);
  }
  if (over == w.live) w.synchronised = b.stamp;
  ++b.stamp;
  w.write_predicate(i.d, over, mask);
}

void order_words(Decode& d) {
  if (d.take("acquire") || d.take("release") || d.take("relaxed")) {
    if (!d.take("cta")) d.refuse("clusters are not simulated");
  }
}

void mbarrier(Decode& d) {
  enum { kInit, kInval, kArrive, kTest } what = d.take("init") ? kInit : d.take("inval") ? kInval : d.take("arrive") ? kArrive : kTest;
  if (what == kTest && !d.take("test_wait")) d.expect("try_wait");
  if (what == kTest) d.i.flags = d.take("parity");
  if (what == kArrive && (d.take("expect_tx") || d.take("noComplete"))) d.refuse("not simulated");
  order_words(d);
  Space space = d.take("shared") || d.take("shared::cta") ? Space::kShared : Space::kGeneric;
  d.expect("b64");
  std::size_t at = what == kInit || what == kInval ? 0 : 1;
  d.finish_between(what == kInit || what == kArrive ? 2 : what == kInval ? 1 : 3, what == kInval ? 1 : what == kInit ? 2 : what == kArrive ? 3 : 4);
  if (what == kArrive && d.operand(0).kind != Operand::kSink) d.i.d = d.destination(0, 8);
  if (what == kTest) d.i.d = d.predicate_destination(d.operand(0));
  d.address(at, space);
  if (what == kInit) d.i.b = d.source(1, Type::kU32);
  if (what == kArrive && d.count() == 3) {
    d.i.b = d.source(2, Type::kU32);
    d.i.flags = 1;
  }
  if (what == kTest) d.i.b = d.source(2, d.i.flags ? Type::kU32 : Type::kB64);
  d.i.run = what == kInit ? &init : what == kInval ? &invalidate : what == kArrive ? &arrive : &test;
}

}  // namespace

void add_mbarriers(Table& t) { t["mbarrier"] = mbarrier; }

}  // namespace simulator
