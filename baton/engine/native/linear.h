// Linear maps in bfloat16 whose sums do not see the batch: each output is a sum over its row's values in
// order, whatever other rows are computed beside it, and by how many threads.
#pragma once

#include "attention.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int kOutputs = 64;   // outputs side by side in a panel of weights
#ifdef __AVX512F__
constexpr int kTileRows = 6;   // rows multiplied at once: as many sums as registers hold
#else
constexpr int kTileRows = 1;
#endif
constexpr int kBlockTiles = 16;  // tiles that one panel is multiplied with at a time

// Weights [outputs, inputs] as panels [outputs / 64][inputs / 2][64] of pairs of a row's values, zeros
// beyond the last.
void pack_panels(const BFloat16* from, int64_t outputs, int64_t inputs, uint32_t* to) {
  const int64_t pairs = (inputs + 1) / 2, panels = (outputs + kOutputs - 1) / kOutputs;
  at::parallel_for(0, panels, 1, [&](int64_t first, int64_t last) {
    for (int64_t panel = first; panel < last; ++panel)
      for (int64_t lane = 0; lane < kOutputs; ++lane) {
        const int64_t output = panel * kOutputs + lane;
        uint32_t* const at = to + panel * pairs * kOutputs + lane;
        const BFloat16* const row = from + output * inputs;
        for (int64_t s = 0; s < pairs; ++s) {
          uint32_t pair = 0;
          if (output < outputs)
            pair = row[2 * s].x | uint32_t(2 * s + 1 < inputs ? row[2 * s + 1].x : 0) << 16;
          at[s * kOutputs] = pair;
        }
      }
  });
}

// Adds products of pairs: an element of a row, kParts of X, with 16 lanes of a panel.
struct PairProduct {
#ifdef __AVX512BF16__
  using X = uint32_t;
  static constexpr int kParts = 1;
  static INLINE void add(Words<16>::V& sum, const X* x, Words<16>::W pairs) {
    sum = (Words<16>::V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pairs,
                                         (__m512bh)_mm512_set1_epi32(*x));
  }
  static INLINE void pair(const BFloat16* from, bool whole, X* to) {
    *to = 0;
    std::memcpy(to, from, whole ? 4 : 2);
  }
#else
  using X = float;
  static constexpr int kParts = 2;
  static INLINE void add(Words<16>::V& sum, const X* x, Words<16>::W pairs) {
    using V = Words<16>::V;
    sum = fused<float, 16>(V{} + x[0], (V)(pairs << 16), sum);
    sum = fused<float, 16>(V{} + x[1], (V)(pairs & 0xFFFF0000u), sum);
  }
  static INLINE void pair(const BFloat16* from, bool whole, X* to) {
    to[0] = from[0];
    to[1] = whole ? float(from[1]) : 0.0f;
  }
#endif
};

// The rows of a tile, side by side pair by pair: one run of memory.
template <int ROWS>
void pack_tile(const BFloat16* from, int64_t inputs, PairProduct::X* to) {
  constexpr int P = PairProduct::kParts;
  int64_t i = 0;
  for (; i + 2 <= inputs; i += 2, to += ROWS * P)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) PairProduct::pair(from + r * inputs + i, true, to + r * P);
  if (i < inputs)
    for (int r = 0; r < ROWS; ++r) PairProduct::pair(from + r * inputs + i, false, to + r * P);
}

// A tile of ROWS rows by a panel. So many lines of `next` are fetched a step, for the panel after it.
// Not inlined: its sums would not stay in registers.
template <int ROWS, int LINES>
__attribute__((noinline)) void tile(const PairProduct::X* x, const uint32_t* panel, int64_t pairs,
                                    const char* next, float* sums) {
  using V = Words<16>::V;
  typedef Words<16>::W L __attribute__((may_alias));
  V held[ROWS][4]{};
  for (int64_t s = 0; s < pairs; ++s) {
    const auto* const by = reinterpret_cast<const L*>(panel + s * kOutputs);
#pragma GCC unroll 4
    for (int line = 0; line < LINES; ++line)
      __builtin_prefetch(next + (s * LINES + line) * 64, 0, 2);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 4
      for (int w = 0; w < 4; ++w)
        PairProduct::add(held[r][w], x + (s * ROWS + r) * PairProduct::kParts, by[w]);
  }
  std::memcpy(sums, held, sizeof held);
}

