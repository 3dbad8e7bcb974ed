#include "compiled_function.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL stablexla_numpy
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "arrays.h"
#include "called_run.h"
#include "device_run.h"
#include "few.h"
#include "float_mode.h"
#include "guard_faults.h"
#include "hosted_run.h"
#include "plain_run.h"
#include "released_gil.h"
#include "shared_blocks.h"

namespace stablexla {

std::size_t staying_bytes = 0;  // of constants that are no blocks of the pool; under the GIL
constexpr std::size_t kStays = 64 << 10;  // bytes of a constant that is not copied, if nobody may write it

void throw_python() { throw nb::python_error(); }

// Imported lazily, at the first use, as the modules import this one.
nb::object cold_path(const char* function, const char* module) { return nb::module_::import_(module).attr(function); }

namespace {

GuardedEnd guarded_end_of(const std::string& word) {
  if (word.empty()) return GuardedEnd::kNone;
  if (word != "ends" && word != "starts") throw nb::value_error("what meets a guard page are ends or starts of arrays");
  return word == "ends" ? GuardedEnd::kEnds : GuardedEnd::kStarts;
}

Json configs_of(nb::sequence configs) {
  if (nb::len(configs) == 0) return Json::parse("[]");
  return Json::parse(nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(nb::list(configs))));
}

PyArray_Descr* descr_of(const ArraySpec& spec) { return reinterpret_cast<PyArray_Descr*>(spec.dtype.ptr()); }

bool same_shape(const ArraySpec& spec, PyArrayObject* array) {
  const int rank = static_cast<int>(spec.shape.size());
  // not memcmp: arrays of rank 0 have no dimensions to point to
  return PyArray_NDIM(array) == rank && std::equal(spec.shape.begin(), spec.shape.end(), PyArray_DIMS(array));
}

// Whether machine code can read an array in place.
bool fits_as_it_is(const ArraySpec& spec, PyArrayObject* array) {
  constexpr int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
  PyArray_Descr* descr = PyArray_DESCR(array);
  return (PyArray_FLAGS(array) & flags) == flags && same_shape(spec, array) &&
         (descr == descr_of(spec) || PyArray_EquivTypes(descr, descr_of(spec)));
}

template <typename T>
bool store(T value, void* slot) {
  std::memcpy(slot, &value, sizeof value);
  return true;
}

template <typename T>
bool store_integer(PyObject* given, void* slot) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(given, &overflow);
  if (overflow != 0 || value < static_cast<long long>(std::numeric_limits<T>::min()) ||
      value > static_cast<long long>(std::numeric_limits<T>::max()))
    return false;
  return store(static_cast<T>(value), slot);
}

// Fast path: stores the commonest Python numbers to `slot` as the parameter's element; false for arguments.py.
bool store_scalar(const ArraySpec& spec, PyObject* given, void* slot) {
  const int type = descr_of(spec)->type_num;
  if (PyFloat_CheckExact(given)) {
    const double value = PyFloat_AS_DOUBLE(given);
    if (type == NPY_DOUBLE) return store(value, slot);
    if (type != NPY_FLOAT) return false;
    const float narrow = static_cast<float>(value);
    return (std::isfinite(narrow) || !std::isfinite(value)) && store(narrow, slot);
  }
  if (PyLong_CheckExact(given)) {
    if (type == NPY_INT32) return store_integer<std::int32_t>(given, slot);
    return type == NPY_INT64 && store_integer<std::int64_t>(given, slot);
  }
  if (PyBool_Check(given)) return type == NPY_BOOL && store<npy_bool>(given == Py_True, slot);
  if (type < NPY_USERDEF && Py_TYPE(given) == descr_of(spec)->typeobj && PyArray_CheckScalar(given)) {
    PyArray_ScalarAsCtype(given, slot);
    return true;
  }
  return false;
}

Block block_of(PyObject* capsule) {
  const auto size_class = reinterpret_cast<std::uintptr_t>(PyCapsule_GetContext(capsule));
  return {PyCapsule_GetPointer(capsule, nullptr), static_cast<std::uint32_t>(size_class)};
}

void release_capsule(PyObject* capsule) { release_block(block_of(capsule)); }
void leave_capsule(PyObject* capsule) { leave_block(block_of(capsule)); }

