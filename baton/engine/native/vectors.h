// Vectors of any CPU by the compiler's own (GCC and Clang), and what to do with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

namespace {  // one translation unit includes this: ops.cpp

using at::BFloat16;
using at::Tensor;

constexpr int64_t kGrain = 16384;  // values that are worth a thread

// N values of type T in memory, computed with as type C.
template <class T, int N>
struct Simd {
  using C = T;
  typedef C V __attribute__((vector_size(N * sizeof(C))));
  static INLINE V load(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  static INLINE void store(T* to, V v) { std::memcpy(to, &v, sizeof v); }
};

// Spelled out: where lanes are counted by a template's parameter, GCC cannot convert them.
template <int N>
struct Words;
template <>
struct Words<8> {
  typedef float V __attribute__((vector_size(32)));
  typedef uint32_t W __attribute__((vector_size(32)));
  typedef uint16_t H __attribute__((vector_size(16)));
};
template <>
struct Words<16> {
  typedef float V __attribute__((vector_size(64)));
  typedef uint32_t W __attribute__((vector_size(64)));
  typedef uint16_t H __attribute__((vector_size(32)));
};

template <int N>
struct Simd<BFloat16, N> : Words<N> {
  using C = float;
  using typename Words<N>::V;
  using typename Words<N>::W;
  using typename Words<N>::H;
  static INLINE V load(const BFloat16* from) { return (V)(words(from) << 16); }
  static INLINE W words(const BFloat16* from) {
    H half;
    std::memcpy(&half, from, sizeof half);
#ifdef __AVX512F__
    // GCC 12 takes the conversion of a whole vector to pieces.
    if constexpr (N == 16) return (W)_mm512_cvtepu16_epi32((__m256i)half);
#endif
    return __builtin_convertvector(half, W);
  }
  static INLINE W rounded(V v) {  // to nearest, ties to even; in the upper halves
    W bits = (W)v;
    return bits + 0x7FFF + ((bits >> 16) & 1);
  }
  static INLINE void store(BFloat16* to, V v) {
    const W words = rounded(v) >> 16;
#ifdef __AVX512F__
    if constexpr (N == 16) {
      const __m256i half = _mm512_cvtepi32_epi16((__m512i)words);
      std::memcpy(to, &half, sizeof half);
      return;
    }
#endif
    const H half = __builtin_convertvector(words, H);
    std::memcpy(to, &half, sizeof half);
  }
};

template <class T>
using Computed = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
template <class T>
constexpr int kLanes = 64 / sizeof(Computed<T>);

template <class V>
INLINE V maximum(V a, V b) {
  return a > b ? a : b;
}

// The sum of a vector's N values.
template <int N, class C, class V>
INLINE C total(V v) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    typedef C Half __attribute__((vector_size(N / 2 * sizeof(C))));
    Half parts[2];
    std::memcpy(parts, &v, sizeof v);
    return total<N / 2, C>(parts[0] + parts[1]);
  }
}

// Adjacent pairs of a's values added, then of b's.
template <int N, class C, class V>
INLINE V fold(V a, V b) {
  typedef std::conditional_t<sizeof(C) == 4, int32_t, int64_t> I;
  typename Simd<I, N>::V even, odd;
  for (int i = 0; i < N; ++i) even[i] = 2 * i, odd[i] = 2 * i + 1;
  return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
}

// The sums of N vectors' values: one lane each.
template <int N, class C, class V>
INLINE V totals(V (&of)[N]) {
#pragma GCC unroll 4
  for (int count = N / 2; count >= 1; count /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) of[i] = fold<N, C>(of[2 * i], of[2 * i + 1]);
  return of[0];
}

template <class C, int N>
INLINE typename Simd<C, N>::V exponential(typename Simd<C, N>::V x) {
  using V = typename Simd<C, N>::V;
  if constexpr (std::is_same_v<C, double>) {
    V y;
    for (int i = 0; i < N; ++i) y[i] = std::exp(x[i]);
    return y;
  } else {
    // 2^n · e^r with |r| ≤ ln2 / 2 and e^r by its Taylor polynomial: within 2 units in the last place.
    typedef int32_t I __attribute__((vector_size(N * 4)));
    const V least = V{} - 87.0f, most = V{} + 88.0f;
    V bounded = x < least ? least : x;
    bounded = bounded > most ? most : bounded;
    const V magic = V{} + 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
    V n = bounded * 1.44269504088896341f + magic;
    I exponent = ((I)n - (I)magic + 127) << 23;
    n -= magic;
    V r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
    V y = V{} + 1.0f / 5040;
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    return x < least ? V{} : y * (V)exponent;
  }
}

// Copies of n values in the type that is computed with, and back.
template <class T>
void widen(const T* from, Computed<T>* to, int64_t n) {
  constexpr int N = kLanes<T>;
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    auto v = Simd<T, N>::load(from + i);
    std::memcpy(to + i, &v, sizeof v);
  }
  for (; i < n; ++i) to[i] = static_cast<Computed<T>>(from[i]);
}

template <class T>
void narrow(const Computed<T>* from, T* to, int64_t n) {
  constexpr int N = kLanes<T>;
  int64_t i = 0;
  for (; i + N <= n; i += N) Simd<T, N>::store(to + i, Simd<Computed<T>, N>::load(from + i));
  for (; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

template <class T>
std::vector<Computed<T>> widened(const std::optional<Tensor>& from) {
  if (!from) return {};
  std::vector<Computed<T>> to(from->numel());
  widen(from->const_data_ptr<T>(), to.data(), from->numel());
  return to;
}

}  // namespace
