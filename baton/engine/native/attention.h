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

// Room for one task's matrices, kept from task to task.
class Scratch {
 public:
  void begin() { used_ = 0; }

  // `count` values of type E, aligned to 64 bytes; good until the next `begin`.
  template <class E>
  E* take(int64_t count) {
    const size_t bytes = (count * sizeof(E) + 63) / 64 * 64;
    if (used_ == parts_.size()) parts_.emplace_back();
    auto& part = parts_[used_++];
    if (part.size() < bytes + 64) part.assign(bytes + 64, 0);
    const auto at = reinterpret_cast<uintptr_t>(part.data());
    return reinterpret_cast<E*>((at + 63) / 64 * 64);
  }

 private:
  std::vector<std::vector<char>> parts_;
  size_t used_ = 0;
};

// Fetches what is read next into the second cache, a few lines between computations: where one core
// has few misses under way, memory's own prefetching must be led.
class Prefetch {
 public:
  void add(const void* from, int64_t bytes) {
    if (runs_ < kRuns) run_[runs_++] = {static_cast<const char*>(from), bytes};
  }
  INLINE void lines(int64_t count) {
    if (at_ == runs_) return;
    auto& run = run_[at_];
    const int64_t some = std::min(count * 64, run.bytes);
    for (int64_t byte = 0; byte < some; byte += 64) __builtin_prefetch(run.from + byte, 0, 2);
    run.from += some;
    run.bytes -= some;
    at_ += run.bytes <= 0;
  }

 private:
  static constexpr int kRuns = 2 * kKeys;
  struct {
    const char* from;
    int64_t bytes;
  } run_[kRuns];
  int runs_ = 0, at_ = 0;
};

// Attention of each row, a token's head, is a function of its query and of the keys and values before
// it, in bits: of 64 keys at a time, by their positions, one score is a sum over the head in order, and
// each sum over keys goes in order. `single` and `chunk` differ in what lies in a vector's lanes only.
template <class T, class M>
struct Attention {
  using C = typename M::C;
  using E = typename M::E;
  using V = typename M::V;
  static constexpr int N = M::kLanes, W = N * kWide, P = M::kValues;
  static constexpr C kHidden = -std::numeric_limits<C>::infinity();

  const Shape& shape;
  const T* qkv;
  const T* pool;
  T* out;
  int64_t layer;
  C scale;
  const Span* spans;
  const int64_t* table;
  int64_t columns;

  // Where the keys and values of `count` positions lie, from `from` on.
  void rows_of(int64_t sequence, int64_t from, int count, int64_t kv_head, const T** k,
               const T** v) const {
    const int64_t* page = table + sequence * columns + from / shape.block;
    int64_t at = from % shape.block;
    const T* row = pool + shape.keys(*page, layer) + at * shape.row + kv_head * shape.size;
    for (int j = 0; j < count; ++j) {
      if (at == shape.block) {
        row = pool + shape.keys(*++page, layer) + kv_head * shape.size;
        at = 0;
      }
      k[j] = row;
      v[j] = row + shape.block * shape.row;
      row += shape.row;
      ++at;
    }
  }

  // The same of a whole block of keys. Beyond the last is the last again: hidden, but never another's
  // garbage.
  void block_of(int64_t sequence, int64_t from, int count, int64_t kv_head, const T** k,
                const T** v) const {
    rows_of(sequence, from, count, kv_head, k, v);
    for (int j = count; j < kKeys; ++j) k[j] = k[count - 1], v[j] = v[count - 1];
  }

  // A head's share of the keys and values of a block, by which all heads fetch all of it in order.
  Prefetch share_of(int64_t sequence, int64_t from, int64_t last, int64_t kv_head) const {
    Prefetch next;
    const int64_t bytes = shape.block * shape.row * sizeof(T), lines = bytes / 64;
    const int64_t line = lines * kv_head / shape.kv_heads * 64;
    const int64_t share = lines * (kv_head + 1) / shape.kv_heads * 64 - line;
    const int64_t* const pages = table + sequence * columns;
    const int64_t beyond = std::min(from + kKeys, last + 1);
    for (int64_t page = from / shape.block; page * shape.block < beyond && share; ++page) {
      const T* const keys = pool + shape.keys(pages[page], layer);
      const auto* const k = reinterpret_cast<const char*>(keys);
      next.add(k + line, share);
      next.add(k + bytes + line, share);
    }
    return next;
  }

