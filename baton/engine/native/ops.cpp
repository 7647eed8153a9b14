// The torch engine's operators on a CPU: norms, gates, rotation, and attention over paged KV.
//
// Each does what its counterpart in baton/engine/kernels.py does, which is the reference. Vectors are
// the compiler's own (GCC and Clang), so the same source serves every CPU; one inner product also
// exists in AVX-512 BF16. Everything is computed in float, or in double where the model is.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "attention.h"

namespace {

template <class F>
void by_type(const Tensor& of, const F& run) {
  switch (of.scalar_type()) {
    case at::kBFloat16: return run(BFloat16());
    case at::kFloat: return run(float());
    case at::kDouble: return run(double());
    default: TORCH_CHECK(false, "no operator for ", of.scalar_type());
  }
}

Tensor add_norm_op(Tensor& hidden, const std::optional<Tensor>& delta, const Tensor& weight,
                   double epsilon) {
  TORCH_CHECK(hidden.dim() == 2 && hidden.is_contiguous() && weight.numel() == hidden.size(1) &&
                  (!delta || (delta->is_contiguous() && delta->sizes() == hidden.sizes())),
              "add_norm: hidden and delta are [tokens, size], weight is [size]");
  Tensor out = at::empty(hidden.sizes(), hidden.options());
  by_type(hidden, [&](auto t) { add_norm<decltype(t)>(hidden, delta, weight, epsilon, out); });
  return out;
}

Tensor gate_op(const Tensor& both) {
  TORCH_CHECK(both.dim() == 2 && both.is_contiguous(), "gate: both is [tokens, 2 · size]");
  Tensor out = at::empty({both.size(0), both.size(1) / 2}, both.options());
  by_type(both, [&](auto t) { gate<decltype(t)>(both, out); });
  return out;
}

Tensor attend_op(Tensor& qkv, const Tensor& cosines, const Tensor& sines,
                 const std::optional<Tensor>& q_norm, const std::optional<Tensor>& k_norm,
                 double epsilon, Tensor& pool, int64_t layer, int64_t heads, const Tensor& slots,
                 const Tensor& spans, const Tensor& table) {
  TORCH_CHECK(pool.dim() == 6 && pool.is_contiguous() && pool.size(5) % 8 == 0 &&
                  heads % pool.size(4) == 0 && heads / pool.size(4) <= 32,
              "attend: pool is [pages, layers, 2, block, kv_heads, size], size a multiple of 8");
  const Shape shape(pool, heads);
  const int64_t tokens = qkv.size(0);
  TORCH_CHECK(qkv.is_contiguous() && qkv.dim() == 2 && qkv.size(1) == shape.line &&
                  cosines.is_contiguous() && cosines.numel() == tokens * shape.size / 2 &&
                  sines.is_contiguous() && sines.numel() == cosines.numel() &&
                  slots.is_contiguous() && slots.numel() == 2 * tokens && spans.is_contiguous() &&
                  spans.size(1) == 3 && table.is_contiguous() && table.size(0) == spans.size(0),
              "attend: the shapes do not go together");
  Tensor out = at::empty({tokens, heads * shape.size}, qkv.options());
  by_type(qkv, [&](auto t) {
    using T = decltype(t);
    rotate_store<T>(qkv, cosines, sines, q_norm, k_norm, epsilon, pool, slots, shape);
#ifdef __AVX512BF16__
    using M = std::conditional_t<std::is_same_v<T, BFloat16>, Dot, Multiply<T>>;
#else
    using M = Multiply<T>;
#endif
    attend<T, M>(qkv, pool, layer, spans, table, shape, out);
  });
  return out;
}

}  // namespace

TORCH_LIBRARY(baton_native, library) {
  library.def("add_norm(Tensor(a!) hidden, Tensor? delta, Tensor weight, float epsilon) -> Tensor");
  library.def("gate(Tensor both) -> Tensor");
  library.def(
      "attend(Tensor(a!) qkv, Tensor cosines, Tensor sines, Tensor? q_norm, Tensor? k_norm, "
      "float epsilon, Tensor(b!) pool, int layer, int heads, Tensor slots, Tensor spans, "
      "Tensor table) -> Tensor");
}

TORCH_LIBRARY_IMPL(baton_native, CPU, library) {
  library.impl("add_norm", add_norm_op);
  library.impl("gate", gate_op);
  library.impl("attend", attend_op);
}
