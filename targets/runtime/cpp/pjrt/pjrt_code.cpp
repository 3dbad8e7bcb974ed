#include "pjrt_code.h"

#include <dlfcn.h>
#include <glob.h>
#include <sys/utsname.h>

#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "blas_threads.h"
#include "pjrt_objects.h"
#include "plain_run.h"
#include "standalone.h"
#include "system.h"
#include "tile_permission.h"

namespace stablexla::pjrt {

namespace {

constexpr std::string_view kLapack = "stablexla_lapack_", kCFunction = "stablexla.custom_call.";

#if defined(__APPLE__)
constexpr const char* kOfScipy = "/scipy/.dylibs/libscipy_openblas*.dylib";
constexpr const char* kOfSystem[] = {"/System/Library/Frameworks/Accelerate.framework/Accelerate"};
#else
constexpr const char* kOfScipy = "/scipy.libs/libscipy_openblas*.so";
constexpr const char* kOfSystem[] = {"liblapack.so.3", "libopenblas.so.0"};
#endif

// A library of LAPACK: the process's own, the one beside this library that SciPy brings, or the system's.
class Lapack {
 public:
  static std::uintptr_t find(const std::string& routine) {
    static const Lapack lapack;
    return lapack.is_found_ ? lapack.look_up(routine + "_") : 0;
  }

 private:
  Lapack() {
    is_found_ = look_up("dgetrf_") != 0;
    for (const std::string& place : places()) {
      if (is_found_) break;
      library_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library_ == nullptr) continue;
      if (look_up("scipy_dgetrf_") != 0) prefix_ = "scipy_";
      is_found_ = look_up("dgetrf_") != 0;
    }
    const std::uintptr_t get = look_up("openblas_get_num_threads"), set = look_up("openblas_set_num_threads");
    if (is_found_ && get != 0 && set != 0) set_blas_functions(get, set);
  }

  static std::vector<std::string> places() {
    Dl_info info;
    std::vector<std::string> found;
    if (dladdr(reinterpret_cast<void*>(&Lapack::find), &info) != 0) {
      const std::string path = info.dli_fname;
      const std::size_t packages = path.rfind("/stablexla/targets/runtime/");
      glob_t files{};
      if (packages != std::string::npos && glob((path.substr(0, packages) + kOfScipy).c_str(), 0, nullptr, &files) == 0)
        found.emplace_back(files.gl_pathv[0]);
      globfree(&files);
    }
    found.insert(found.end(), std::begin(kOfSystem), std::end(kOfSystem));
    return found;
  }

  std::uintptr_t look_up(const std::string& name) const {
    return reinterpret_cast<std::uintptr_t>(dlsym(library_, (prefix_ + name).c_str()));
  }

  void* library_ = RTLD_DEFAULT;
  std::string prefix_;
  bool is_found_ = false;
};

std::uintptr_t address_of(const std::string& name) {
  if (name == "malloc" || name == "free") return find_symbol("stablexla_" + name);
  if (name == "stablexla_call_host") return reinterpret_cast<std::uintptr_t>(&call_handler);
  if (name == "stablexla_next_random_key") return reinterpret_cast<std::uintptr_t>(&stablexla_next_random_key);
  if (name == "memrefCopy") return reinterpret_cast<std::uintptr_t>(&memrefCopy);
  if (name.rfind(kLapack, 0) == 0) return Lapack::find(name.substr(kLapack.size()));
  if (name.rfind(kCFunction, 0) == 0) return find_symbol(name.substr(kCFunction.size()));
  return find_symbol(name);
}

}  // namespace

namespace {

struct Handlers {
  std::mutex mutex;
  std::map<std::string, ffi::Handler*> by_name;
};

Handlers& handlers() {
  static Handlers* made = new Handlers;  // leaked on purpose: programs may be loaded while the process ends
  return *made;
}

}  // namespace

void register_handler(const std::string& name, ffi::Handler* handler) {
  std::lock_guard lock(handlers().mutex);
  handlers().by_name[name] = handler;
}

ffi::Handler* find_handler(const std::string& name) {
  std::lock_guard lock(handlers().mutex);
  const auto found = handlers().by_name.find(name);
  return found != handlers().by_name.end() ? found->second : nullptr;
}

std::string handler_names() {
  std::lock_guard lock(handlers().mutex);
  std::string names;
  for (const auto& [name, handler] : handlers().by_name) names += name + "\n";
  return names;
}

void check_machine(const Json& function) {
  utsname here{};
  uname(&here);
  if (function["machine"].text() != here.machine)
    throw Refused(kFailedPrecondition, "it was compiled for " + function["machine"].text() + ", and this is " + here.machine);
  static const std::set<std::string> known = processor_flags();
  std::string missing;
  for (const Json& each : function["features"].list()) {
    if (known.count(each.text()) == 0) missing += (missing.empty() ? "" : ", ") + each.text();
    if (each.text().rfind("amx", 0) == 0 && !ask_for_tiles())
      throw Refused(kFailedPrecondition, "it uses AMX, which the system does not let this process use");
  }
  if (!missing.empty())
    throw Refused(kFailedPrecondition, "it was compiled for a processor with " + missing +
                                           ", which this one does not have; stablexla-compile --target-cpu=NAME "
                                           "compiles for others, as x86-64-v3 or armv8-a");
}

std::vector<std::unique_ptr<ObjectCode>> load_code(std::string_view section, const Json& sizes) {
  std::vector<std::unique_ptr<ObjectCode>> code;
  for (const Json& size : sizes.list()) {
    if (size.size() > section.size()) throw std::runtime_error("its code is not of the length that it should have");
    const std::string_view file = section.substr(0, size.size());
    section.remove_prefix(size.size());
    Symbols symbols;
    for (const std::string& name : undefined_symbols(file)) {
      std::uintptr_t address = 0;
      for (const auto& before : code)
        if (address == 0) address = before->address(name);
      if (address == 0) address = address_of(name);
      if (address == 0) {
        const bool is_lapack = name.rfind(kLapack, 0) == 0, is_call = name.rfind(kCFunction, 0) == 0;
        const std::string shown = is_call ? name.substr(kCFunction.size()) : name;
        throw Refused(kUnimplemented, "it calls " + shown + (is_lapack ? ", and no library of LAPACK is found: one that "
                                      "the process has loaded, SciPy's beside this library, liblapack.so.3"
                                      : is_call ? ", a custom call for which the process has no C function of that name"
                                      : ", which Python's runtime has alone"));
      }
      symbols[name] = address;
    }
    code.push_back(std::make_unique<ObjectCode>(file, symbols));
  }
  if (code.empty() || !section.empty()) throw std::runtime_error("its code is not of the length that it should have");
  return code;
}

}  // namespace stablexla::pjrt