// Returns a capsule that holds one reference to a block; on failure the reference is dropped.
PyObject* capsule_of(Block block, PyCapsule_Destructor destructor) {
  PyObject* capsule = PyCapsule_New(block.data, nullptr, nullptr);
  if (capsule == nullptr || PyCapsule_SetContext(capsule, reinterpret_cast<void*>(std::uintptr_t(block.size_class))) ||
      PyCapsule_SetDestructor(capsule, destructor)) {
    Py_XDECREF(capsule);
    destructor == leave_capsule ? leave_block(block) : release_block(block);
    throw_python();
  }
  return capsule;
}

// Whether an array's memory is a block of the pool, which counts it already.
bool is_of_pool(PyArrayObject* array) {
  PyObject* base = PyArray_BASE(array);
  while (base != nullptr && PyArray_Check(base)) base = PyArray_BASE(reinterpret_cast<PyArrayObject*>(base));
  return base != nullptr && PyCapsule_CheckExact(base) && PyCapsule_GetDestructor(base) == release_capsule;
}

// Steals the reference to the owner, also when it fails.
inline nb::object array_over(const ArraySpec& spec, void* data, PyObject* owner, int flags) {
  Py_INCREF(spec.dtype.ptr());  // the array steals one reference to its dtype
  nb::object array = nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr_of(spec), static_cast<int>(spec.shape.size()),
                                                    spec.shape.data(), nullptr, data, flags, nullptr));
  if (!array.is_valid()) {
    Py_DECREF(owner);
    throw_python();
  }
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()), owner) < 0) throw_python();
  return array;
}

}  // namespace

PyObject* owner_of(Block block) { return capsule_of(block, release_capsule); }

nb::object view_of(const ArraySpec& spec, void* data, nb::object owner, bool writable) {
  return array_over(spec, data, owner.release().ptr(), writable ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO);
}

void* host_argument(const ArraySpec& spec, PyObject* given, void* scalar, std::vector<nb::object>& kept,
                    const std::string& program, std::size_t number) {
  auto* array = reinterpret_cast<PyArrayObject*>(given);
  const bool is_array = PyArray_CheckExact(given);
  if (!is_array && spec.shape.empty() && store_scalar(spec, given, scalar)) return scalar;
  if (!is_array || !fits_as_it_is(spec, array)) {
    kept.push_back(cold_path("fit")(nb::handle(given), spec, program, number));
    array = reinterpret_cast<PyArrayObject*>(kept.back().ptr());
    if (!PyArray_Check(kept.back().ptr()) || !fits_as_it_is(spec, array))
      throw std::runtime_error("arguments.fit gave an array that does not fit");
  }
  return PyArray_DATA(array) != nullptr ? PyArray_DATA(array) : nothing;
}

bool is_plain_host_value(PyObject* given) {
  return PyArray_CheckExact(given) || PyFloat_CheckExact(given) || PyLong_CheckExact(given) || PyBool_Check(given) ||
         PyArray_CheckScalar(given);
}

void import_numpy() {
  if (_import_array() < 0) throw_python();
}

ArraySpec::ArraySpec(nb::handle dtype_like, nb::sequence dimensions, std::string name_) : name(std::move(name_)) {
  PyArray_Descr* descr = nullptr;
  if (PyArray_DescrConverter(dtype_like.ptr(), &descr) == NPY_FAIL) throw_python();
  dtype = nb::steal(reinterpret_cast<PyObject*>(descr));
  if (!PyArray_ISNBO(descr->byteorder) || PyDataType_FLAGCHK(descr, NPY_ITEM_REFCOUNT))
    throw nb::value_error("an array of a program's interface has plain elements in native byte order");
  bytes = static_cast<std::size_t>(PyDataType_ELSIZE(descr));
  for (nb::handle dimension : dimensions) {
    const auto size = nb::cast<std::intptr_t>(dimension);
    if (size < 0) throw nb::value_error("a dimension is less than 0");
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes))
      throw nb::value_error("an array of more bytes than an address can count");
    shape.push_back(size);
  }
  if (shape.size() > NPY_MAXDIMS) throw nb::value_error("numpy has no arrays of that rank");
}

nb::tuple ArraySpec::shape_tuple() const {
  nb::list list;
  for (std::intptr_t size : shape) list.append(size);
  return nb::tuple(list);
}

