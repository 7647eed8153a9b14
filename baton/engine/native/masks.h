// Logits of tokens that a mask leaves out.
#pragma once

#include "tasks.h"
#include "vectors.h"

namespace {

// What of up to 32 neighbours has its bit set stays, the others become -inf.
INLINE void keep(float* logits, uint32_t bits, int64_t count) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) logits[i] = (bits >> i) & 1 ? logits[i] : kNever;
}

void mask_logits(Tensor& logits, const Tensor& rows, const Tensor& words) {
  const int64_t vocab = logits.size(1), length = words.size(1);
  float* values = logits.mutable_data_ptr<float>();
  const int64_t* row = rows.const_data_ptr<int64_t>();
  const int32_t* masks = words.const_data_ptr<int32_t>();
  share_rows(rows.numel(), 1 + kGrain / vocab, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      float* of = values + row[i] * vocab;
      const int32_t* mask = masks + i * length;
      const int64_t whole = vocab / 32;
      for (int64_t word = 0; word < whole; ++word) {
        const uint32_t bits = static_cast<uint32_t>(mask[word]);
        if (bits == ~0u) continue;
        keep(of + 32 * word, bits, 32);
      }
      if (whole < length) keep(of + 32 * whole, static_cast<uint32_t>(mask[whole]), vocab % 32);
    }
  });
}

}  // namespace
