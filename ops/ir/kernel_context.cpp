// KernelContext's allocation.
#include "ops/ir/kernel_context.h"

namespace lathe::ops {

Tensor KernelContext::allocate(int i, DType dtype, const Shape& shape) {
  Tensor t(dtype, shape);
  outputs_[static_cast<std::size_t>(i)] = t;
  return t;
}

}  // namespace lathe::ops
