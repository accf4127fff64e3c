#include <peakline/generated_kernel.h>

#include "cost/machine.h"

namespace peakline {

OpTime generated_kernel_time(double bytes, const DeviceProfile& gpu) {
  const cost::Machine machine(gpu);
  cost::OpTimer op(machine);
  op.add({.memory_us = machine.memory_us(bytes)}, bytes);
  op.guess();
  OpTime time = op.time();
  time.issue = 0;
  time.host_us = gpu.time.host_launch_us;
  return time;
}

}  // namespace peakline
