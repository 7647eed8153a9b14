// Attention over paged KV: single tokens (decode), and tiles of a chunk's tokens (prefill).
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "multiply.h"
#include "rows.h"

namespace {  // one translation unit includes this: ops.cpp

// One sequence of the batch: `count` tokens from line `first` on, at positions from `start` on.
struct Span {
  int64_t first, count, start;
};

template <class T>
struct Attention {
  const Shape& shape;
  const T* qkv;
  const T* pool;
  T* out;
  int64_t layer;
  Computed<T> scale;
  const Span* spans;
  const int64_t* table;
  int64_t columns;

  const T* key(int64_t sequence, int64_t position) const {
    const int64_t page = table[sequence * columns + position / shape.block];
    return pool + shape.keys(page, layer) + position % shape.block * shape.row;
  }

  // What a softmax over blocks has found so far, for rows that lie side by side.
  struct State {
    const Computed<T>* q;  // scaled
    Computed<T>* found;
    Computed<T>* best;
    Computed<T>* sums;
  };

  // The next `count` keys of a block for R query rows; `scores` is room for R rows of them.
  template <int N, int SIZE, int R>
  void block_of(const T* k, const T* v, int64_t count, State state, Computed<T>* scores) const {
    using C = Computed<T>;
    using From = Simd<T, N>;
    using Own = Simd<C, N>;
    const int64_t size = SIZE ? SIZE : shape.size, row = shape.row;
    const int64_t padded = (count + N - 1) / N * N;
    constexpr C hidden = -std::numeric_limits<C>::infinity();
    for (int64_t from = 0; from < padded; from += N) {
      typename Own::V parts[R][N];
      for (int t = 0; t < N; ++t) {
        const T* const key = k + std::min(from + t, count - 1) * row;
        typename Own::V sum[R]{};
        for (int64_t i = 0; i < size; i += N) {
          const auto values = From::load(key + i);
          for (int r = 0; r < R; ++r) sum[r] += values * Own::load(state.q + r * size + i);
        }
        for (int r = 0; r < R; ++r) parts[r][t] = sum[r];
      }
      for (int r = 0; r < R; ++r)
        Own::store(scores + r * padded + from, totals<N, C>(parts[r]));
    }
    C shrink[R];
    for (int r = 0; r < R; ++r) {
      C* const own = scores + r * padded;
      std::fill(own + count, own + padded, hidden);
      typename Own::V most = Own::load(own), sum{};
      for (int64_t t = N; t < padded; t += N) most = maximum(most, Own::load(own + t));
      C top = state.best[r];
      for (int t = 0; t < N; ++t) top = std::max(top, most[t]);
      for (int64_t t = 0; t < padded; t += N) {
        const auto weight = exponential<C, N>(Own::load(own + t) - top);
        Own::store(own + t, weight);
        sum += weight;
      }
      shrink[r] = std::exp(state.best[r] - top);
      state.best[r] = top;
      state.sums[r] = state.sums[r] * shrink[r] + total<N, C>(sum);
    }
    // Four vectors of values at a time: as many sums as hide an addition's latency.
    constexpr int G = SIZE ? 4 : 1;
    for (int64_t i = 0; i < size; i += G * N) {
      typename Own::V value[R][G];
      for (int r = 0; r < R; ++r)
        for (int g = 0; g < G; ++g)
          value[r][g] = Own::load(state.found + r * size + i + g * N) * shrink[r];
      for (int64_t t = 0; t < count; ++t)
        for (int g = 0; g < G; ++g) {
          const auto values = From::load(v + t * row + i + g * N);
          for (int r = 0; r < R; ++r) value[r][g] += values * scores[r * padded + t];
        }
      for (int r = 0; r < R; ++r)
        for (int g = 0; g < G; ++g) Own::store(state.found + r * size + i + g * N, value[r][g]);
    }
  }

