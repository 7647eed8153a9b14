// Linear maps in bfloat16 on tiles. A row's sums are over 32 inputs at a time, in order: as of one tile's row,
// they are the same whatever rows lie beside it.
#pragma once

#include "../linear.h"
#include "tiles.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int kStepPairs = kTile;  // of a product of tiles
static_assert(padded_pairs(1) == kStepPairs);
constexpr int64_t kBlockRows = 32;  // tiles of rows that one panel is multiplied with at a time
// Steps of 32 inputs that a block's tiles are multiplied with before the next: half a panel's, 32 kB, stay
// in a core's first cache while the rows pass.
constexpr int64_t kPartSteps = 16;

// Up to 16 rows as tiles [steps][16][16 pairs], zeros beyond the last.
void pack_rows(const BFloat16* from, int64_t rows, int64_t inputs, int64_t steps, uint32_t* to) {
  constexpr int64_t kValues = 2 * kTile;
  std::memset(to, 0, steps * kTileWords * sizeof *to);
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(to + s * kTileWords + r * kTile, from + r * inputs + s * kValues,
                  std::min(kValues, inputs - s * kValues) * sizeof *from);
}

void multiply_panels(const BFloat16* x, int64_t rows, int64_t inputs, const uint32_t* panels,
                     const float* bias, int64_t outputs, BFloat16* to) {
  allow_tiles();
  const int64_t count = (outputs + kOutputs - 1) / kOutputs, tiles = (rows + kTile - 1) / kTile;
  const int64_t steps = padded_pairs(inputs) / kStepPairs, apart = steps * kTileWords;
  static thread_local std::vector<uint32_t> kept;
  kept.resize(std::max<size_t>(kept.size(), tiles * apart + kTile));
  uint32_t* const packed = reinterpret_cast<uint32_t*>(
      (reinterpret_cast<uintptr_t>(kept.data()) + kTileBytes - 1) / kTileBytes * kTileBytes);
  share_rows(tiles, 1 + kGrain / (kTile * inputs), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile)
      pack_rows(x + tile * kTile * inputs, std::min<int64_t>(kTile, rows - tile * kTile), inputs,
                steps, packed + tile * apart);
  });
  const int64_t blocks = (tiles + kBlockRows - 1) / kBlockRows;
  share(blocks * count, [&](int64_t task, int64_t, Scratch& scratch) {
    const Tiles registers;
    const int64_t first = task % count * kOutputs, width = std::min<int64_t>(kOutputs, outputs - first);
    const int64_t begin = tiles * (task / count) / blocks, end = tiles * (task / count + 1) / blocks;
    const uint32_t* const panel = panels + task % count * steps * kStepPairs * kOutputs;
    scratch.begin();
    float* const sums = scratch.take<float>((end - begin) * kTile * kOutputs);
    for (int64_t from = 0; from < steps; from += kPartSteps) {
      const int64_t some = std::min(kPartSteps, steps - from);
      const auto lanes = [&](int64_t column) {
        return [=, part = panel + from * kStepPairs * kOutputs + column * kTile](int64_t s, int c) {
          return Lanes{part + s * kStepPairs * kOutputs + c * kTile, kOutputs * sizeof(uint32_t)};
        };
      };
      const auto rows_of = [&](int64_t tile) { return packed + tile * apart + from * kTileWords; };
      const auto sums_of = [&](int64_t tile) { return sums + (tile - begin) * kTile * kOutputs; };
      const int64_t odd = (end - begin) % 2;
      for (int64_t column = 0; column < kOutputs / kTile; column += 2)
        for (int64_t tile = begin; tile < end - odd; tile += 2)
          sum_tiles<2, 2>(rows_of(tile), apart, lanes(column), some, from == 0,
                          sums_of(tile) + column * kTile, kOutputs);
      if (odd)  // of few rows, as in decode, the one: a panel is read once and as it lies
        sum_tiles<1, 4>(rows_of(end - 1), apart, lanes(0), some, from == 0, sums_of(end - 1), kOutputs);
    }
    for (int64_t row = begin * kTile; row < std::min(end * kTile, rows); ++row)
      round_row(sums + (row - begin * kTile) * kOutputs, bias ? bias + first : nullptr, width,
                to + row * outputs + first);
  });
}

}  // namespace
