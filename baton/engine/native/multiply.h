// Products whose sums go in order, one step after the other: elements of rows with lanes side by side.
#pragma once

#include <algorithm>

#include "vectors.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int kWide = 4;  // vectors of lanes
// How many of them are multiplied with rows at once: as many sums as registers hold.
constexpr int kAtOnce = kAvx2 ? 2 : kWide;

// How values of type T are multiplied and added. A step takes P values of a row, one word of type E in
// memory, with as many of each lane. x - V{} is x in every lane, and costs nothing; V{} + x is not x where that is -0.
template <class T>
struct Multiply {
  using C = T;
  using E = T;
  using X = T;
  static constexpr int N = kHeld<C>, P = 1;
  using V = typename Simd<C, N>::V;
  typedef V L __attribute__((may_alias, aligned(sizeof(E))));  // N words
  static INLINE X element(E word) { return word; }
  static INLINE V add(V sum, X x, V lanes) { return fused<C, N>(x - V{}, lanes, sum); }
  static INLINE E word(V (&values)[P], int lane) { return values[0][lane]; }
  static INLINE void words(const V (&values)[P], E* to) { std::memcpy(to, values, sizeof(V)); }
  static INLINE void row(const V* from, E* to) { std::memcpy(to, from, sizeof(V) * P); }
};

// Pairs of bfloat16 in the halves of one word.
template <>
struct Multiply<BFloat16> {
  using C = float;
  using E = uint32_t;
  static constexpr int N = kHeld<float>, P = 2;
  using V = Words<N>::V;
  using W = Words<N>::W;
  typedef W L __attribute__((may_alias, aligned(4)));
#ifdef __AVX512BF16__
  using X = uint32_t;
  static INLINE X element(E word) { return word; }
  static INLINE V add(V sum, X x, W lanes) {
    return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)lanes, (__m512bh)_mm512_set1_epi32(x));
  }
#else
  struct X {
    float low, high;
  };
  static INLINE X element(E word) {
    const uint32_t halves[2] = {word << 16, word & 0xFFFF0000u};
    X x;
    std::memcpy(&x, halves, sizeof x);
    return x;
  }
  static INLINE V add(V sum, X x, W lanes) {
    sum = fused<float, N>(x.low - V{}, (V)(lanes << 16), sum);
    return fused<float, N>(x.high - V{}, (V)(lanes & 0xFFFF0000u), sum);
  }
#endif
  // Lane by lane the pair of two vectors' values.
  static INLINE void words(const V (&values)[P], E* to) {
#ifdef __AVX512BF16__
    alignas(64) static constexpr uint16_t kFrom[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)values[1], (__m512)values[0]);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(_mm512_load_si512(kFrom), halves));
#else
    using S = Simd<BFloat16, N>;
    const W pairs = (S::rounded(values[0]) >> 16) | (S::rounded(values[1]) & 0xFFFF0000u);
    std::memcpy(to, &pairs, sizeof pairs);
#endif
  }
  // The pairs of the values of P vectors, one after the other.
  static INLINE void row(const V* from, E* to) {
#ifdef __AVX512BF16__
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh((__m512)from[1], (__m512)from[0]);
    _mm512_storeu_si512(to, halves);
#else
    auto* const halves = reinterpret_cast<BFloat16*>(to);
    Simd<BFloat16, N>::store(halves, from[0]);
    Simd<BFloat16, N>::store(halves + N, from[1]);
#endif
  }
};

// sums[r][w] += Σ rows(g)[r · pitch + s · stride] · lanes(g, w)[s · lane_stride] over `steps` steps in
// order: s of each g, `run` of them to a g. A sum's bits do not depend on what is computed beside it.
// Of each line of lanes that is read, that of ahead(g, w), if not nullptr, is fetched.
template <class M, int ROWS, int WIDE, class Rows, class Lanes, class Ahead>
INLINE void multiply(int64_t steps, int64_t run, const Rows& rows, int64_t pitch, int64_t stride,
                     const Lanes& lanes, int64_t lane_stride, typename M::V (&sums)[ROWS][WIDE],
                     const Ahead& ahead) {
  using E = typename M::E;
  // Names of their own keep them in registers.
  typename M::V held[ROWS][WIDE];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < WIDE; ++w) held[r][w] = sums[r][w];
  for (int64_t g = 0; g * run < steps; ++g) {
    const int64_t some = std::min(run, steps - g * run);
    const E* const row = rows(g);
    const E* lane[WIDE];
#pragma GCC unroll 4
    for (int w = 0; w < WIDE; ++w) lane[w] = lanes(g, w);
    for (int64_t s = 0; s < some; ++s) {
      typename M::L by[WIDE];
#pragma GCC unroll 4
      for (int w = 0; w < WIDE; ++w) {
        by[w] = *reinterpret_cast<const typename M::L*>(lane[w] + s * lane_stride);
        if constexpr (!std::is_same_v<Ahead, std::nullptr_t>)
          __builtin_prefetch(ahead(g, w) + s * lane_stride, 0, 2);
      }
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) {
        const auto x = M::element(row[r * pitch + s * stride]);
#pragma GCC unroll 4
        for (int w = 0; w < WIDE; ++w) held[r][w] = M::add(held[r][w], x, by[w]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < WIDE; ++w) sums[r][w] = held[r][w];
}

// Calls `run` with a count, 1 to MOST, that is known when it is compiled.
template <int MOST, class F>
INLINE void with_count(int64_t count, const F& run) {
  if constexpr (MOST == 1) {
    run(std::integral_constant<int, 1>());
  } else {
    if (count == MOST) run(std::integral_constant<int, MOST>());
    else with_count<MOST - 1>(count, run);
  }
}

}  // namespace
