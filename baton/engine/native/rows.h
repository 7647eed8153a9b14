// Norms, gates, rotation: what is done to each token's row on its own.
#pragma once

#include "pages.h"
#include "tasks.h"

namespace {  // one translation unit includes this: ops.cpp

// x[n] ← x / rms(x) · weight
template <class C>
void normalize(C* x, const C* weight, int64_t n, C epsilon) {
  constexpr int N = 64 / sizeof(C);
  typename Simd<C, N>::V sums{};
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    auto v = Simd<C, N>::load(x + i);
    sums += v * v;
  }
  C sum = total<N, C>(sums);
  for (; i < n; ++i) sum += x[i] * x[i];
  const C by = 1 / std::sqrt(sum / static_cast<C>(n) + epsilon);
  for (i = 0; i < n; ++i) x[i] *= by * weight[i];
}

template <class T>
void add_norm(Tensor& hidden, const std::optional<Tensor>& delta, const Tensor& weight,
              double epsilon, Tensor& out) {
  const int64_t size = hidden.size(1);
  const auto by = widened<T>(weight);
  T* sums = hidden.mutable_data_ptr<T>();
  const T* added = delta ? delta->const_data_ptr<T>() : nullptr;
  T* to = out.mutable_data_ptr<T>();
  share_rows(hidden.size(0), 1 + kGrain / size, [&](int64_t first, int64_t last) {
    std::vector<Computed<T>> x(size), y(size);
    for (int64_t row = first; row < last; ++row) {
      widen(sums + row * size, x.data(), size);
      if (added) {
        widen(added + row * size, y.data(), size);
        for (int64_t i = 0; i < size; ++i) x[i] += y[i];
        narrow(x.data(), sums + row * size, size);
        widen(sums + row * size, x.data(), size);
      }
      normalize<Computed<T>>(x.data(), by.data(), size, epsilon);
      narrow(x.data(), to + row * size, size);
    }
  });
}

// Of a gate x and a value y: x / (1 + e^-t) · y, where t is x, or 2 √(2/π) (x + .044715 x³) for the GELU by
// tanh, or 1.702 x of an x of at most 7, with y + 1 for y, of -7 to 7 (gpt-oss).
enum Activation : int64_t { kSwish, kGeluTanh, kClampedSwish };

template <class C, class V>
INLINE V exponent(int64_t activation, V x) {
  if (activation == kSwish) return -x;
  if (activation == kClampedSwish) return x * C(-1.702);
  return x * (C(-1.5957691216057308) * (C(1) + C(0.044715) * x * x));
}

template <class T>
void gate(const Tensor& both, int64_t activation, Tensor& out) {
  using C = Computed<T>;
  constexpr C kMost = 7;
  constexpr int N = kLanes<T>;
  const int64_t size = out.size(1);
  const T* from = both.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  share_rows(out.size(0), 1 + kGrain / size, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const T* gates = from + row * 2 * size;
      const T* values = gates + size;
      int64_t i = 0;
      for (; i + N <= size; i += N)
        for (int64_t j = i; j < i + N; j += kHeld<C>) {
          using S = Simd<T, kHeld<C>>;
          auto x = S::load(gates + j), y = S::load(values + j);
          if (activation == kClampedSwish) {
            const decltype(x) most = decltype(x){} + kMost;
            x = x > most ? most : x;
            y = y > most ? most : y;
            y = 1 + (y < -most ? -most : y);
          }
          S::store(to + row * size + j,
                   x / (1 + exponential<C, kHeld<C>>(exponent<C>(activation, x))) * y);
        }
      for (; i < size; ++i) {
        C x = static_cast<C>(gates[i]), y = static_cast<C>(values[i]);
        if (activation == kClampedSwish) {
          x = std::min(x, kMost);
          y = 1 + std::max(-kMost, std::min(y, kMost));
        }
        to[row * size + i] = static_cast<T>(x / (1 + std::exp(exponent<C>(activation, x))) * y);
      }
    }
  });
}

template <class T>
void rotate_store(Tensor& qkv, const Tensor& cosines, const Tensor& sines,
                  const std::optional<Tensor>& q_norm, const std::optional<Tensor>& k_norm,
                  double epsilon, Tensor& pool, const Tensor& slots, const Shape& shape) {
  using C = Computed<T>;
  const int64_t tokens = qkv.size(0), half = shape.size / 2;
  const auto q_weight = widened<T>(q_norm), k_weight = widened<T>(k_norm);
  T* lines = qkv.mutable_data_ptr<T>();
  T* kept = pool.mutable_data_ptr<T>();
  const T* cos_of = cosines.const_data_ptr<T>();
  const T* sin_of = sines.const_data_ptr<T>();
  const int64_t* slot = slots.const_data_ptr<int64_t>();
  share_rows(tokens, 1 + kGrain / shape.line, [&](int64_t first, int64_t last) {
    std::vector<C> cosine(half), sine(half), x(shape.size), y(shape.size);
    for (int64_t token = first; token < last; ++token) {
      T* line = lines + token * shape.line;
      widen(cos_of + token * half, cosine.data(), half);
      widen(sin_of + token * half, sine.data(), half);
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        T* at = line + head * shape.size;
        const auto& weight = head < shape.heads ? q_weight : k_weight;
        widen(at, x.data(), shape.size);
        if (!weight.empty()) normalize<C>(x.data(), weight.data(), shape.size, epsilon);
        for (int64_t i = 0; i < half; ++i) {
          y[i] = x[i] * cosine[i] - x[i + half] * sine[i];
          y[i + half] = x[i + half] * cosine[i] + x[i] * sine[i];
        }
        narrow(y.data(), at, shape.size);
      }
      const T* const keys = line + shape.heads * shape.size;
      store(shape, keys, keys + shape.row, slot[token], slot[tokens + token], kept);
    }
  });
}

}  // namespace
