// The families of ops, each in a file of its own. A function says false when the op is not of its
// family.
#pragma once

#include <string_view>

#include "cost/machine.h"
#include "kernels/op_args.h"

namespace peakline::cost {

// An op's call with the parts of its name that the rules ask for.
struct CallView {
  const OpCall& call;
  kernels::OpArgs args;
  std::string_view name;  // "add" of "aten::add_"
  const KernelState& state;
  bool in_place = false;  // it had the underscore, or writes to `out`
};

bool matrix_rules(const CallView& call, OpTimer& op);
bool attention_rules(const CallView& call, OpTimer& op);
bool convolution_rules(const CallView& call, OpTimer& op);
bool batch_norm_rules(const CallView& call, OpTimer& op);
bool picture_rules(const CallView& call, OpTimer& op);  // pooling and upsampling
bool row_rules(const CallView& call, OpTimer& op);
bool reduction_rules(const CallView& call, OpTimer& op);
bool indexing_rules(const CallView& call, OpTimer& op);
bool list_rules(const CallView& call, OpTimer& op);  // _foreach_* and fused optimizers
bool recurrent_rules(const CallView& call, OpTimer& op);
// Whatever is left is one loop over elements.
void elementwise_rule(const CallView& call, OpTimer& op);

// An op whose tensors are all the host's.
OpTime host_time(const CallView& call, const TimeRates& rates);

// Bytes that are really there: a dimension that is expanded counts once.
double distinct_bytes(const TensorMeta& tensor);
// All tensors among the arguments (lists too), and all results that are written.
double bytes_read(const CallView& call);
double bytes_written(const CallView& call);

}  // namespace peakline::cost
