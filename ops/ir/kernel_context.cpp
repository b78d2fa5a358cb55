// KernelContext's tensors.
#include "ops/ir/kernel_context.h"

namespace lathe::ops {

Tensor KernelContext::allocate(int i, DType dtype, const Shape& shape) {
  Tensor t(dtype, shape);
  outputs_[static_cast<std::size_t>(i)] = t;
  return t;
}

Tensor KernelContext::temporary(DType dtype, const Shape& shape) const {
  const std::pmr::polymorphic_allocator<> allocator(&scratch_);
  auto bytes = std::allocate_shared<std::pmr::vector<std::byte>>(allocator, Tensor::byte_size(dtype, shape));
  std::byte* data = bytes->data();
  return Tensor::borrow(dtype, shape, data, std::move(bytes));
}

void run_kernel(KernelContext& context) {
  const OpView& op = context.op();
  try {
    op.op().kernel(context);
  } catch (Failure& failure) {
    const std::string name = describe(op.node());
    if (!failure.error.message.starts_with(name)) failure.error.message = name + ": " + failure.error.message;
    throw;
  }
}

}  // namespace lathe::ops