  // Keys as columns: word s of key t at [t / W][s][t % W].
  void columns_of(const E* const* rows, int64_t words, int count, E* to, Prefetch& next) const {
    for (int t = 0; t < count; t += N)
      for (int64_t s = 0; s < words; s += N) {
        const int64_t some = std::min<int64_t>(N, words - s);
        typename Simd<E, N>::V tile[N];
        if (some == N) {
#pragma GCC unroll 16
          for (int i = 0; i < N; ++i) std::memcpy(&tile[i], rows[t + i] + s, sizeof tile[i]);
        } else {
          for (int i = 0; i < N; ++i) {
            tile[i] = typename Simd<E, N>::V{};
            std::memcpy(&tile[i], rows[t + i] + s, some * sizeof(E));
          }
        }
        transpose<E, N>(tile);
        next.lines(16);
        E* const at = to + (t / W * words + s) * W + t % W;
        for (int64_t i = 0; i < some; ++i) std::memcpy(at + i * W, &tile[i], sizeof tile[i]);
      }
  }

  // A softmax over blocks of keys, of rows whose scores lie side by side by key.
  template <int ROWS>
  void rows_block(const E* const* queries, const E* keys, const E* values, int count,
                  int64_t words, int64_t lanes, C* found, C* best, C* sums, C* scores,
                  E* weights) const {
    const int used = (count + P - 1) / P * P;
    const E* of_row[ROWS];
    C shrink[ROWS];
    for (int first = 0; first < used; first += W) {
      V products[ROWS][kWide]{};
      multiply<M, ROWS>(queries, 1, keys + first * words, W, words, products);
      for (int r = 0; r < ROWS; ++r)
        for (int w = 0; w < kWide; ++w) {
          const V score = products[r][w] * scale;
          std::memcpy(scores + r * kKeys + first + w * N, &score, sizeof score);
        }
    }
    for (int r = 0; r < ROWS; ++r) {
      C* const own = scores + r * kKeys;
      for (int t = count; t < kKeys; ++t) own[t] = kHidden;
      C most = best[r];
      for (int t = 0; t < count; ++t) most = std::max(most, own[t]);
      const V by = exponential<C, N>(V{} + best[r] - most);
      shrink[r] = by[0];
      best[r] = most;
      for (int t = 0; t < used; t += N) {
        V some;
        std::memcpy(&some, own + t, sizeof some);
        some = exponential<C, N>(some - most);
        std::memcpy(own + t, &some, sizeof some);
      }
      M::narrow_weights(own, weights + r * kKeys, used);
      of_row[r] = weights + r * kKeys;
    }
    C some[ROWS];
    for (int r = 0; r < ROWS; ++r) some[r] = sums[r] * shrink[r];
    for (int t = 0; t < used; ++t)
      for (int r = 0; r < ROWS; ++r) some[r] += scores[r * kKeys + t];
    for (int r = 0; r < ROWS; ++r) sums[r] = some[r];
    for (int64_t i = 0; i < lanes; i += W) {
      V products[ROWS][kWide];
      for (int r = 0; r < ROWS; ++r)
        for (int w = 0; w < kWide; ++w) {
          std::memcpy(&products[r][w], found + r * lanes + i + w * N, sizeof(V));
          products[r][w] *= shrink[r];
        }
      multiply<M, ROWS>(of_row, 1, values + i, lanes, used / P, products);
      for (int r = 0; r < ROWS; ++r)
        for (int w = 0; w < kWide; ++w)
          std::memcpy(found + r * lanes + i + w * N, &products[r][w], sizeof(V));
    }
  }

  // A sequence's single token for KV heads [first_head, last_head). Lanes are keys, then values of a
  // head, so that KV is read once and in order: this is bound by memory.
  void single(int64_t sequence, int64_t first_head, int64_t last_head, Scratch& scratch) const {
    const int64_t size = shape.size, group = shape.group, words = size / P;
    const int64_t heads = last_head - first_head, rows = heads * group;
    const int64_t lanes = (size + W - 1) / W * W;
    const Span span = spans[sequence];
    scratch.begin();
    C* const found = scratch.take<C>(rows * lanes);
    E* const queries = scratch.take<E>(rows * words);
    C* const best = scratch.take<C>(rows);
    C* const sums = scratch.take<C>(rows);
    E* const keys = scratch.take<E>(kKeys * words);
    E* const copies = scratch.take<E>(kKeys * size);
    E* const values = scratch.take<E>(kKeys / P * lanes);
    C* const scores = scratch.take<C>(kRows * kKeys);
    E* const weights = scratch.take<E>(kRows * kKeys);
    const T* const q = qkv + span.first * shape.line + first_head * group * size;
    for (int64_t i = 0; i < rows * words; ++i) queries[i] = M::element(q + i * P);
    std::memset(found, 0, rows * lanes * sizeof(C));
    std::memset(values, 0, kKeys / P * lanes * sizeof(E));
    std::fill(best, best + rows, kHidden);
    std::fill(sums, sums + rows, C(0));
    const int64_t last = span.start;
    for (int64_t from = 0; from <= last; from += kKeys) {
      const int count = std::min<int64_t>(kKeys, last + 1 - from);
      const int used = (count + P - 1) / P * P;
      for (int64_t head = 0; head < heads; ++head) {
        const T *k[kKeys], *v[kKeys];
        const E* of_key[kKeys];
        block_of(sequence, from, count, first_head + head, k, v);
        Prefetch next = share_of(sequence, from + kKeys, last, first_head + head);
        for (int j = 0; j < (count + N - 1) / N * N; ++j)
          of_key[j] = M::key(k[j], copies + j * size, size);
        columns_of(of_key, words, count, keys, next);
        for (int j = 0; j < used; j += P) {
          M::value(v + j, values + j / P * lanes, size);
          next.lines(8);
        }
        for (int64_t row = head * group; row < (head + 1) * group;) {
          const E* of_row[kRows];
          const int some = std::min<int64_t>(kRows, (head + 1) * group - row);
          for (int r = 0; r < some; ++r) of_row[r] = queries + (row + r) * words;
          const auto run = [&](auto count_of) {
            rows_block<decltype(count_of)::value>(of_row, keys, values, count, words, lanes,
                                                  found + row * lanes, best + row, sums + row,
                                                  scores, weights);
          };
          if (some == 4) run(std::integral_constant<int, 4>());
          else if (some == 3) run(std::integral_constant<int, 3>());
          else if (some == 2) run(std::integral_constant<int, 2>());
          else run(std::integral_constant<int, 1>());
          row += some;
        }
      }
    }
    T* const to = out + (span.first * shape.heads + first_head * group) * size;
    for (int64_t row = 0; row < rows; ++row) {
      const C by = 1 / sums[row];
      for (int64_t i = 0; i < size; ++i)
        to[row * size + i] = static_cast<T>(found[row * lanes + i] * by);
    }
  }

