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

template <class T>
void gate(const Tensor& both, Tensor& out) {
  using C = Computed<T>;
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
          const auto x = S::load(gates + j);
          const auto y = x / (1 + exponential<C, kHeld<C>>(-x)) * S::load(values + j);
          S::store(to + row * size + j, y);
        }
      for (; i < size; ++i) {
        const C x = static_cast<C>(gates[i]);
        to[row * size + i] = static_cast<T>(x / (1 + std::exp(-x)) * static_cast<C>(values[i]));
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
