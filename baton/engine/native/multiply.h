// Two ways to multiply: rows of one matrix, element by element, with lanes of another.
#pragma once

#include "vectors.h"

namespace {  // one translation unit includes this: ops.cpp

// One value per step.
template <class T>
struct Multiply {
  using C = Computed<T>;
  static constexpr int kLanes = 64 / sizeof(C);
  static constexpr int kValues = 1;
  using V = typename Simd<C, kLanes>::V;
  using E = C;
  typedef V L __attribute__((may_alias));
  static INLINE V add(V sum, E element, L lanes) {
    return fused<C, kLanes>(V{} + element, lanes, sum);
  }
  static INLINE E element(const T* values) { return static_cast<C>(values[0]); }
  static INLINE const E* key(const T* values, E* copy, int64_t n) {
    widen(values, copy, n);
    return copy;
  }
  static INLINE void value(const T* const* rows, E* to, int64_t n) { widen(rows[0], to, n); }
  static INLINE void weights(const V* rows, E* to) { std::memcpy(to, rows, sizeof(V)); }
  static INLINE void narrow_weights(const C* from, E* to, int64_t n) {
    std::memcpy(to, from, n * sizeof(C));
  }
};

#ifdef __AVX512BF16__
// Two bfloat16 values per step, in the halves of one word.
struct Dot {
  using C = float;
  static constexpr int kLanes = 16;
  static constexpr int kValues = 2;
  using S = Simd<BFloat16, 16>;
  using V = S::V;
  using E = uint32_t;
  typedef S::W L __attribute__((may_alias));
  static INLINE V add(V sum, E element, L lanes) {
    return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)lanes, (__m512bh)_mm512_set1_epi32(element));
  }
  static INLINE E element(const BFloat16* values) {
    E pair;
    std::memcpy(&pair, values, sizeof pair);
    return pair;
  }
  static INLINE const E* key(const BFloat16* values, E*, int64_t) {
    return reinterpret_cast<const E*>(values);
  }
  static INLINE void value(const BFloat16* const* rows, E* to, int64_t n) {
    int64_t i = 0;
    const __m512i low = pairs_from(0), high = pairs_from(16);
    for (; i + 32 <= n; i += 32) {
      const __m512i a = _mm512_loadu_si512(rows[0] + i), b = _mm512_loadu_si512(rows[1] + i);
      _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(a, low, b));
      _mm512_storeu_si512(to + i + 16, _mm512_permutex2var_epi16(a, high, b));
    }
    for (; i + 16 <= n; i += 16) {
      const S::W pairs = S::words(rows[0] + i) | S::words(rows[1] + i) << 16;
      std::memcpy(to + i, &pairs, sizeof pairs);
    }
    for (; i < n; ++i) to[i] = uint32_t(rows[0][i].x) | uint32_t(rows[1][i].x) << 16;
  }
  // Where the halves of 16 words come from, `first` being the first value of both rows.
  static INLINE __m512i pairs_from(int first) {
    alignas(64) uint16_t from[32];
    for (int i = 0; i < 16; ++i) from[2 * i] = first + i, from[2 * i + 1] = 32 + first + i;
    return _mm512_load_si512(from);
  }
  static INLINE void weights(const V* rows, E* to) {
    const S::W pairs = (S::rounded(rows[0]) >> 16) | (S::rounded(rows[1]) & 0xFFFF0000u);
    std::memcpy(to, &pairs, sizeof pairs);
  }
  // n even; room for a multiple of 16 at both ends.
  static INLINE void narrow_weights(const float* from, E* to, int64_t n) {
    auto* const halves = reinterpret_cast<BFloat16*>(to);
    for (int64_t i = 0; i < n; i += 16) S::store(halves + i, S_load(from + i));
  }
  static INLINE V S_load(const float* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
};
#endif

constexpr int kRows = 4;    // rows multiplied at once
constexpr int kWide = 4;    // vectors of lanes
constexpr int kKeys = 64;   // keys between two rescalings

// sums[j] += Σ_s rows[j][s · stride] · lanes[s · lane_stride], in the order of s: a sum's bits do not
// depend on what is computed beside it.
template <class M, int ROWS = kRows>
INLINE void multiply(const typename M::E* const* rows, int64_t stride,
                     const typename M::E* lanes, int64_t lane_stride, int64_t steps,
                     typename M::V (&sums)[ROWS][kWide]) {
  // Names of their own keep them in registers.
  typename M::V held[ROWS][kWide];
#pragma GCC unroll 8
  for (int j = 0; j < ROWS; ++j)
#pragma GCC unroll 4
    for (int w = 0; w < kWide; ++w) held[j][w] = sums[j][w];
  for (int64_t s = 0; s < steps; ++s) {
    const auto* const by = reinterpret_cast<const typename M::L*>(lanes + s * lane_stride);
#pragma GCC unroll 8
    for (int j = 0; j < ROWS; ++j) {
      const auto element = rows[j][s * stride];
#pragma GCC unroll 4
      for (int w = 0; w < kWide; ++w) held[j][w] = M::add(held[j][w], element, by[w]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < ROWS; ++j)
#pragma GCC unroll 4
    for (int w = 0; w < kWide; ++w) sums[j][w] = held[j][w];
}

}  // namespace