std::string ArraySpec::text() const {
  std::string text = std::string(nb::str(dtype).c_str()) + "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

bool ArraySpec::operator==(const ArraySpec& other) const {
  return shape == other.shape && name == other.name && dtype.equal(other.dtype);
}

CompiledFunction::CompiledFunction(std::string name_, std::uintptr_t entry_, std::vector<ArraySpec> parameters_,
                                   std::vector<ArraySpec> results_, std::size_t arena_bytes_, nb::sequence constants,
                                   std::map<int, int> aliases_, bool flush_denormals_, nb::object keep_alive_,
                                   nb::object host_, nb::sequence collectives_, int num_devices_,
                                   std::map<std::int64_t, std::string> places_, const std::string& guard)
    : DeviceProgram(name_, configs_of(collectives_).list(), num_devices_),
      HostTable(std::move(host_), num_devices_),
      name(std::move(name_)),
      entry(entry_),
      parameters(std::move(parameters_)),
      results(std::move(results_)),
      arena_bytes(arena_bytes_),
      aliases(std::move(aliases_)),
      flush_denormals(flush_denormals_),
      keep_alive(std::move(keep_alive_)),
      collective_configs(nb::list(collectives_)),
      places(std::move(places_)),
      guarded_end(guarded_end_of(guard)),
      hosted_(!host.is_none()),
      is_special_(hosted_ || num_devices != 1 || guarded_end != GuardedEnd::kNone) {
  if (entry == 0) throw nb::value_error("the entry address is 0: the function was not found in the machine code");
  std::vector<bool> taken(parameters.size());
  for (auto [result, parameter] : aliases) {
    if (result < 0 || parameter < 0 || std::size_t(result) >= results.size() ||
        std::size_t(parameter) >= parameters.size())
      throw nb::value_error("an alias names a result or a parameter that is not there");
    if (results[static_cast<std::size_t>(result)].bytes != parameters[static_cast<std::size_t>(parameter)].bytes ||
        taken[static_cast<std::size_t>(parameter)])
      throw nb::value_error("an alias pairs arrays of different sizes, or a parameter with two results");
    taken[static_cast<std::size_t>(parameter)] = true;
  }
  count_fresh_bytes();
  if (guarded_end != GuardedEnd::kNone) watch_for_faults();
  try {
    take_constants(std::move(constants));
  } catch (...) {
    release_constants();
    throw;
  }
}

CompiledFunction::~CompiledFunction() { release_constants(); }

void CompiledFunction::release_constants() {
  for (std::size_t i = 0; i < constants_.size(); ++i)
    if (!constant_arrays_[i].is_valid()) release_block(constants_[i]);
  staying_bytes -= own_staying_bytes_;
}

// Large arrays that nobody may write stay where they are: packed weights, those of a mapped file. Others are
// copied, so that they are immutable, and aligned like results.
void CompiledFunction::take_constants(nb::sequence constants) {
  for (nb::handle constant : constants) {
    nb::object array = nb::steal(PyArray_FromAny(constant.ptr(), nullptr, 0, 0, NPY_ARRAY_CARRAY_RO, nullptr));
    if (!array.is_valid()) throw_python();
    auto* source = reinterpret_cast<PyArrayObject*>(array.ptr());
    const auto bytes = static_cast<std::size_t>(PyArray_NBYTES(source));
    if (bytes >= kStays && !PyArray_ISWRITEABLE(source) && guarded_end == GuardedEnd::kNone) {
      const PoolStats now = pool_stats();
      const std::size_t used = now.in_use_bytes + staying_bytes;
      if (!is_of_pool(source)) {
        if (bytes > now.memory_limit_bytes - std::min(now.memory_limit_bytes, used))
          cold_path("raise_out_of_memory", kAvailableMemory)(name + ": constants", bytes);
        staying_bytes += bytes;
        own_staying_bytes_ += bytes;
      }
      constants_.push_back(Block{PyArray_DATA(source), 0});
      constant_bytes_.push_back(bytes);
      constant_arrays_.push_back(std::move(array));
      continue;
    }
    Block block = acquire_block(bytes);
    if (block.data == nullptr) cold_path("raise_out_of_memory", kAvailableMemory)(name + ": constants", bytes);
    constants_.push_back(block);
    constant_bytes_.push_back(bytes);
    constant_arrays_.emplace_back();
    std::memcpy(block.data, PyArray_DATA(source), bytes);
  }
}

void CompiledFunction::count_fresh_bytes() {
  const auto add = [](std::size_t& sum, std::size_t bytes) {
    if (__builtin_add_overflow(sum, block_bytes(bytes), &sum)) sum = std::numeric_limits<std::size_t>::max();
  };
  for (const ArraySpec& result : results) add(fresh_bytes_, result.bytes);
  if (arena_bytes != 0) add(fresh_bytes_, arena_bytes);
  for (auto [result, parameter] : aliases) add(donated_bytes_, results[static_cast<std::size_t>(result)].bytes);
}

__attribute__((noinline)) void CompiledFunction::ask_for_room(std::size_t devices, bool donate) const {
  std::size_t needed = fresh_bytes_ - (donate ? donated_bytes_ : 0);
  if (__builtin_mul_overflow(needed, devices, &needed)) needed = std::numeric_limits<std::size_t>::max();
  const PoolStats now = pool_stats();
  const std::size_t left = now.memory_limit_bytes - std::min(now.memory_limit_bytes, now.in_use_bytes);
  if (needed > left || (needed > now.cached_bytes && needed - now.cached_bytes > kSmallBytes))
    cold_path("check_room", kAvailableMemory)(name, results, arena_bytes, needed, devices);
}

void* CompiledFunction::argument(std::size_t i, PyObject* given, void* scalar, std::vector<nb::object>& kept,
                                 PyObject** used, int device) const {
  const ArraySpec& spec = parameters[i];
  auto* array = reinterpret_cast<PyArrayObject*>(given);
  const bool is_array = PyArray_CheckExact(given);
  // host functions may keep views of arguments, which must not lie on this stack
  if (!is_array && spec.shape.empty() && !hosted_ && store_scalar(spec, given, scalar)) return scalar;
  if (!is_array || !fits_as_it_is(spec, array)) {
    const std::string place = device < 0 ? name : name + ": device " + std::to_string(device);
    kept.push_back(cold_path("fit")(nb::handle(given), spec, place, i));
    array = reinterpret_cast<PyArrayObject*>(kept.back().ptr());
    if (!PyArray_Check(kept.back().ptr()) || !fits_as_it_is(spec, array))
      throw std::runtime_error("arguments.fit gave an array that does not fit");
  }
  *used = reinterpret_cast<PyObject*>(array);
  return PyArray_DATA(array) != nullptr ? PyArray_DATA(array) : nothing;
}

nb::object CompiledFunction::new_result(std::size_t i, void** data) const {
  const ArraySpec& spec = results[i];
  Block block = acquire_block(spec.bytes);
  if (block.data == nullptr)
    cold_path("raise_out_of_memory", kAvailableMemory)(name + ": result " + std::to_string(i) + " (" + spec.text() + ")", spec.bytes);
  PyObject* owner = nullptr;
  if (aliases.empty()) {
    owner = owner_of(block);
  } else {  // it may come back as a donated argument
    share_block(block);
    owner = capsule_of(block, leave_capsule);
  }
  nb::object array = array_over(spec, block.data, owner, NPY_ARRAY_CARRAY);
  *data = block.data;
  return array;
}

// Returns a result in the memory of its donated argument, or a new one where that is impossible: another argument
// aliases it, the memory is not aligned as results are, or it is neither a writable array's nor ours.
nb::object CompiledFunction::donated_result(std::size_t i, void** data, const std::vector<PyObject*>& arrays,
                                            std::size_t first) const {
  auto alias = aliases.find(static_cast<int>(i));
  if (alias == aliases.end()) return new_result(i, data);
  const std::size_t donated = first + static_cast<std::size_t>(alias->second);
  PyObject* given = arrays[donated];
  if (given == nullptr) return new_result(i, data);
  const auto span = [](PyObject* array) {
    auto* raw = reinterpret_cast<PyArrayObject*>(array);
    auto* start = static_cast<char*>(PyArray_DATA(raw));
    return std::make_pair(start, start + PyArray_NBYTES(raw));
  };
  const auto [start, end] = span(given);
  if (end == start || reinterpret_cast<std::uintptr_t>(start) % 64 != 0) return new_result(i, data);
  for (std::size_t other = 0; other < arrays.size(); ++other) {
    if (arrays[other] == nullptr || other == donated) continue;
    const auto [first, last] = span(arrays[other]);
    if (first < end && start < last) return new_result(i, data);
  }
  Block block;
  PyObject* owner = nullptr;
  if (join_block(start, &block)) {
    owner = capsule_of(block, leave_capsule);
  } else if (PyArray_ISWRITEABLE(reinterpret_cast<PyArrayObject*>(given))) {
    owner = nb::borrow(given).release().ptr();
  } else {
    return new_result(i, data);
  }
  *data = start;
  return array_over(results[i], start, owner, NPY_ARRAY_CARRAY);
}

// Packed calling convention: entry i is the address of argument i, and every argument is a data pointer.
void CompiledFunction::run(void** data, std::size_t count, HostedRun* hosted, Guard* guard) const {
  Few<void*, 64> packed(count);
  for (std::size_t i = 0; i < count; ++i) packed[i] = &data[i];
  if (hosted == nullptr && guard == nullptr && places.empty()) {
    ReleasedGil released;
    FloatScope scope(program_float_state(flush_denormals));
    reinterpret_cast<Entry>(entry)(packed.data());
    return;
  }
  Raised own;
  Raised& raised = hosted != nullptr ? hosted->raised() : own;
  RunEnd end;
  {
    ReleasedGil released;
    FloatScope scope(program_float_state(flush_denormals));
    CalledRun control(released, raised);
    if (hosted != nullptr) {
      hosted->run(reinterpret_cast<Entry>(entry), packed.data(), released, control, guard);
    } else {
      jmp_buf way_out;
      InnermostScope here(&control, &way_out, true, guard);
      enter(reinterpret_cast<Entry>(entry), packed.data(), way_out);
    }
    end = control.end();
  }
  if (guard != nullptr && !guard->check()) raise_outside(guard->found());
  raise_ended(name, places, end, raised);
}

__attribute__((noinline)) void CompiledFunction::run_special(void** data, std::size_t count, Arena& arena,
                                                             PyObject* const* arguments,
                                                             const std::vector<nb::object>& kept,
                                                             const std::vector<nb::object>& made) const {
  if (num_devices != 1) cold_path("raise_for_several", kCollectiveErrors)(name, num_devices);
  const std::shared_ptr<Guard> guard = guarded(data);
  if (hosted_) {
    nb::list given;
    for (std::size_t i = 0; i < parameters.size(); ++i) given.append(nb::handle(arguments[i]));
    nb::object memory = nb::make_tuple(given, nb::cast(kept), guard_owner(guard));
    HostedRun hosted(*this, arena, nb::find(*this), std::move(memory), nb::cast(made));
    run(data, count, &hosted, guard.get());
  } else {
    run(data, count, nullptr, guard.get());
  }
  if (guard != nullptr) guard->give_back();
}

nb::object guard_owner(const std::shared_ptr<Guard>& guard) {
  if (guard == nullptr) return nb::none();
  return nb::capsule(new std::shared_ptr<Guard>(guard),
                     [](void* held) noexcept { delete static_cast<std::shared_ptr<Guard>*>(held); });
}

// Puts guarded arrays in the place of those that a run is given: null where its runs are not under guard. What a
// result's donated parameter has is one array still; other parameters and constants can only be read.
std::shared_ptr<Guard> CompiledFunction::guarded(void** data) const {
  if (guarded_end == GuardedEnd::kNone) return nullptr;
  auto guard = std::make_shared<Guard>(guarded_end);
  void** const first_constant = data + parameters.size();
  void** const first_result = first_constant + constants_.size();
  const auto place = [&](GuardedRole role, std::size_t i, void** slot, std::size_t bytes, bool is_read_only) {
    if (bytes == 0) return;
    void* const result = role == GuardedRole::kResult ? *slot : nullptr;
    const bool is_new = role == GuardedRole::kResult || role == GuardedRole::kArena;
    char* made = guard->place(role, static_cast<std::int64_t>(i), bytes, is_new ? nullptr : *slot, is_read_only, result);
    if (made == nullptr) cold_path("raise_out_of_memory", kAvailableMemory)("arrays under guard", bytes);
    *slot = made;
  };
  std::vector<void*> given(data, first_constant);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool is_donated = std::find(first_result, first_result + results.size(), data[i]) != first_result + results.size();
    place(GuardedRole::kParameter, i, &data[i], parameters[i].bytes, !is_donated);
  }
  for (std::size_t i = 0; i < constants_.size(); ++i)
    place(GuardedRole::kConstant, i, &first_constant[i], constant_bytes_[i], true);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto donor = std::find(given.begin(), given.end(), first_result[i]);
    if (donor == given.end() || results[i].bytes == 0) {
      place(GuardedRole::kResult, i, &first_result[i], results[i].bytes, false);
      continue;
    }
    char* shared = static_cast<char*>(data[donor - given.begin()]);
    guard->return_to(shared, first_result[i]);
    first_result[i] = shared;
  }
  place(GuardedRole::kArena, 0, &first_result[results.size()], arena_bytes, false);
  return guard;
}

