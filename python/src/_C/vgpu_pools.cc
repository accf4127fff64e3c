// Bindings of the virtual GPU's private pools, and of storages over memory that is there already.
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "errors.h"
#include "vgpu/engine.h"
#include "vgpu/tensor.h"

namespace peakline::bindings {
namespace {

vgpu::Engine& engine() { return vgpu::engine_or_throw("torch.cuda"); }
vgpu::Memory& memory() { return engine().memory(); }

void check(bool done, const char* what) {
  if (!done) throw_if_error(invalid_input(what));
}

vgpu::PoolFilling filling_of(const std::string& from, std::vector<std::uint32_t> streams,
                             bool for_graph) {
  using From = vgpu::PoolFilling::From;
  return {from == "thread"    ? From::kThisThread
          : from == "streams" ? From::kStreams
                              : From::kEverywhere,
          std::move(streams), for_graph ? PoolUse::kGraphCapture : PoolUse::kMemPool};
}

void bind_filling(py::module_& m) {
  m.def("begin_pool", [](int device, std::uint32_t pool, const std::string& from,
                         std::vector<std::uint32_t> streams, bool for_graph) {
    check(
        memory().begin_pool(device, PoolId(pool), filling_of(from, std::move(streams), for_graph)),
        "this memory pool is being filled already");
  });
  m.def("add_pool_stream", [](int device, std::uint32_t pool, std::uint32_t stream) {
    memory().add_pool_stream(device, PoolId(pool), stream);
  });
  m.def("end_pool", [](int device, std::uint32_t pool) {
    check(memory().end_pool(device, PoolId(pool)), "this memory pool is not being filled");
  });
  m.def("retain_pool", [](int device, std::uint32_t pool) {
    check(memory().retain_pool(device, PoolId(pool)), "this memory pool has been released");
  });
  m.def("release_pool",
        [](int device, std::uint32_t pool) { return memory().release_pool(device, PoolId(pool)); });
  m.def("empty_pool",
        [](int device, std::uint32_t pool) { memory().empty_pool(device, PoolId(pool)); });
}

PoolCheckpoint checkpoint_pool(int device, std::uint32_t pool) {
  auto checkpoint = memory().checkpoint_pool(device, PoolId(pool));
  check(checkpoint.has_value(), "there is no such memory pool");
  return *checkpoint;
}

// Addresses that were freed, and those that are allocated now.
py::tuple restore_pool(int device, const PoolCheckpoint& checkpoint) {
  const auto restored = memory().restore_pool(device, checkpoint);
  check(restored.has_value(), "the memory pool cannot go back to what it was");
  py::list freed;
  py::list created;
  for (const Address address : restored->freed) freed.append(address.raw());
  for (const Allocation& allocation : restored->created) created.append(allocation.address.raw());
  return py::make_tuple(freed, created);
}

void bind_storages(py::module_& m) {
  m.def("borrow_storage", [](std::uint64_t address, int device, std::uint64_t bytes) {
    return vgpu::borrow_storage(device, address, bytes);
  });
  m.def("owns_memory", [](const at::Storage& storage) {
    return vgpu::owns_memory(*storage.unsafeGetStorageImpl());
  });
  m.def("set_owns_memory", [](const at::Storage& storage, bool owns) {
    vgpu::set_owns_memory(engine(), *storage.unsafeGetStorageImpl(), owns);
  });
  m.def("free_memory", [](std::uint64_t address, int device) { memory().free(device, address); });
  m.def("tensor_over", [](const at::Storage& storage, at::ScalarType dtype,
                          const std::vector<std::int64_t>& sizes,
                          const std::vector<std::int64_t>& strides, std::int64_t offset) {
    return vgpu::make_tensor(storage, c10::scalarTypeToTypeMeta(dtype), sizes, strides, offset);
  });
}

}  // namespace

void bind_vgpu_pools(py::module_& m) {
  const py::class_<PoolCheckpoint> checkpoint(m, "PoolCheckpoint");
  bind_filling(m);
  m.def("checkpoint_pool", &checkpoint_pool);
  m.def("restore_pool", &restore_pool);
  bind_storages(m);
}

}  // namespace peakline::bindings