// Calls `run` with a count of rows, 1 to kTileRows, that is known when it is compiled.
template <class F>
void with_rows(int64_t rows, const F& run) {
  switch (rows) {
    case 6: return run(std::integral_constant<int, 6>());
    case 5: return run(std::integral_constant<int, 5>());
    case 4: return run(std::integral_constant<int, 4>());
    case 3: return run(std::integral_constant<int, 3>());
    case 2: return run(std::integral_constant<int, 2>());
    default: return run(std::integral_constant<int, 1>());
  }
}

template <int ROWS>
void tile(const PairProduct::X* x, const uint32_t* panel, int64_t pairs, const char* next,
          int lines, float* sums) {
  switch (lines) {
    case 0: return tile<ROWS, 0>(x, panel, pairs, next, sums);
    case 1: return tile<ROWS, 1>(x, panel, pairs, next, sums);
    case 2: return tile<ROWS, 2>(x, panel, pairs, next, sums);
    default: return tile<ROWS, 4>(x, panel, pairs, next, sums);
  }
}

void multiply_panels(const BFloat16* x, int64_t rows, int64_t inputs, const uint32_t* panels,
                     const float* bias, int64_t outputs, BFloat16* to) {
  using X = PairProduct::X;
  constexpr int P = PairProduct::kParts;
  const int64_t pairs = (inputs + 1) / 2, count = (outputs + kOutputs - 1) / kOutputs;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const auto row_of = [&](int64_t tile) { return rows * tile / tiles; };
  static thread_local std::vector<X> kept;
  kept.resize(std::max<size_t>(kept.size(), rows * pairs * P));
  X* const copies = kept.data();
  at::parallel_for(0, tiles, 1 + kGrain / (kTileRows * inputs), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = row_of(tile);
      with_rows(row_of(tile + 1) - row, [&](auto count) {
        pack_tile<decltype(count)::value>(x + row * inputs, inputs, copies + row * pairs * P);
      });
    }
  });
  const int64_t blocks = (tiles + kBlockTiles - 1) / kBlockTiles;
  share(blocks * count, [&](int64_t number, Scratch&) {
    const int64_t at = number % count, block = number / count;
    const int64_t begin = tiles * block / blocks, end = tiles * (block + 1) / blocks;
    const int64_t first = at * kOutputs, width = std::min<int64_t>(kOutputs, outputs - first);
    const uint32_t* const panel = panels + at * pairs * kOutputs;
    // A step multiplies four lines of the panel: in four tiles of one line each all of the next panel
    // is fetched, or in fewer tiles of more.
    const int lines = end - begin >= 4 ? 1 : end - begin == 1 ? 4 : 2;
    alignas(64) float sums[kTileRows][kOutputs];
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = row_of(tile), held = row_of(tile + 1) - row;
      const int64_t fetched = (tile - begin) * lines;
      const int fetch = fetched < 4 && at + 1 < count ? lines : 0;
      const char* const next = reinterpret_cast<const char*>(panel + pairs * kOutputs);
      with_rows(held, [&](auto rows) {
        ::tile<decltype(rows)::value>(copies + row * pairs * P, panel, pairs,
                                      next + fetched * pairs * 64, fetch, sums[0]);
      });
      for (int64_t r = 0; r < held; ++r) {
        if (bias)
          for (int64_t i = 0; i < width; ++i) sums[r][i] += bias[first + i];
        narrow<BFloat16>(sums[r], to + (row + r) * outputs + first, width);
      }
    }
  });
}

}  // namespace