  // A sequence's single token for KV heads [first_head, last_head). Lanes are values of a head, so
  // that KV is read once and in order: this is bound by memory.
  template <int N, int SIZE>
  void single(int64_t sequence, int64_t first_head, int64_t last_head) const {
    using C = Computed<T>;
    const int64_t size = SIZE ? SIZE : shape.size, group = shape.group, block = shape.block;
    const int64_t rows = (last_head - first_head) * group, head = first_head * group;
    const int64_t padded = (block + N - 1) / N * N;
    const Span span = spans[sequence];
    const int64_t keys = span.start + 1;
    std::vector<C> memory(rows * (2 * size + 2) + 2 * padded);
    C* const q = memory.data();
    C* const found = q + rows * size;
    C* const best = found + rows * size;
    C* const sums = best + rows;
    C* const scores = sums + rows;
    widen(qkv + span.first * shape.line + head * size, q, rows * size);
    for (int64_t i = 0; i < rows * size; ++i) q[i] *= scale;
    std::fill(best, best + rows, -std::numeric_limits<C>::infinity());
    for (int64_t from = 0; from < keys; from += block) {
      const int64_t count = std::min(block, keys - from);
      const T* const page = key(sequence, from);
      const T* const next = from + block < keys ? key(sequence, from + block) : page;
      for (int64_t kv = first_head; kv < last_head; ++kv) {
        const T* const k = page + kv * size;
        const T* const v = k + block * shape.row;
        // The next block's keys and values, in order and a head's share at a time: where one core
        // has few misses under way, memory's own prefetching must be led.
        const int64_t share = block * size * sizeof(T), at = kv * share;
        for (int64_t byte = at; byte < at + share; byte += 64) {
          __builtin_prefetch(reinterpret_cast<const char*>(next) + byte, 0, 2);
          __builtin_prefetch(reinterpret_cast<const char*>(next + block * shape.row) + byte, 0, 2);
        }
        const int64_t last = (kv - first_head + 1) * group;
        int64_t row = last - group;
        const auto state = [&](int64_t of) {
          return State{q + of * size, found + of * size, best + of, sums + of};
        };
        for (; row + 2 <= last; row += 2) block_of<N, SIZE, 2>(k, v, count, state(row), scores);
        for (; row < last; ++row) block_of<N, SIZE, 1>(k, v, count, state(row), scores);
      }
    }
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < size; ++i) found[row * size + i] /= sums[row];
    narrow(found, out + span.first * shape.heads * size + head * size, rows * size);
  }

  template <class M>
  void chunk(int64_t sequence, int64_t kv_head, int64_t tile, std::vector<char>& memory) const;
};

// A tile of a chunk's tokens for one KV head. Lanes are rows of the query matrix (tokens by heads of
// the group), so that the softmax needs nothing across lanes: this is bound by arithmetic.
template <class T>
template <class M>
void Attention<T>::chunk(int64_t sequence, int64_t kv_head, int64_t tile,
                         std::vector<char>& memory) const {
  using C = typename M::C;
  using E = typename M::E;
  using V = typename M::V;
  constexpr int N = M::kLanes, W = N * kWide, P = M::kValues;
  const int64_t size = shape.size, group = shape.group, line = shape.line;
  const Span span = spans[sequence];
  const int64_t tile_tokens = W / group, first = tile * tile_tokens;
  const int64_t tokens = std::min(tile_tokens, span.count - first);
  const int64_t first_position = span.start + first, last_position = first_position + tokens - 1;

  const int64_t sizes[] = {size * W, size / P * W, kKeys * W, kKeys / P * W, kKeys * size,
                           kKeys / P * size};
  int64_t bytes = 64;
  for (const int64_t each : sizes) bytes += (each * int64_t(sizeof(C)) + 63) / 64 * 64;
  if (int64_t(memory.size()) < bytes) memory.resize(bytes);
  char* free = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  const auto take = [&](int64_t each) {
    char* const at = free;
    free += (each * int64_t(sizeof(C)) + 63) / 64 * 64;
    return at;
  };
  auto* const found = reinterpret_cast<V*>(take(sizes[0]));    // [size, W]
  auto* const queries = reinterpret_cast<E*>(take(sizes[1]));  // [size / P, W]
  auto* const scores = reinterpret_cast<V*>(take(sizes[2]));   // [keys, W]
  auto* const weights = reinterpret_cast<E*>(take(sizes[3]));  // [keys / P, W]
  auto* const copies = reinterpret_cast<E*>(take(sizes[4]));   // [keys, size]
  auto* const values = reinterpret_cast<E*>(take(sizes[5]));   // [keys / P, size]

  std::memset(found, 0, size * W * sizeof(C));
  std::memset(queries, 0, size / P * W * sizeof(E));
  V positions[kWide], best[kWide], sums[kWide];
  for (int r = 0; r < W; ++r) positions[r / N][r % N] = static_cast<C>(last_position);
  for (int64_t r = 0; r < tokens * group; ++r) {
    const T* q = qkv + (span.first + first + r / group) * line + (kv_head * group + r % group) * size;
    for (int64_t s = 0; s < size / P; ++s) queries[s * W + r] = M::element(q + s * P);
    positions[r / N][r % N] = static_cast<C>(first_position + r / group);
  }
  for (int w = 0; w < kWide; ++w) {
    best[w] = V{} - std::numeric_limits<C>::infinity();
    sums[w] = V{};
  }

  for (int64_t from = 0; from <= last_position; from += kKeys) {
    const int count = std::min<int64_t>(kKeys, last_position + 1 - from);
    const T* k[kKeys];
    const T* v[kKeys];
    const E* rows[kKeys];
    for (int j = 0; j < kKeys; ++j) {
      // Beyond the last key is the last key again: hidden, but never another's garbage.
      k[j] = key(sequence, from + std::min(j, count - 1)) + kv_head * size;
      v[j] = k[j] + shape.block * shape.row;
    }
    for (int j = 0; j < kKeys; ++j) rows[j] = M::key(k[j], copies + j * size, size);
    const int used = (count + kRows - 1) / kRows * kRows;
    const bool masked = from + used - 1 > first_position;
    V most[kWide], shrink[kWide];
    for (int w = 0; w < kWide; ++w) most[w] = best[w];
    for (int j = 0; j < used; j += kRows) {
      V products[kRows][kWide]{};
      multiply<M>(rows + j, 1, queries, size / P, products);
      for (int i = 0; i < kRows; ++i) {
        for (int w = 0; w < kWide; ++w) {
          V score = products[i][w] * scale;
          if (masked) {
            const V at = V{} + static_cast<C>(from + j + i);
            score = at > positions[w] ? V{} - std::numeric_limits<C>::infinity() : score;
          }
          most[w] = maximum(most[w], score);
          scores[(j + i) * kWide + w] = score;
        }
      }
    }
    for (int w = 0; w < kWide; ++w) {
      shrink[w] = exponential<C, N>(best[w] - most[w]);
      best[w] = most[w];
      sums[w] *= shrink[w];
    }
    for (int j = 0; j < used; j += P) {
      for (int w = 0; w < kWide; ++w) {
        V pair[P];
        for (int p = 0; p < P; ++p) {
          pair[p] = exponential<C, N>(scores[(j + p) * kWide + w] - most[w]);
          sums[w] += pair[p];
        }
        M::weights(pair, weights + (j / P * kWide + w) * N);
      }
      M::value(v + j, values + j / P * size, size);
    }
    for (int64_t i = 0; i < size; i += kRows) {
      V products[kRows][kWide];
      const E* columns_of[kRows];
      for (int j = 0; j < kRows; ++j) {
        columns_of[j] = values + i + j;
        for (int w = 0; w < kWide; ++w) products[j][w] = found[(i + j) * kWide + w] * shrink[w];
      }
      multiply<M>(columns_of, size, weights, used / P, products);
      std::memcpy(found + i * kWide, products, sizeof products);
    }
  }

  for (int64_t r = 0; r < tokens * group; ++r) {
    const int64_t head = kv_head * group + r % group;
    T* to = out + ((span.first + first + r / group) * shape.heads + head) * size;
    const C by = 1 / sums[r / N][r % N];
    const C* column = reinterpret_cast<const C*>(found) + r;
    for (int64_t i = 0; i < size; ++i) to[i] = static_cast<T>(column[i * W] * by);
  }
}

