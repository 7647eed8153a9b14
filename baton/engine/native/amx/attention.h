// Attention in bfloat16 on tiles, for chunks of a prompt and for single tokens alike: a row, a token's head,
// is a function of its query and of the keys and values before it, in bits.
//
// Keys are taken 64 at a time, by their positions. A score is a sum over 32 values of the head at a time in order,
// a sum of values one over 32 keys at a time; weights are rounded to bfloat16; a sum of weights has a lane for
// each 16th key, and the lanes are added as a tree at the end. A row's sums are those of a tile's row, whatever
// other rows lie beside it, and a block that it does not see adds zeros.
//
// Limits, per 16 rows by 64 keys of heads of `size`: the tiles need size / 4 products of 16 cycles, scores 64
// vectors of some 16 instructions, of which two are begun in a cycle. Heads of 64 are bound by the latter, twice
// over; heads of 128 by both alike. Nothing in the source makes the two overlap.
#pragma once

#include "../attention.h"
#include "tiles.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int64_t kChunkRows = 64;  // of a task: V is copied once for so many

struct TileAttention {
  using A = Attention<BFloat16>;
  using E = A::E;
  using V = A::V;
  static constexpr int N = A::N, kSteps = kKeys / (2 * kTile);  // of 32 keys
  static_assert(N == kTile && kGroup == kTile);

  const A& of;

  struct Row {
    V sums;
    float best;
  };

  // 2^x for x ≤ 1 or so, within 2^-13, a sixteenth of what rounding to bfloat16 does; 0 below 2^-127.
  static INLINE V raise(V x) {
    typedef int32_t I __attribute__((vector_size(N * 4)));
    x = maximum(V{} - 127.0f, x);
    const V magic = V{} + 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
    const V shifted = x + magic;
    const V r = x - (shifted - magic);
    // The cubic that is 1 at 0 and whose largest relative error within ± 1/2 is least.
    V y = fused<float, N>(V{} + 0.05500879f, r, V{} + 0.24221115f);
    y = fused<float, N>(y, r, V{} + 0.69328296f);
    y = fused<float, N>(y, r, V{} + 1.0f);
    return (V)((I)y + ((I)shifted << 23));
  }

  // Makes weights [2][16 pairs], a tile's rows apart, of a row's scores of 64 keys, `visible` of which it sees. Its
  // sums of values so far, [lanes], are made less where there is a better score.
  INLINE void weigh(const float* scores, int64_t visible, Row& row, float* found, int64_t lanes,
                    E* weights) const {
    using S = Simd<float, N>;
    constexpr int kVectors = kKeys / N;
    V score[kVectors];
    for (int v = 0; v < kVectors; ++v) score[v] = S::load(scores + v * N);
    if (visible < kKeys) {
      const V at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
      for (int v = 0; v < kVectors; ++v)
        score[v] = at >= static_cast<float>(visible - v * N) ? V{} + A::kHidden : score[v];
    }
    const V pairs = maximum(maximum(score[0], score[1]), maximum(score[2], score[3]));
    const float most = fold<float, N>(pairs, [](V a, V b) { return maximum(a, b); })[0];
    if (!(most <= row.best)) {
      const V shrink = raise(V{} + (row.best - most) * of.scale);
      row.best = most;
      row.sums *= shrink;
      for (int64_t i = 0; i < lanes; i += N) S::store(found + i, S::load(found + i) * shrink);
    }
    const V base = V{} + row.best * of.scale;
    for (int v = 0; v < kVectors; ++v) {
      score[v] = raise(fused<float, N>(score[v], V{} + of.scale, -base));
      row.sums += score[v];
    }
    for (int s = 0; s < kSteps; ++s) A::M::row(score + 2 * s, weights + s * kTileWords);
  }

