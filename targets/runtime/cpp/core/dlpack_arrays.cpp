// DLPack import and export, also of element types that numpy does not know.
#include <nanobind/ndarray.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL stablexla_numpy
#define NO_IMPORT_ARRAY
#include <numpy/arrayobject.h>

#include <vector>

#include "arrays.h"

namespace stablexla {

// Imports an object with DLPack as an array of its element type where numpy has it, else of unsigned integers of the
// same width, with DLPack's type code: numpy itself refuses bfloat16 and the 8-bit floats.
nb::object make_array_of_dlpack(nb::handle value) {
  auto tensor = nb::cast<nb::ndarray<nb::ro, nb::device::cpu>>(value);
  const auto type = tensor.dtype();
  const int type_of_width[] = {NPY_UINT8, NPY_UINT16, NPY_UINT32, NPY_UINT64, NPY_COMPLEX128};
  if (type.lanes != 1 || type.bits < 8 || type.bits > 128 || (type.bits & (type.bits - 1)) != 0)
    throw nb::type_error("elements of an unusual width");
  const std::size_t width = type.bits / 8;
  std::vector<npy_intp> shape, strides;
  for (std::size_t i = 0; i < tensor.ndim(); ++i) {
    shape.push_back(static_cast<npy_intp>(tensor.shape(i)));
    strides.push_back(static_cast<npy_intp>(tensor.stride(i)) * static_cast<npy_intp>(width));
  }
  PyArray_Descr* descr = PyArray_DescrFromType(type_of_width[__builtin_ctzll(width)]);
  auto* data = const_cast<void*>(tensor.data());
  nb::object array =
      nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(shape.size()), shape.data(),
                                     strides.data(), data != nullptr ? data : nothing, 0, nullptr));
  if (!array.is_valid()) throw_python();
  using Tensor = decltype(tensor);
  nb::capsule owner(new Tensor(tensor), [](void* held) noexcept { delete static_cast<Tensor*>(held); });
  auto* raw = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (PyArray_SetBaseObject(raw, owner.release().ptr()) < 0) throw_python();
  PyArray_UpdateFlags(raw, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  return nb::make_tuple(array, static_cast<int>(type.code));
}

// Exports a numpy array's own memory by DLPack, under the given type code.
nb::object make_dlpack_of_array(nb::handle array, int type_code) {
  if (!PyArray_Check(array.ptr())) throw nb::type_error("no numpy array");
  auto* raw = reinterpret_cast<PyArrayObject*>(array.ptr());
  const auto width = static_cast<std::int64_t>(PyArray_ITEMSIZE(raw));
  std::vector<std::size_t> shape;
  std::vector<std::int64_t> strides;
  for (int i = 0; i < PyArray_NDIM(raw); ++i) {
    if (PyArray_STRIDE(raw, i) % width != 0) throw nb::value_error("strides that are no whole elements");
    shape.push_back(static_cast<std::size_t>(PyArray_DIM(raw, i)));
    strides.push_back(PyArray_STRIDE(raw, i) / width);
  }
  const nb::dlpack::dtype type{static_cast<std::uint8_t>(type_code), static_cast<std::uint8_t>(8 * width), 1};
  return nb::cast(nb::ndarray<nb::array_api>(PyArray_DATA(raw), shape.size(), shape.data(), array, strides.data(), type));
}

}  // namespace stablexla
