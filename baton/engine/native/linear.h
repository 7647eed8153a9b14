// Linear maps in bfloat16 whose sums do not see the batch: each output is a sum over its row's values in
// order, whatever other rows are computed beside it, and by how many threads.
#pragma once

#include "attention.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int kOutputs = 64;  // outputs side by side in a panel of weights

// Pairs of a panel's row, zeros beyond the last: tiles take so many at a time.
constexpr int64_t padded_pairs(int64_t inputs) {
#ifdef BATON_TILES
  constexpr int64_t kSome = 16;
#else
  constexpr int64_t kSome = 1;
#endif
  return ((inputs + 1) / 2 + kSome - 1) / kSome * kSome;
}

// Weights [outputs, inputs] as panels [outputs / 64][pairs of inputs][64] of pairs of a row's values, zeros
// beyond the last.
void pack_panels(const BFloat16* from, int64_t outputs, int64_t inputs, uint32_t* to) {
  const int64_t pairs = padded_pairs(inputs), panels = (outputs + kOutputs - 1) / kOutputs;
  share_rows(panels, 1, [&](int64_t first, int64_t last) {
    for (int64_t panel = first; panel < last; ++panel)
      for (int64_t lane = 0; lane < kOutputs; ++lane) {
        const int64_t output = panel * kOutputs + lane;
        uint32_t* const at = to + panel * pairs * kOutputs + lane;
        const BFloat16* const row = from + output * inputs;
        for (int64_t s = 0; s < pairs; ++s) {
          uint32_t pair = 0;
          if (output < outputs && 2 * s < inputs)
            pair = row[2 * s].x | uint32_t(2 * s + 1 < inputs ? row[2 * s + 1].x : 0) << 16;
          at[s * kOutputs] = pair;
        }
      }
  });
}

using Pairs = Multiply<BFloat16>;

// Writes a row's sums of a panel, `width` of which are outputs.
INLINE void round_row(const float* sums, const float* bias, int64_t width, BFloat16* to) {
  constexpr int N = Pairs::N;
  if (width < kOutputs) {
    float biased[kOutputs];
    for (int64_t i = 0; i < width; ++i) biased[i] = bias ? sums[i] + bias[i] : sums[i];
    return narrow<BFloat16>(biased, to, width);
  }
  Pairs::V values[Pairs::P];
  for (int i = 0; i < kOutputs; i += Pairs::P * N) {
    for (int p = 0; p < Pairs::P; ++p) {
      values[p] = Simd<float, N>::load(sums + i + p * N);
      if (bias) values[p] += Simd<float, N>::load(bias + i + p * N);
    }
    Pairs::row(values, reinterpret_cast<uint32_t*>(to + i));
  }
}

}  // namespace
