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

// a · b + c, rounded once. Sums are fused where it is said and nowhere else (-ffp-contract=off): what
// is computed in two ways has the same bits in both.
template <class C, int N>
INLINE typename Simd<C, N>::V fused(typename Simd<C, N>::V a, typename Simd<C, N>::V b,
                                    typename Simd<C, N>::V c) {
#ifdef __AVX512F__
  if constexpr (std::is_same_v<C, float> && N == 16)
    return (typename Simd<C, N>::V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  if constexpr (std::is_same_v<C, double> && N == 8)
    return (typename Simd<C, N>::V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#endif
  typename Simd<C, N>::V sum;
  for (int i = 0; i < N; ++i) {
    if constexpr (std::is_same_v<C, float>)
      sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
    else
      sum[i] = __builtin_fma(a[i], b[i], c[i]);
  }
  return sum;
}

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

// Row i of N rows of N values becomes column i.
template <class E, int N>
INLINE void transpose(typename Simd<E, N>::V (&rows)[N]) {
  typedef std::conditional_t<sizeof(E) == 4, int32_t, int64_t> I;
  using V = typename Simd<E, N>::V;
#ifdef __AVX512F__
  if constexpr (sizeof(E) == 4 && N == 16) {
    // Within 128 bits first: these shuffles need no table of where each word goes.
    __m512i a[16], b[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      a[i] = _mm512_unpacklo_epi32((__m512i)rows[i], (__m512i)rows[i + 1]);
      a[i + 1] = _mm512_unpackhi_epi32((__m512i)rows[i], (__m512i)rows[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
      b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
      b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
      b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      a[i] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88);
      a[i + 4] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xDD);
      a[i + 8] = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88);
      a[i + 12] = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xDD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      rows[i] = (V)_mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
      rows[i + 8] = (V)_mm512_shuffle_i32x4(a[i], a[i + 8], 0xDD);
      rows[i + 4] = (V)_mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0x88);
      rows[i + 12] = (V)_mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0xDD);
    }
    return;
  }
#endif
#pragma GCC unroll 4
  for (int by = 1; by < N; by *= 2) {
    typename Simd<I, N>::V low, high;
    for (int i = 0; i < N; ++i) {
      low[i] = i & by ? N + i - by : i;
      high[i] = i & by ? N + i : i + by;
    }
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      if (i & by) continue;
      const V a = rows[i], b = rows[i + by];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + by] = __builtin_shuffle(a, b, high);
    }
  }
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
    V n = fused<C, N>(bounded, V{} + 1.44269504088896341f, magic);
    I exponent = ((I)n - (I)magic + 127) << 23;
    n -= magic;
    V r = fused<C, N>(n, V{} - 0.693359375f, bounded);
    r = fused<C, N>(n, V{} + 2.12194440e-4f, r);
    V y = V{} + 1.0f / 5040;
    constexpr float kTerms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
#pragma GCC unroll 8
    for (int i = 0; i < 7; ++i) y = fused<C, N>(y, r, V{} + kTerms[i]);
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