  // The first `count` of 64 keys' values as lanes [32 pairs][lanes], zeros after them.
  void copy_values(const A::Keys& from, const A::Keys* ahead, int64_t count, int64_t lanes, E* to) const {
    const int64_t size = of.shape.size;
    for (int64_t j = 0; j < kKeys / 2; ++j, to += lanes) {
      if (2 * j >= count) {
        std::memset(to, 0, size * sizeof(E));
        continue;
      }
      const int64_t group = 2 * j / kGroup, at = j % (kGroup / 2) * size;
      std::memcpy(to, from.values[group] + at, size * sizeof(E));
      if (2 * j + 1 == count)  // what lies beside the last is no key's yet
        for (int64_t i = 0; i < size; ++i) to[i] &= 0xFFFF;
      if (ahead)
        for (int64_t i = 0; i < size; i += kTile) __builtin_prefetch(ahead->values[group] + at + i, 0, 2);
    }
  }

  // `tokens` of a sequence from its line `first` on, for the queries of one KV head.
  void run(int64_t sequence, int64_t kv_head, int64_t first, int64_t tokens, Scratch& scratch) const {
    const Shape& shape = of.shape;
    const Span span = of.spans[sequence];
    const int64_t size = shape.size, group = shape.group, words = size / 2, rows = tokens * group;
    const int64_t tiles = (rows + kTile - 1) / kTile, lanes = (size + 31) / 32 * 32;
    const int64_t steps = (words + kTile - 1) / kTile, whole = words / kTile, rest = words % kTile;
    const int64_t first_position = span.start + first, last_position = first_position + tokens - 1;
    const bool single = span.count == 1;  // bound by memory: what is read next is fetched
    scratch.begin();
    float* const found = scratch.take<float>(tiles * kTile * lanes);
    float* const scores = scratch.take<float>(tiles * kTile * kKeys);
    E* const queries = scratch.take<E>(tiles * steps * kTileWords);
    E* const weights = scratch.take<E>(tiles * kSteps * kTileWords);
    E* const values = scratch.take<E>(kKeys / 2 * lanes);
    E* const tails = scratch.take<E>(kKeys / kGroup * kTileWords);
    Row* const state = scratch.take<Row>(rows);
    std::memset(found, 0, tiles * kTile * lanes * sizeof *found);
    std::memset(queries, 0, tiles * steps * kTileWords * sizeof(E));
    std::memset(weights, 0, tiles * kSteps * kTileWords * sizeof(E));
    std::memset(values, 0, kKeys / 2 * lanes * sizeof(E));
    std::memset(tails, 0, kKeys / kGroup * kTileWords * sizeof(E));
    std::fill(state, state + rows, Row{V{}, A::kHidden});
    for (int64_t r = 0; r < rows; ++r) {
      const auto* const q = reinterpret_cast<const char*>(
          of.qkv + (span.first + first + r / group) * shape.line + (kv_head * group + r % group) * size);
      E* const to = queries + r / kTile * steps * kTileWords + r % kTile * kTile;
      for (int64_t s = 0; s < steps; ++s)
        std::memcpy(to + s * kTileWords, q + s * kTileBytes,
                    std::min<int64_t>(kTileBytes, size * sizeof(BFloat16) - s * kTileBytes));
    }

    const Tiles registers;
    A::Keys next = of.keys_of(sequence, 0, last_position, kv_head);
    for (int64_t from = 0; from <= last_position; from += kKeys) {
      const int64_t count = std::min<int64_t>(kKeys, last_position + 1 - from);
      const A::Keys here = next;
      const bool ahead = single && from + kKeys <= last_position;
      if (from + kKeys <= last_position)
        next = of.keys_of(sequence, from + kKeys, last_position, kv_head);
      for (int g = 0; g < kKeys / kGroup; ++g)
        for (int64_t j = 0; j < rest; ++j)
          std::memcpy(tails + g * kTileWords + j * kTile,
                      here.keys[g] + (whole * kTile + j) * shape.block, kTileBytes);
      const auto keys = [&](int column) {
        return [&, column](int64_t s, int c) {
          const int g = column + c;
          if (s == whole) return Lanes{tails + g * kTileWords, kTileBytes};
          const int64_t at = s * kTile * shape.block;
          if (ahead)
            for (int64_t j = 0; j < kTile; ++j)
              __builtin_prefetch(next.keys[g] + at + j * shape.block, 0, 2);
          return Lanes{here.keys[g] + at, shape.block * int64_t(sizeof(E))};
        };
      };
      const int64_t apart = steps * kTileWords;
      for (int64_t t = 0; t < tiles / 2 * 2; t += 2)
        for (int column = 0; column < kKeys / kGroup; column += 2)
          sum_tiles<2, 2>(queries + t * apart, apart, keys(column), steps, true,
                          scores + t * kTile * kKeys + column * kGroup, kKeys);
      if (tiles % 2)
        sum_tiles<1, 4>(queries + (tiles - 1) * apart, apart, keys(0), steps, true,
                        scores + (tiles - 1) * kTile * kKeys, kKeys);
      for (int64_t r = 0; r < rows; ++r) {
        E* const to = weights + r / kTile * kSteps * kTileWords + r % kTile * kTile;
        const int64_t visible = first_position + r / group + 1 - from;
        if (visible > 0)
          weigh(scores + r * kKeys, visible, state[r], found + r * lanes, lanes, to);
        else
          for (int s = 0; s < kSteps; ++s) std::memset(to + s * kTileWords, 0, kTileBytes);
      }
      copy_values(here, ahead ? &next : nullptr, count, lanes, values);
      const auto lanes_of = [&](int64_t column) {
        return [=](int64_t s, int c) {
          return Lanes{values + s * kTile * lanes + column + c * kTile, lanes * int64_t(sizeof(E))};
        };
      };
      const int64_t some = (count + 2 * kTile - 1) / (2 * kTile), between = kSteps * kTileWords;
      for (int64_t column = 0; column < lanes; column += 2 * kTile) {
        for (int64_t t = 0; t < tiles / 2 * 2; t += 2)
          sum_tiles<2, 2>(weights + t * between, between, lanes_of(column), some, false,
                          found + t * kTile * lanes + column, lanes);
        if (tiles % 2)
          sum_tiles<1, 2>(weights + (tiles - 1) * between, between, lanes_of(column), some, false,
                          found + (tiles - 1) * kTile * lanes + column, lanes);
      }
    }

    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = kv_head * group + r % group;
      BFloat16* const to = of.out + ((span.first + first + r / group) * shape.heads + head) * size;
      const float by = 1 / total<N, float>(state[r].sums);
      for (int64_t i = 0; i < size; ++i) to[i] = static_cast<BFloat16>(found[r * lanes + i] * by);
    }
  }
};