  void chunk(int64_t sequence, int64_t kv_head, int64_t tile, Scratch& scratch) const;
};

// A tile of a chunk's tokens for one KV head. Lanes are rows of the query matrix (tokens by heads of
// the group), so that the softmax needs nothing across lanes: this is bound by arithmetic.
template <class T, class M>
void Attention<T, M>::chunk(int64_t sequence, int64_t kv_head, int64_t tile,
                            Scratch& scratch) const {
  const int64_t size = shape.size, group = shape.group, line = shape.line;
  const Span span = spans[sequence];
  const int64_t tile_tokens = W / group, first = tile * tile_tokens;
  const int64_t tokens = std::min(tile_tokens, span.count - first);
  const int64_t first_position = span.start + first, last_position = first_position + tokens - 1;
  scratch.begin();
  V* const found = scratch.take<V>(size * kWide);
  E* const queries = scratch.take<E>(size / P * W);
  V* const scores = scratch.take<V>(kKeys * kWide);
  E* const weights = scratch.take<E>(kKeys / P * W);
  E* const copies = scratch.take<E>(kKeys * size);
  E* const values = scratch.take<E>(kKeys / P * size);

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
    const T *k[kKeys], *v[kKeys];
    const E* rows[kKeys];
    block_of(sequence, from, count, kv_head, k, v);
    for (int j = 0; j < kKeys; ++j) rows[j] = M::key(k[j], copies + j * size, size);
    const int used = (count + kRows - 1) / kRows * kRows;
    const bool masked = from + used - 1 > first_position;
    V most[kWide], shrink[kWide];
    for (int w = 0; w < kWide; ++w) most[w] = best[w];
    for (int j = 0; j < used; j += kRows) {
      V products[kRows][kWide]{};
      multiply<M>(rows + j, 1, queries, W, size / P, products);
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
      const E* value_of[kRows];
      for (int j = 0; j < kRows; ++j) {
        value_of[j] = values + i + j;
        for (int w = 0; w < kWide; ++w) products[j][w] = found[(i + j) * kWide + w] * shrink[w];
      }
      multiply<M>(value_of, size, weights, W, used / P, products);
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
    Scratch scratch;
    for (int64_t task = next++; task < tasks; task = next++) run(task, scratch);
  });
}

struct Task {
  int64_t sequence, head, tile;
};

template <class T, class M>
void attend(const Tensor& qkv, const Tensor& pool, int64_t layer, const Tensor& spans,
            const Tensor& table, const Shape& shape, Tensor& out) {
  Attention<T, M> attention{shape,
                         qkv.const_data_ptr<T>(),
                         pool.const_data_ptr<T>(),
                         out.mutable_data_ptr<T>(),
                         layer,
                         typename M::C(1 / std::sqrt(double(shape.size))),
                         reinterpret_cast<const Span*>(spans.const_data_ptr<int64_t>()),
                         table.const_data_ptr<int64_t>(),
                         table.size(1)};
  const int64_t rows = M::kLanes * kWide, sequences = spans.size(0);
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
  share(tasks.size(), [&](int64_t number, Scratch& scratch) {
    const Task task = tasks[number];
    if (task.tile >= 0)
      attention.chunk(task.sequence, task.head, task.tile, scratch);
    else
      attention.single(task.sequence, task.head, std::min(task.head + heads, shape.kv_heads),
                       scratch);
  });
}

}  // namespace
