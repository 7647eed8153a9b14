// Linear maps in bfloat16 on vectors.
#pragma once

#include "linear.h"

namespace {  // one translation unit includes this: ops.cpp

// Rows multiplied at once, and by how many vectors of a panel: as many sums as registers hold.
constexpr int kPanelVectors = kOutputs / Pairs::N;
#ifdef __AVX512F__
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = kAvx2 ? 4 : 1;
#endif
template <int ROWS>
constexpr int kTileVectors = kAvx2 && ROWS > 1 ? 2 : kPanelVectors;
constexpr int kBlockTiles = 16;  // tiles that one panel is multiplied with at a time
// Pairs of a panel that a block's tiles are multiplied with before the next: with what is fetched
// meanwhile and the tiles they stay in a core's cache.
constexpr int64_t kPart = 768;

// The rows of a tile, side by side pair by pair: one run of memory.
template <int ROWS>
void pack_tile(const BFloat16* from, int64_t inputs, Pairs::X* to) {
  int64_t i = 0;
  for (; i + 2 <= inputs; i += 2, to += ROWS)
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      uint32_t pair;
      std::memcpy(&pair, from + r * inputs + i, sizeof pair);
      to[r] = Pairs::element(pair);
    }
  if (i < inputs)
    for (int r = 0; r < ROWS; ++r) to[r] = Pairs::element(from[r * inputs + i].x);
}

// Adds to the sums of a tile, ROWS rows by some vectors of a panel, what so many pairs come to; the first
// begin at zero. Of each 4 pairs so many lines of `next` are fetched. Not inlined: its sums would not stay in
// registers.
template <int ROWS, int LINES>
__attribute__((noinline)) void tile(const Pairs::X* x, const uint32_t* panel, int64_t pairs,
                                    bool first, const char* next, float* sums) {
  constexpr int N = Pairs::N, kSome = kTileVectors<ROWS>;
  using V = Pairs::V;
  using S = Simd<float, N>;  // a vector at a time: GCC copies arrays by way of the stack
  V held[ROWS][kSome];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int w = 0; w < kSome; ++w)
      held[r][w] = first ? V{} : S::load(sums + r * kOutputs + w * N);
  const auto step = [&] {
    const auto* const by = reinterpret_cast<const Pairs::L*>(panel);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
      for (int w = 0; w < kSome; ++w) held[r][w] = Pairs::add(held[r][w], x[r], by[w]);
    panel += kOutputs;
    x += ROWS;
  };
  for (; pairs >= 4; pairs -= 4, next += LINES * 64) {
#pragma GCC unroll 16
    for (int line = 0; line < LINES; ++line) __builtin_prefetch(next + line * 64, 0, 2);
    step(), step(), step(), step();
  }
  for (; pairs; --pairs) step();
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int w = 0; w < kSome; ++w) S::store(sums + r * kOutputs + w * N, held[r][w]);
}

template <int ROWS>
void tile(const Pairs::X* x, const uint32_t* panel, int64_t pairs, bool first, const char* next,
          int lines, float* sums) {
  switch (lines) {
    case 0: return tile<ROWS, 0>(x, panel, pairs, first, next, sums);
    case 1: return tile<ROWS, 1>(x, panel, pairs, first, next, sums);
    case 2: return tile<ROWS, 2>(x, panel, pairs, first, next, sums);
    case 4: return tile<ROWS, 4>(x, panel, pairs, first, next, sums);
    case 8: return tile<ROWS, 8>(x, panel, pairs, first, next, sums);
    default: return tile<ROWS, 16>(x, panel, pairs, first, next, sums);
  }
}

void multiply_panels(const BFloat16* x, int64_t rows, int64_t inputs, const uint32_t* panels,
                     const float* bias, int64_t outputs, BFloat16* to) {
  using X = Pairs::X;
  const int64_t pairs = (inputs + 1) / 2, count = (outputs + kOutputs - 1) / kOutputs;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const auto row_of = [&](int64_t tile) { return rows * tile / tiles; };
  static thread_local std::vector<X> kept;
  kept.resize(std::max<size_t>(kept.size(), rows * pairs));
  X* const copies = kept.data();
  share_rows(tiles, 1 + kGrain / (kTileRows * inputs), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = row_of(tile);
      with_count<kTileRows>(row_of(tile + 1) - row, [&](auto count) {
        pack_tile<decltype(count)::value>(x + row * inputs, inputs, copies + row * pairs);
      });
    }
  });
  const int64_t blocks = (tiles + kBlockTiles - 1) / kBlockTiles;
  const int64_t parts = (pairs + kPart - 1) / kPart;
  const int64_t part = (pairs + parts - 1) / parts;
  const auto panel_of = [&](int64_t task) { return panels + task % count * pairs * kOutputs; };
  share(blocks * count, [&](int64_t task, int64_t after, Scratch&) {
    const int64_t at = task % count, block = task / count;
    const int64_t begin = tiles * block / blocks, end = tiles * (block + 1) / blocks;
    const int64_t first = at * kOutputs, width = std::min<int64_t>(kOutputs, outputs - first);
    const uint32_t* const panel = panel_of(task);
    // Four pairs are 16 lines of the panel. What is multiplied next is fetched as slowly as the tiles
    // allow: a core has few reads of memory under way, and those of this panel come first.
    int lines = 16;
    while (lines > 1 && lines / 2 * (end - begin) >= 16) lines /= 2;
    alignas(64) float sums[kBlockTiles][kTileRows * kOutputs];
    for (int64_t from = 0; from < pairs; from += part) {
      const int64_t some = std::min(part, pairs - from);
      const bool ends = from + some == pairs, fetches = !ends || after < blocks * count;
      const uint32_t* const next = ends ? panel_of(after) : panel + (from + some) * kOutputs;
      for (int64_t tile = begin; tile < end; ++tile) {
        const int64_t row = row_of(tile), held = row_of(tile + 1) - row;
        const int64_t fetched = (tile - begin) * lines;
        float* const found = sums[tile - begin];
        with_count<kTileRows>(held, [&](auto rows) {
          constexpr int kRows = decltype(rows)::value;
          for (int v = 0; v < kPanelVectors; v += kTileVectors<kRows>)
            ::tile<kRows>(copies + row * pairs + from * held,
                          panel + from * kOutputs + v * Pairs::N, some, from == 0,
                          reinterpret_cast<const char*>(next) + fetched * some * 16,
                          fetches && fetched < 16 && v == 0 ? lines : 0, found + v * Pairs::N);
        });
        if (!ends) continue;
        for (int64_t r = 0; r < held; ++r)
          round_row(found + r * kOutputs, bias ? bias + first : nullptr, width,
                    to + (row + r) * outputs + first);
      }
    }
  });
}

}  // namespace
