// Element types, numbered as torch numbers them (c10::ScalarType), so that a cast converts.
#pragma once

#include <cstdint>

namespace peakline {

enum class DType : std::int8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplex32 = 8,
  kComplex64 = 9,
  kComplex128 = 10,
  kBool = 11,
  kBFloat16 = 15,
  kFloat8E5M2 = 23,
  kFloat8E4M3FN = 24,
  kFloat8E5M2FNUZ = 25,
  kFloat8E4M3FNUZ = 26,
  kUInt16 = 27,
  kUInt32 = 28,
  kUInt64 = 29,
};

constexpr std::int64_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kUInt16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
    case DType::kComplex32:
    case DType::kUInt32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kComplex64:
    case DType::kUInt64:
      return 8;
    case DType::kComplex128:
      return 16;
    default:
      return 1;
  }
}

constexpr bool is_reduced_float(DType dtype) noexcept {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}
constexpr bool is_floating(DType dtype) noexcept {
  return is_reduced_float(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}
constexpr bool is_complex(DType dtype) noexcept {
  return dtype == DType::kComplex32 || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}
constexpr bool is_integral(DType dtype) noexcept {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return true;
    default:
      return false;
  }
}

// The type CUDA kernels accumulate in (at::acc_type<T, true>).
constexpr DType accumulate_type(DType dtype) noexcept {
  if (is_reduced_float(dtype)) return DType::kFloat32;
  if (is_integral(dtype) || dtype == DType::kBool) return DType::kInt64;
  return dtype;
}

}  // namespace peakline
