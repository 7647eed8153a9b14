// The torch engine's operators on a CPU: norms, gates, rotation, attention over paged KV, and masks.
//
// Each does what its counterpart in baton/engine/kernels.py does, which is the reference. Vectors are
// the compiler's own (GCC and Clang), so the same source serves every CPU; one inner product also
// exists in AVX-512 BF16, and products in bfloat16 on tiles (amx/). Everything is computed in float, or in
// double where the model is.

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "lora.h"
#include "masks.h"
#ifdef BATON_TILES
#include "amx/attention.h"
#include "amx/linear.h"
#else
#include "linear_vectors.h"
#endif

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
                   double epsilon, int64_t threads) {
  Threads::use(threads);
  TORCH_CHECK(hidden.dim() == 2 && hidden.is_contiguous() && weight.numel() == hidden.size(1) &&
                  (!delta || (delta->is_contiguous() && delta->sizes() == hidden.sizes())),
              "add_norm: hidden and delta are [tokens, size], weight is [size]");
  Tensor out = at::empty(hidden.sizes(), hidden.options());
  by_type(hidden, [&](auto t) { add_norm<decltype(t)>(hidden, delta, weight, epsilon, out); });
  return out;
}

Tensor gate_op(const Tensor& both, int64_t activation, int64_t threads) {
  Threads::use(threads);
  TORCH_CHECK(activation >= 0 && activation <= kClampedSwish, "gate: there is no such activation");
  TORCH_CHECK(both.dim() == 2 && both.is_contiguous(), "gate: both is [tokens, 2 · size]");
  Tensor out = at::empty({both.size(0), both.size(1) / 2}, both.options());
  by_type(both, [&](auto t) { gate<decltype(t)>(both, activation, out); });
  return out;
}

Tensor attend_op(Tensor& qkv, const Tensor& cosines, const Tensor& sines,
                 const std::optional<Tensor>& q_norm, const std::optional<Tensor>& k_norm,
                 double epsilon, double scale, int64_t window, double softcap,
                 const std::optional<Tensor>& sinks, Tensor& pool, int64_t layer, int64_t heads,
                 int64_t block, const Tensor& slots, const Tensor& spans, const Tensor& table,
                 int64_t threads) {
  Threads::use(threads);
  TORCH_CHECK(pool.dim() == 5 && pool.is_contiguous() && pool.scalar_type() == qkv.scalar_type() &&
                  block > 0 && block % kGroup == 0 && pool.size(4) % (8 * block) == 0 &&
                  heads % pool.size(3) == 0 && heads / pool.size(3) <= 32,
              "attend: pool is [pages, layers, 2, kv_heads, block · size], block a multiple of 16, "
              "size of 8");
  const Shape shape(pool, heads, block);
  const int64_t tokens = qkv.size(0);
  TORCH_CHECK(qkv.is_contiguous() && qkv.dim() == 2 && qkv.size(1) == shape.line &&
                  cosines.is_contiguous() && cosines.numel() == tokens * shape.size / 2 &&
                  sines.is_contiguous() && sines.numel() == cosines.numel() &&
                  slots.is_contiguous() && slots.numel() == 2 * tokens && spans.is_contiguous() &&
                  spans.size(1) == 3 && table.is_contiguous() && table.size(0) == spans.size(0),
              "attend: the shapes do not go together");
  TORCH_CHECK(window >= 0 && softcap >= 0 &&
                  (!sinks || (sinks->is_contiguous() && sinks->numel() == heads &&
                              sinks->scalar_type() == qkv.scalar_type())),
              "attend: window and softcap are 0 or more, sinks is [heads]");
  const Scores scores{scale, window, softcap, sinks};
  Tensor out = at::empty({tokens, heads * shape.size}, qkv.options());
  by_type(qkv, [&](auto t) {
    using T = decltype(t);
    rotate_store<T>(qkv, cosines, sines, q_norm, k_norm, epsilon, pool, slots, shape);
    attend<T>(qkv, pool, layer, spans, table, shape, scores, out);
  });
  return out;
}

