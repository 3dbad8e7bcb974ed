// A list of kernel calls: `main` as data, where it is nothing but calls. `targets/llvm/call_list.py` writes it.
#pragma once

#include <cstdint>

extern "C" {
// Carries out the calls of a list of `count` numbers. A call is a head of five numbers (the function, its work items,
// the grain, the number of its place, how many arguments follow) and two numbers for each argument: the buffer and an
// offset in it, -1 and an integer, -2 and a place in `computed`, or -3 and the number of a function, whose address it
// is. An argument may be the address of a table, too: -4 and how many numbers follow, which are the table; or -5 and
// how many such pairs follow, whose values are it. Floats of 32 or 64 bits are -6 and their bits, or -7 and a place in
// `computed`, where these are; a call has four at most. The function then takes a range of work items. With a grain the
// call is a parallel-for; else it is one call, for all items. `functions` are addresses; `buffers` what `main` takes,
// as addresses of cells with addresses. Behind each call the run may be left, as behind `stablexla_check`.
__attribute__((visibility("default"))) void stablexla_run_calls(const void* const* functions,
                                                                const std::int64_t* calls, std::int64_t count,
                                                                void* const* const* buffers,
                                                                const std::int64_t* computed);
}
