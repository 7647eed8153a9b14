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

#if defined(__AVX512F__) || defined(__AVX2__)
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
// Whether registers are 16 of 32 bytes: GCC keeps wider vectors in memory. What goes over tiles is in
// vectors of 64 bytes, also where tiles are emulated.
#if defined(__AVX2__) && !defined(__AVX512F__) && !defined(BATON_TILES)
constexpr bool kAvx2 = true;
#else
constexpr bool kAvx2 = false;
#endif
// Lanes of type C in a vector of sums.
template <class C>
constexpr int kHeld = kAvx2 ? 8 : 64 / sizeof(C);

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
#elif defined(__AVX2__)
  if constexpr (std::is_same_v<C, float> && N == 8)
    return (typename Simd<C, N>::V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  if constexpr (std::is_same_v<C, double> && N == 8) {  // GCC takes the loop below to pieces
    __m256d sums[2], by[2], with[2];
    std::memcpy(sums, &c, sizeof c);
    std::memcpy(by, &a, sizeof a);
    std::memcpy(with, &b, sizeof b);
    for (int i = 0; i < 2; ++i) sums[i] = _mm256_fmadd_pd(by[i], with[i], sums[i]);
    std::memcpy(&c, sums, sizeof c);
    return c;
  }
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

// What `op` makes of a vector's N values, of neighbours first: ((0, 1), (2, 3)), ((4, 5), (6, 7)) and so
// on. In every lane.
template <class C, int N, int BY = 1, class F>
INLINE typename Simd<C, N>::V fold(typename Simd<C, N>::V v, const F& op) {
  if constexpr (BY == N) {
    return v;
  } else {
    typedef std::conditional_t<sizeof(C) == 4, int32_t, int64_t> I;
    typename Simd<I, N>::V other;
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) other[i] = i ^ BY;
    return fold<C, N, 2 * BY>(op(v, (typename Simd<C, N>::V)__builtin_shuffle(v, other)), op);
  }
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

// 2^x for x ≤ 1 or so, within 2 units in the last place; 0 where the power is below 2^-125.
template <class C, int N>
INLINE typename Simd<C, N>::V power_of_two(typename Simd<C, N>::V x) {
  using V = typename Simd<C, N>::V;
  if constexpr (std::is_same_v<C, double>) {
    V y;
    for (int i = 0; i < N; ++i) y[i] = std::exp2(x[i]);
    return y;
  } else {
    typedef int32_t I __attribute__((vector_size(N * 4)));
    const V magic = V{} + 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
    const V shifted = x + magic;
    const V r = x - (shifted - magic);
    V y = V{} + 1.540353e-4f;  // ln2^i / i!
    constexpr float kTerms[] = {1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f,
                                2.40226507e-1f, 6.93147181e-1f, 1.0f};
#pragma GCC unroll 8
    for (int i = 0; i < 6; ++i) y = fused<C, N>(y, r, V{} + kTerms[i]);
    // What was rounded to is in the lowest bits: added to the exponent.
    const V power = (V)((I)y + ((I)shifted << 23));
    return x < V{} - 125.0f ? V{} : power;
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
