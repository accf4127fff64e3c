// What memory is for: a two-level list. Ids below kBuiltinCategories mean the same in every
// recording; a recording may define more of them, each under a parent.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <peakline/ids.h>

namespace peakline::category {

inline constexpr CategoryId kUnlabelled{0};  // nobody said: lifetimes decide, see lifetime.h
inline constexpr CategoryId kParameter{1};
inline constexpr CategoryId kBuffer{2};
inline constexpr CategoryId kGradient{3};
inline constexpr CategoryId kActivation{4};
inline constexpr CategoryId kTemp{5};
inline constexpr CategoryId kOptstate{6};
inline constexpr CategoryId kInput{7};
inline constexpr CategoryId kWorkspace{8};  // library memory inside an op
inline constexpr CategoryId kComm{9};
inline constexpr CategoryId kOther{10};
inline constexpr CategoryId kShardedParameter{11};
inline constexpr CategoryId kUnshardedParameter{12};
inline constexpr CategoryId kShardedGradient{13};
inline constexpr CategoryId kUnshardedGradient{14};
inline constexpr CategoryId kAllGather{15};
inline constexpr CategoryId kReduceScatter{16};

struct Builtin {
  std::string_view name;
  CategoryId parent;  // itself for the top level
};

inline constexpr std::array<Builtin, 17> kBuiltins{{
    {"Unlabelled", kUnlabelled},
    {"Parameter", kParameter},
    {"Buffer", kBuffer},
    {"Gradient", kGradient},
    {"Activation", kActivation},
    {"Temp", kTemp},
    {"Optstate", kOptstate},
    {"Input", kInput},
    {"Workspace", kWorkspace},
    {"Comm", kComm},
    {"Other", kOther},
    {"Sharded", kParameter},
    {"Unsharded", kParameter},
    {"Sharded", kGradient},
    {"Unsharded", kGradient},
    {"All-gather", kComm},
    {"Reduce-scatter", kComm},
}};

// Ids are one byte, so a recording can hold at most this many categories.
inline constexpr std::size_t kMaxCategories = 64;

}  // namespace peakline::category