template <>
void attend<BFloat16>(const Tensor& qkv, const Tensor& pool, int64_t layer, const Tensor& spans,
                      const Tensor& table, const Shape& shape, const Scores& scores,
                      Tensor& out) {
  // Windows, bounds and sinks are not yet on tiles. Which layers have them does not change: bits stay.
  if (scores.special())
    return attend_vectors<BFloat16>(qkv, pool, layer, spans, table, shape, scores, out);
  allow_tiles();
  const auto attention = attention_of<BFloat16>(qkv, pool, layer, spans, table, shape, scores, out);
  const int64_t tokens = std::max<int64_t>(1, kChunkRows / shape.group);
  std::vector<Task> tasks;
  for (int64_t i = 0; i < spans.size(0); ++i)
    // The last tokens see the most keys: first, so that no thread ends long after the others.
    for (int64_t part = (attention.spans[i].count - 1) / tokens; part >= 0; --part)
      for (int64_t head = 0; head < shape.kv_heads; ++head) tasks.push_back({i, head, part});
  share(tasks.size(), [&](int64_t number, int64_t, Scratch& scratch) {
    const Task task = tasks[number];
    const int64_t first = task.tile * tokens, count = attention.spans[task.sequence].count;
    TileAttention{attention}.run(task.sequence, task.head, first, std::min(tokens, count - first),
                                 scratch);
  });
}

}  // namespace
