// Every file with rules has one table; rules.cc joins them.
#pragma once

#include <span>

#include "kernels/rules.h"

namespace peakline::kernels {

std::span<const NamedRule> attention_rules();
std::span<const NamedRule> blas_rules();
std::span<const NamedRule> convolution_rules();
std::span<const NamedRule> embedding_rules();
std::span<const NamedRule> foreach_rules();
std::span<const NamedRule> indexing_rules();
std::span<const NamedRule> loss_rules();
std::span<const NamedRule> normalization_rules();
std::span<const NamedRule> reduction_rules();
std::span<const NamedRule> rnn_rules();
std::span<const NamedRule> sampling_rules();
std::span<const NamedRule> sort_rules();
std::span<const NamedRule> sparse_rules();

}  // namespace peakline::kernels