void add_low_op(Tensor& y, const Tensor& x, const Tensor& rows, const Tensor& ends, at::TensorList a,
                at::TensorList scales, at::TensorList b, at::IntArrayRef parts, int64_t threads) {
  Threads::use(threads);
  const int64_t adapters = a.size(), pieces = b.size();
  TORCH_CHECK(x.dim() == 2 && y.dim() == 2 && x.is_contiguous() && y.is_contiguous() && x.size(0) == y.size(0) &&
                  x.scalar_type() == y.scalar_type() && x.size(1) % 2 == 0 &&
                  rows.scalar_type() == at::kLong && rows.is_contiguous() && ends.scalar_type() == at::kLong &&
                  ends.is_contiguous() && ends.numel() == adapters &&
                  static_cast<int64_t>(scales.size()) == adapters && static_cast<int64_t>(parts.size()) == 3 * pieces,
              "add_low: x is [rows, inputs], inputs even, y [rows, outputs] of its type; ends and scales are one "
              "per adapter, parts three numbers per matrix b");
  by_type(x, [&](auto t) {
    using T = decltype(t);
    using M = Multiply<T>;
    int64_t last = 0;
    const int64_t* const row_of = rows.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < rows.numel(); ++i)
      TORCH_CHECK(row_of[i] >= 0 && row_of[i] < x.size(0), "add_low: there is no row ", row_of[i]);
    for (int64_t i = 0; i < adapters; ++i) {
      const int64_t end = ends.const_data_ptr<int64_t>()[i];
      TORCH_CHECK(end >= last && end <= rows.numel(), "add_low: ends go up, to the number of rows at most");
      TORCH_CHECK(!a[i].numel() ||
                      (a[i].is_contiguous() && a[i].scalar_type() == (M::P == 2 ? at::kInt : x.scalar_type()) &&
                       a[i].dim() == 2 && a[i].size(0) * M::P == x.size(1) && a[i].size(1) % M::N == 0 &&
                       scales[i].is_contiguous() && scales[i].numel() == a[i].size(1) &&
                       scales[i].scalar_type() == at::CppTypeToScalarType<Computed<T>>::value),
                  "add_low: a is what `pack_low` made of matrices of so many inputs, with a scale per lane");
      last = end;
    }
    std::vector<LowPart> found;
    for (int64_t i = 0; i < pieces; ++i) {
      const auto at = [&](int n) { return parts[3 * i + n]; };
      const LowPart part{at(0), at(1), b[i].size(0), at(2), b[i].size(1)};
      TORCH_CHECK(b[i].is_contiguous() && b[i].scalar_type() == x.scalar_type() && part.adapter >= 0 &&
                      part.adapter < adapters && part.lane >= 0 &&
                      part.lane + part.rank <= a[part.adapter].size(1) && part.first >= 0 &&
                      part.first + part.outputs <= y.size(1),
                  "add_low: b is [rank, outputs] of an adapter's lanes and of y's columns");
      found.push_back(part);
    }
    add_low<T>(x, y, rows, ends, a, scales, b, found);
  });
}

Tensor pack_low_op(const Tensor& matrix) {
  TORCH_CHECK(matrix.dim() == 2 && matrix.is_contiguous() && matrix.size(1) % 2 == 0,
              "pack_low: matrix is [rank, inputs], inputs even");
  Tensor out;
  by_type(matrix, [&](auto t) {
    using T = decltype(t);
    using M = Multiply<T>;
    const int64_t rank = matrix.size(0), inputs = matrix.size(1), lanes = (rank + M::N - 1) / M::N * M::N;
    const auto type = M::P == 2 ? at::kInt : matrix.scalar_type();
    out = at::empty({inputs / M::P, lanes}, matrix.options().dtype(type));
    pack_low<T>(matrix.const_data_ptr<T>(), rank, inputs, lanes,
                reinterpret_cast<typename M::E*>(out.mutable_data_ptr()));
  });
  return out;
}

Tensor pack_op(const Tensor& weight) {
  TORCH_CHECK(weight.dim() == 2 && weight.is_contiguous() && weight.scalar_type() == at::kBFloat16,
              "pack: weight is [outputs, inputs] in bfloat16");
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  const int64_t panels = (outputs + kOutputs - 1) / kOutputs;
  Threads::use(0);
  Tensor out = at::empty({panels, padded_pairs(inputs), kOutputs}, weight.options().dtype(at::kInt));
  pack_panels(weight.const_data_ptr<BFloat16>(), outputs, inputs,
              reinterpret_cast<uint32_t*>(out.mutable_data_ptr<int32_t>()));
  return out;
}

