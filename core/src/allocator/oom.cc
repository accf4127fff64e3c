#include <fmt/format.h>

#include <peakline/allocator.h>

namespace peakline {
namespace {

// Sizes as torch prints them in this message.
std::string torch_size(Bytes bytes) {
  const auto size = static_cast<double>(bytes.raw());
  if (bytes <= 1_KiB) return fmt::format("{} bytes", bytes.raw());
  if (bytes <= 1_MiB) return fmt::format("{:.2f} KiB", size / 1024.0);
  if (bytes <= 1_GiB) return fmt::format("{:.2f} MiB", size / 1048576.0);
  return fmt::format("{:.2f} GiB", size / 1073741824.0);
}

}  // namespace

// The words are torch's own, so that what people search for is found.
std::string out_of_memory_message(const OutOfMemoryInfo& info, int device) {
  if (info.rejected) {
    return fmt::format(
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
        "per_process_memory_fraction limit. Requested size: {}",
        torch_size(info.requested));
  }
  std::string text = fmt::format(
      "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is "
      "free. Including non-PyTorch memory, this process has {} memory in use. ",
      torch_size(info.segment), device, torch_size(info.device_total), torch_size(info.device_free),
      torch_size(info.device_total - info.device_free));
  if (info.limit) text += torch_size(*info.limit) + " allowed; ";
  text += fmt::format("Of the allocated memory {} is allocated by PyTorch, ",
                      torch_size(info.allocated + info.private_pools));
  if (info.private_pools > Bytes{}) {
    text += fmt::format("with {} allocated in private pools (e.g., CUDA Graphs), ",
                        torch_size(info.private_pools));
  }
  text += fmt::format(
      "and {} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
      "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
      "documentation for Memory Management  "
      "(https://docs.pytorch.org/docs/stable/notes/"
      "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
      torch_size(info.reserved - info.allocated - info.private_pools));
  return text;
}

}  // namespace peakline