void CompiledFunction::raise_outside(const Outside& found) const {
  const auto text = [this](std::int64_t number) {
    const auto place = places.find(number);
    return place != places.end() ? place->second : std::string();
  };
  const auto number = static_cast<std::size_t>(found.number);
  std::string array;
  if (found.is_near) switch (found.role) {
      case GuardedRole::kParameter: array = "argument " + std::to_string(number) + ", " + parameters[number].text(); break;
      case GuardedRole::kConstant: array = "constant " + std::to_string(number); break;
      case GuardedRole::kResult: array = "result " + std::to_string(number) + ", " + results[number].text(); break;
      case GuardedRole::kArena: array = "the temporaries"; break;
      case GuardedRole::kTemporary: array = text(found.number); break;
    }
  constexpr const char* verbs[] = {"read", "wrote", "accessed"};
  cold_path("raise_outside", "stablexla.targets.runtime.guards")(
      name, text(found.kernel), verbs[static_cast<int>(found.access)], array, found.offset, found.bytes, found.address);
}

std::vector<nb::object> CompiledFunction::execute(PyObject* const* arguments, std::size_t count, bool donate) const {
  if (count != parameters.size()) cold_path("raise_wrong_count")(name, parameters, count);
  const std::size_t total = count + constants_.size() + results.size() + 1;
  Few<void*, 64> data(total);
  Few<std::array<char, kScalarBytes>, 64> scalars(count);
  std::vector<nb::object> kept;  // conversions of arguments, kept alive
  std::size_t next = 0;
  std::vector<PyObject*> arrays(donate ? count : 0, nullptr);  // the arguments' arrays
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* used = nullptr;
    data[next++] = argument(i, arguments[i], scalars[i].data(), kept, &used);
    if (donate) arrays[i] = used;
  }
  for (Block constant : constants_) data[next++] = constant.data;
  check_room(1, donate);
  std::vector<nb::object> made;
  made.reserve(results.size());
  for (std::size_t i = 0; i < results.size(); ++i, ++next)
    made.push_back(donate ? donated_result(i, &data[next], arrays) : new_result(i, &data[next]));
  Arena arena(arena_bytes, name);
  data[next++] = arena.data();
  if (is_special_)
    run_special(data.data(), total, arena, arguments, kept, made);
  else
    run(data.data(), total, nullptr);
  return made;
}

PlainCode CompiledFunction::plain_code() const {
  PlainCode code{name, reinterpret_cast<Entry>(entry), flush_denormals, arena_bytes, {}, {}};
  for (Block constant : constants_) code.constants.push_back(constant.data);
  return code;
}

std::vector<nb::object> CompiledFunction::constants() const {
  std::vector<nb::object> arrays;
  for (std::size_t i = 0; i < constants_.size(); ++i) {
    const ArraySpec bytes(nb::str("uint8"), nb::borrow<nb::sequence>(nb::make_tuple(constant_bytes_[i])), "");
    arrays.push_back(view_of(bytes, constants_[i].data, nb::find(*this), false));
  }
  return arrays;
}

std::string CompiledFunction::repr() const {
  auto list = [](const std::vector<ArraySpec>& specs, bool names) {
    std::string text;
    for (const ArraySpec& spec : specs) {
      if (!text.empty()) text += ", ";
      text += (names && !spec.name.empty() ? spec.name + ": " : "") + spec.text();
    }
    return "(" + text + ")";
  };
  return "<CompiledFunction " + name + list(parameters, true) + " -> " + list(results, false) + ">";
}

}  // namespace stablexla