// One task after the other to whichever thread is free.
template <class F>
void share(int64_t tasks, const F& run) {
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min<int64_t>(tasks, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    std::vector<char> memory;
    for (int64_t task = next++; task < tasks; task = next++) run(task, memory);
  });
}

struct Task {
  int64_t sequence, head, tile;
};

template <class T, class M>
void attend(const Tensor& qkv, const Tensor& pool, int64_t layer, const Tensor& spans,
            const Tensor& table, const Shape& shape, Tensor& out) {
  Attention<T> attention{shape,
                         qkv.const_data_ptr<T>(),
                         pool.const_data_ptr<T>(),
                         out.mutable_data_ptr<T>(),
                         layer,
                         Computed<T>(1 / std::sqrt(double(shape.size))),
                         reinterpret_cast<const Span*>(spans.const_data_ptr<int64_t>()),
                         table.const_data_ptr<int64_t>(),
                         table.size(1)};
  constexpr int N = kLanes<T>;
  const int64_t rows = N * kWide, sequences = spans.size(0);
  int64_t singles = 0;
  for (int64_t i = 0; i < sequences; ++i) singles += attention.spans[i].count == 1;
  // Few sequences are split by heads, so that every thread has work.
  const int64_t parts = std::min(shape.kv_heads, 1 + 2 * at::get_num_threads() / (1 + singles));
  const int64_t heads = (shape.kv_heads + parts - 1) / parts;
  std::vector<Task> tasks;
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t count = attention.spans[i].count;
    if (count == 1) {
      for (int64_t head = 0; head < shape.kv_heads; head += heads) tasks.push_back({i, head, -1});
      continue;
    }
    // The last tiles see the most keys: first, so that no thread ends long after the others.
    for (int64_t tile = (count - 1) / (rows / shape.group); tile >= 0; --tile)
      for (int64_t head = 0; head < shape.kv_heads; ++head) tasks.push_back({i, head, tile});
  }
  share(tasks.size(), [&](int64_t number, std::vector<char>& memory) {
    const Task task = tasks[number];
    if (task.tile >= 0) {
      attention.template chunk<M>(task.sequence, task.head, task.tile, memory);
      return;
    }
    const int64_t last = std::min(task.head + heads, shape.kv_heads);
    if (shape.size == 64)
      attention.template single<N, 64>(task.sequence, task.head, last);
    else if (shape.size == 128)
      attention.template single<N, 128>(task.sequence, task.head, last);
    else if (shape.size % N == 0)
      attention.template single<N, 0>(task.sequence, task.head, last);
    else
      attention.template single<8, 0>(task.sequence, task.head, last);
  });
}

}  // namespace