Tensor linear_op(const Tensor& x, const Tensor& panels, const std::optional<Tensor>& bias,
                 int64_t outputs, int64_t threads) {
  TORCH_CHECK(x.dim() == 2 && x.scalar_type() == at::kBFloat16 && panels.dim() == 3 &&
                  panels.is_contiguous() && panels.scalar_type() == at::kInt &&
                  panels.size(1) == padded_pairs(x.size(1)) && panels.size(2) == kOutputs &&
                  panels.size(0) == (outputs + kOutputs - 1) / kOutputs &&
                  (!bias || (bias->is_contiguous() && bias->scalar_type() == at::kFloat &&
                             bias->numel() == outputs)),
              "linear: x is [tokens, inputs] in bfloat16, panels are what `pack` made of a weight of "
              "so many inputs and outputs, bias is [outputs] in float");
  Threads::use(threads);
  const Tensor rows = x.contiguous();
  Tensor out = at::empty({x.size(0), outputs}, x.options());
  multiply_panels(rows.const_data_ptr<BFloat16>(), x.size(0), x.size(1),
                  reinterpret_cast<const uint32_t*>(panels.const_data_ptr<int32_t>()),
                  bias ? bias->const_data_ptr<float>() : nullptr, outputs,
                  out.mutable_data_ptr<BFloat16>());
  return out;
}

// What sums are made of: libraries that say the same compute the same bits.
std::string arithmetic_op() {
#ifdef BATON_EMULATED_TILES
  return "amx_bf16_emulated";
#elif defined(BATON_TILES)
  return "amx_bf16";
#elif defined(__AVX512BF16__)
  return "avx512_bf16";
#else
  return "fma";
#endif
}

void mask_logits_op(Tensor& logits, const Tensor& rows, const Tensor& words, int64_t threads) {
  Threads::use(threads);
  TORCH_CHECK(logits.dim() == 2 && logits.is_contiguous() && logits.scalar_type() == at::kFloat &&
                  rows.dim() == 1 && rows.is_contiguous() && words.is_contiguous() &&
                  words.dim() == 2 && words.size(0) == rows.size(0) &&
                  words.size(1) == (logits.size(1) + 31) / 32,
              "mask_logits: logits are float [rows, vocab], words is int32 [masked, vocab / 32]");
  mask_logits(logits, rows, words);
}

}  // namespace

TORCH_LIBRARY(baton_native, library) {
  library.def("add_norm(Tensor(a!) hidden, Tensor? delta, Tensor weight, float epsilon, "
              "int threads) -> Tensor");
  library.def("arithmetic() -> str", arithmetic_op);
  library.def("pack(Tensor weight) -> Tensor");
  library.def("linear(Tensor x, Tensor panels, Tensor? bias, int outputs, int threads) -> Tensor");
  library.def("pack_low(Tensor matrix) -> Tensor");
  library.def("add_low(Tensor(a!) y, Tensor x, Tensor rows, Tensor ends, Tensor[] a, Tensor[] scales, Tensor[] b, "
              "int[] places, int threads) -> ()");
  library.def("gate(Tensor both, int activation, int threads) -> Tensor");
  library.def(
      "attend(Tensor(a!) qkv, Tensor cosines, Tensor sines, Tensor? q_norm, Tensor? k_norm, "
      "float epsilon, float scale, int window, float softcap, Tensor? sinks, Tensor(b!) pool, int layer, int heads, int block, Tensor slots, "
      "Tensor spans, Tensor table, int threads) -> Tensor");
  library.def("mask_logits(Tensor(a!) logits, Tensor rows, Tensor words, int threads) -> ()");
}

TORCH_LIBRARY_IMPL(baton_native, CPU, library) {
  library.impl("add_norm", add_norm_op);
  library.impl("pack", pack_op);
  library.impl("linear", linear_op);
  library.impl("pack_low", pack_low_op);
  library.impl("add_low", add_low_op);
  library.impl("gate", gate_op);
  library.impl("attend", attend_op);
  library.impl("mask_logits", mask_logits_op);
}
