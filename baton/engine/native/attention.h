// Attention over paged KV: single tokens (decode), and tiles of a chunk's tokens (prefill).
#pragma once

#include "rows.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int kRows = 4;   // rows multiplied at once
constexpr int kKeys = 64;  // keys between two rescalings

// One sequence of the batch: `count` tokens from line `first` on, at positions from `start` on.
struct Span {
  int64_t first, count, start;
};

// What makes scores of products of queries and keys, and weights of scores.
struct Scores {
  double scale;
  int64_t window;  // of its last keys, its own included, does a row see so many; 0: all
  double softcap;  // bound of scores; 0: none
  std::optional<Tensor> sinks;  // [heads]: scores of one more key each, whose value is zero

  // Whether it is more than a product.
  bool special() const { return window || softcap != 0 || sinks; }
};

// Attention of each row, a token's head, is a function of its query and of the keys and values before
// it, in bits. Of 64 keys at a time, by their positions: a score is a sum over the head in order, weights
// are powers of two, a sum of weights takes 16 neighbours at a time as a tree, and a sum of values goes
// over the keys in order. `single` and `chunk` differ in what lies in a vector's lanes only.
template <class T>
struct Attention {
  using M = Multiply<T>;
  using C = typename M::C;
  using E = typename M::E;
  using V = typename M::V;
  static constexpr int N = M::N, W = N * kWide, P = M::P;
  static constexpr int kVectors = kKeys / N, kGroups = kKeys / kGroup;
  static constexpr C kHidden = -std::numeric_limits<C>::infinity();
  // Of a row that has seen no key: less than any score, and a number, so that what is hidden weighs nothing.
  static constexpr C kLeast = std::numeric_limits<C>::lowest() / 4;

  const Shape& shape;
  const T* qkv;
  const T* pool;
  T* out;
  int64_t layer;
  C scale;  // of scores, as logarithms to the base of two
  const Span* spans;
  const int64_t* table;
  int64_t columns;
  int64_t window;  // see Scores
  C softcap, steepness;  // a score is softcap · tanh(steepness / 2 · product)
  std::vector<C> sinks;  // in the unit of scores

  // The first position that a row at this one sees.
  int64_t first_key(int64_t position) const {
    return window ? std::max<int64_t>(0, position + 1 - window) : 0;
  }
  // Where the 64 keys begin that have it: what is taken together is a matter of positions alone.
  int64_t first_block(int64_t position) const { return first_key(position) / kKeys * kKeys; }

  INLINE V capped(V score) const {
    const V power = exponential<C, N>(score * steepness);
    return softcap * (1 - 2 / (1 + power));
  }

  // Where the first head's K and V of 64 positions lie, 16 by 16.
  struct Keys {
    const E *keys[kGroups], *values[kGroups];
  };

  // Of positions from `from` on. Beyond the last's 16 are the same again: hidden, but never another's.
  Keys keys_of(int64_t sequence, int64_t from, int64_t last, int64_t kv_head) const {
    const auto* const words = reinterpret_cast<const E*>(pool);
    const int64_t* const pages = table + sequence * columns;
    Keys found;
    for (int g = 0; g < kGroups; ++g) {
      const int64_t position = std::min(from + g * kGroup, last / kGroup * kGroup);
      const int64_t at = position % shape.block;
      const int64_t part = shape.keys(pages[position / shape.block], layer) + shape.head(kv_head);
      found.keys[g] = words + part / P + at;
      found.values[g] = words + (part + shape.block * shape.row) / P + at / P * shape.size;
    }
    return found;
  }

  static INLINE V weight(V score, C factor, V base) {
    return power_of_two<C, N>(fused<C, N>(score, V{} + factor, -base));
  }
  // Exactly one where the best is the same: blocks of keys that a row does not see change nothing.
  static INLINE V shrink_by(V best, C factor, V most) {
    return power_of_two<C, N>((best - most) * factor);
  }
  static INLINE V sum(V a, V b) { return a + b; }

  // What a row of `single` has come to.
  struct Row {
    C best, sum;
  };

  // ROWS queries with the keys and values of a head, `offset` words beyond the first head's. Lanes are
  // keys, then values of the head. What is read next is fetched meanwhile.
  template <int ROWS>
  void rows_block(const E* queries, const Keys& here, const Keys& next, int64_t offset, int hidden,
                  int count, C* found, int64_t lanes, Row* rows, E* weights) const {
    const int64_t size = shape.size, words = size / P;
    V scores[ROWS][kVectors];
#pragma GCC unroll 2
    for (int first = 0; first < kVectors; first += kAtOnce) {
      V products[ROWS][kAtOnce]{};
      const auto at = [&](const E* const* keys, int w) {
        const int key = (first + w) * N;
        return keys[key / kGroup] + offset + key % kGroup;
      };
      multiply<M, ROWS, kAtOnce>(
          words, words, [&](int64_t) { return queries; }, words, 1,
          [&](int64_t, int w) { return at(here.keys, w); }, shape.block, products,
          [&](int64_t, int w) { return at(next.keys, w); });
      for (int r = 0; r < ROWS; ++r)
        for (int w = 0; w < kAtOnce; ++w) scores[r][first + w] = products[r][w];
    }
    V shrink[ROWS];
    const bool bounded = softcap != 0;
    for (int r = 0; r < ROWS; ++r) {
      V most = V{} + rows[r].best;
      for (int v = 0; v < kVectors; ++v) {
        if (bounded) scores[r][v] = capped(scores[r][v]);
        for (int t = 0; t < std::min(N, hidden - v * N); ++t) scores[r][v][t] = kHidden;
        for (int t = std::max(0, count - v * N); t < N; ++t) scores[r][v][t] = kHidden;
        most = maximum(most, scores[r][v]);
      }
      most = fold<C, N>(most, [](V a, V b) { return maximum(a, b); });
      const V base = most * scale;
      shrink[r] = shrink_by(V{} + rows[r].best, scale, most);
      C total = rows[r].sum * shrink[r][0];
      for (int v = 0; v < kVectors; ++v) scores[r][v] = weight(scores[r][v], scale, base);
      for (int g = 0; g < kGroups; ++g) {
        C tree = 0;
        for (int v = g * kVectors / kGroups; v < (g + 1) * kVectors / kGroups; ++v)
          tree += fold<C, N>(scores[r][v], sum)[0];
        total += tree;
      }
      rows[r] = {most[0], total};
      for (int v = 0; v < kVectors; v += P) M::row(&scores[r][v], weights + r * kKeys / P + v / P * N);
    }
    const int64_t steps = (count + P - 1) / P;
    const auto add = [&](auto wide, int64_t i, const auto& values_of, int64_t stride,
                         const auto& ahead) {
      constexpr int kSome = decltype(wide)::value;
      V products[ROWS][kSome];
      for (int r = 0; r < ROWS; ++r)
        for (int w = 0; w < kSome; ++w) {
          std::memcpy(&products[r][w], found + r * lanes + i + w * N, sizeof(V));
          products[r][w] *= shrink[r];
        }
      multiply<M, ROWS, kSome>(
          steps, kGroup / P, [&](int64_t g) { return weights + g * (kGroup / P); }, kKeys / P, 1,
          values_of, stride, products, ahead);
      for (int r = 0; r < ROWS; ++r)
        for (int w = 0; w < kSome; ++w)
          std::memcpy(found + r * lanes + i + w * N, &products[r][w], sizeof(V));
    };
    int64_t i = 0;
    for (; i + N <= size;) {
      const int64_t some = std::min<int64_t>(kAtOnce, (size - i) / N);
      with_count<kAtOnce>(some, [&](auto wide) {
        const int64_t at = offset + i;
        add(
            wide, i, [&](int64_t g, int w) { return here.values[g] + at + w * N; }, size,
            [&](int64_t g, int w) { return next.values[g] + at + w * N; });
      });
      i += some * N;
    }
    if (i < size) {  // less than a vector: nothing beyond the head is read
      alignas(64) E tail[kKeys / P * N]{};
      for (int64_t s = 0; s < steps; ++s)
        std::memcpy(tail + s * N, here.values[s * P / kGroup] + offset + s % (kGroup / P) * size + i,
                    (size - i) * sizeof(E));
      add(
          std::integral_constant<int, 1>(), i,
          [&](int64_t g, int) { return tail + g * (kGroup / P) * N; }, N, nullptr);
    }
  }

  // A sequence's single token for KV heads [first_head, last_head): KV is read once and in order. What
  // is read behind it begins at `after`'s first head.
  void single(int64_t sequence, int64_t first_head, int64_t last_head, int64_t after,
              int64_t after_head, Scratch& scratch) const {
    const int64_t size = shape.size, group = shape.group, words = size / P;
    const int64_t heads = last_head - first_head, count = heads * group;
    const int64_t lanes = (size + N - 1) / N * N;
    const Span span = spans[sequence];
    scratch.begin();
    C* const found = scratch.take<C>(count * lanes);
    E* const queries = scratch.take<E>(count * words);
    Row* const rows = scratch.take<Row>(count);
    E* const weights = scratch.take<E>(kRows * kKeys);
    std::memcpy(queries, qkv + span.first * shape.line + first_head * group * size,
                count * size * sizeof(T));
    std::memset(found, 0, count * lanes * sizeof(C));
    for (int64_t row = 0; row < count; ++row)
      rows[row] = sinks.empty() ? Row{kLeast, 0} : Row{sinks[first_head * group + row], 1};
    const int64_t last = span.start, low = first_key(last);
    Keys next = keys_of(sequence, first_block(last), last, first_head);
    for (int64_t from = first_block(last); from <= last; from += kKeys) {
      const int keys = std::min<int64_t>(kKeys, last + 1 - from);
      const Keys here = next;
      const bool ends = from + kKeys > last;
      next = ends ? keys_of(after, first_block(spans[after].start), spans[after].start, after_head)
                  : keys_of(sequence, from + kKeys, last, first_head);
      const int hidden = std::max<int64_t>(0, low - from);
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t row = head * group; row < (head + 1) * group;) {
          const int64_t some = std::min<int64_t>(kRows, (head + 1) * group - row);
          with_count<kRows>(some, [&](auto some) {
            rows_block<decltype(some)::value>(queries + row * words, here, next,
                                              shape.head(head) / P, hidden, keys, found + row * lanes,
                                              lanes, rows + row, weights);
          });
          row += some;
        }
    }
    T* const to = out + (span.first * shape.heads + first_head * group) * size;
    for (int64_t row = 0; row < count; ++row) {
      const C by = 1 / rows[row].sum;
      for (int64_t i = 0; i < size; ++i)
        to[row * size + i] = static_cast<T>(found[row * lanes + i] * by);
    }
  }

  void chunk(int64_t sequence, int64_t kv_head, int64_t tile, Scratch& scratch) const;

  // Weights of COUNT neighbouring keys of a vector of rows, as words of P keys; their sum, as a tree.
  template <int COUNT>
  static INLINE V weigh(const V* scores, C factor, V base, E* weights) {
    if constexpr (COUNT == P) {
      V some[P];
      for (int p = 0; p < P; ++p) some[p] = weight(scores[p * kWide], factor, base);
      M::words(some, weights);
      if constexpr (P == 1) return some[0];
      else return some[0] + some[1];
    } else {
      constexpr int kHalf = COUNT / 2;
      const V low = weigh<kHalf>(scores, factor, base, weights);
      return low + weigh<kHalf>(scores + kHalf * kWide, factor, base, weights + kHalf / P * W);
    }
  }
};

// A tile of a chunk's tokens for one KV head. Lanes are rows of the query matrix (tokens by heads of
// the group), so that the softmax needs nothing across lanes: this is bound by arithmetic.
template <class T>
void Attention<T>::chunk(int64_t sequence, int64_t kv_head, int64_t tile, Scratch& scratch) const {
  const int64_t size = shape.size, group = shape.group, line = shape.line, words = size / P;
  const Span span = spans[sequence];
  const int64_t tile_tokens = W / group, first = tile * tile_tokens;
  const int64_t tokens = std::min(tile_tokens, span.count - first);
  const int64_t first_position = span.start + first, last_position = first_position + tokens - 1;
  scratch.begin();
  V* const found = scratch.take<V>(size * kWide);
  E* const queries = scratch.take<E>(words * W);
  V* const scores = scratch.take<V>(kKeys * kWide);
  E* const weights = scratch.take<E>(kKeys / P * W);

  std::memset(found, 0, size * W * sizeof(C));
  std::memset(queries, 0, words * W * sizeof(E));
  V positions[kWide], best[kWide], sums[kWide];
  for (int r = 0; r < W; ++r) positions[r / N][r % N] = static_cast<C>(last_position);
  for (int64_t r = 0; r < tokens * group; ++r) {
    const T* q = qkv + (span.first + first + r / group) * line + (kv_head * group + r % group) * size;
    for (int64_t s = 0; s < words; ++s) std::memcpy(queries + s * W + r, q + s * P, sizeof(E));
    positions[r / N][r % N] = static_cast<C>(first_position + r / group);
  }
  for (int w = 0; w < kWide; ++w) {
    best[w] = V{} + kLeast;
    sums[w] = V{};
  }
  for (int64_t r = 0; r < (sinks.empty() ? 0 : tokens * group); ++r) {
    best[r / N][r % N] = sinks[kv_head * group + r % group];
    sums[r / N][r % N] = 1;
  }

  for (int64_t from = first_block(first_position); from <= last_position; from += kKeys) {
    const int count = std::min<int64_t>(kKeys, last_position + 1 - from);
    const Keys here = keys_of(sequence, from, last_position, kv_head);
    const int used = (count + kGroup - 1) / kGroup * kGroup;
    const bool masked = from + used - 1 > first_position;
    const bool behind = from < first_key(last_position);  // keys that some rows no longer see
    const bool bounded = softcap != 0;
    V most[kWide], base[kWide], shrink[kWide];
    for (int w = 0; w < kWide; ++w) most[w] = best[w];
    for (int j = 0; j < used; j += kRows) {
      for (int v = 0; v < kWide; v += kAtOnce) {
        V products[kRows][kAtOnce]{};
        multiply<M, kRows, kAtOnce>(
            words, words, [&](int64_t) { return here.keys[j / kGroup] + j % kGroup; }, 1,
            shape.block, [&](int64_t, int w) { return queries + (v + w) * N; }, W, products,
            nullptr);
        for (int i = 0; i < kRows; ++i) {
          for (int w = v; w < v + kAtOnce; ++w) {
            V score = products[i][w - v];
            if (bounded) score = capped(score);
            if (masked) {
              const V at = V{} + static_cast<C>(from + j + i);
              score = at > positions[w] ? V{} + kHidden : score;
            }
            if (behind) {
              const V at = V{} + static_cast<C>(from + j + i + window);
              score = at <= positions[w] ? V{} + kHidden : score;
            }
            most[w] = maximum(most[w], score);
            scores[(j + i) * kWide + w] = score;
          }
        }
      }
    }
    for (int w = 0; w < kWide; ++w) {
      base[w] = most[w] * scale;
      shrink[w] = shrink_by(best[w], scale, most[w]);
      best[w] = most[w];
      sums[w] *= shrink[w];
    }
    for (int j = 0; j < used; j += kGroup)
      for (int w = 0; w < kWide; ++w)
        sums[w] += weigh<kGroup>(scores + j * kWide + w, scale, base[w],
                                 weights + (j / P * kWide + w) * N);
    for (int64_t i = 0; i < size; i += kRows) {
      for (int v = 0; v < kWide; v += kAtOnce) {
        V products[kRows][kAtOnce];
        V* const at = found + i * kWide + v;
        for (int j = 0; j < kRows; ++j)
          for (int w = 0; w < kAtOnce; ++w) products[j][w] = at[j * kWide + w] * shrink[v + w];
        multiply<M, kRows, kAtOnce>(
            (count + P - 1) / P, kGroup / P, [&](int64_t g) { return here.values[g] + i; }, 1, size,
            [&](int64_t g, int w) { return weights + g * (kGroup / P) * W + (v + w) * N; }, W,
            products, nullptr);
        for (int j = 0; j < kRows; ++j)
          for (int w = 0; w < kAtOnce; ++w) at[j * kWide + w] = products[j][w];
      }
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

struct Task {
  int64_t sequence, head, tile;
};

template <class T>
Attention<T> attention_of(const Tensor& qkv, const Tensor& pool, int64_t layer, const Tensor& spans,
                          const Tensor& table, const Shape& shape, const Scores& scores,
                          Tensor& out) {
  using C = typename Attention<T>::C;
  constexpr double kLog2E = 1.4426950408889634;
  const double rest = scores.softcap != 0 ? 1 : scores.scale;  // a capped score is scaled already
  std::vector<C> sinks = widened<T>(scores.sinks);
  for (C& sink : sinks) sink /= rest;
  return {shape,
          qkv.const_data_ptr<T>(),
          pool.const_data_ptr<T>(),
          out.mutable_data_ptr<T>(),
          layer,
          C(kLog2E * rest),
          reinterpret_cast<const Span*>(spans.const_data_ptr<int64_t>()),
          table.const_data_ptr<int64_t>(),
          table.size(1),
          scores.window,
          C(scores.softcap),
          C(scores.softcap != 0 ? 2 * scores.scale / scores.softcap : 0),
          std::move(sinks)};
}

template <class T>
void attend_vectors(const Tensor& qkv, const Tensor& pool, int64_t layer, const Tensor& spans,
                    const Tensor& table, const Shape& shape, const Scores& scores, Tensor& out) {
  using A = Attention<T>;
  const A attention = attention_of<T>(qkv, pool, layer, spans, table, shape, scores, out);
  const int64_t rows = A::W, sequences = spans.size(0);
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
  const int64_t count = tasks.size();
  share(count, [&](int64_t number, int64_t following, Scratch& scratch) {
    const Task task = tasks[number], after = tasks[std::min(following, count - 1)];
    if (task.tile >= 0)
      attention.chunk(task.sequence, task.head, task.tile, scratch);
    else
      attention.single(task.sequence, task.head, std::min(task.head + heads, shape.kv_heads),
                       after.sequence, after.head, scratch);
  });
}

template <class T>
void attend(const Tensor& qkv, const Tensor& pool, int64_t layer, const Tensor& spans,
            const Tensor& table, const Shape& shape, const Scores& scores, Tensor& out) {
  attend_vectors<T>(qkv, pool, layer, spans, table, shape, scores, out);
}

}  // namespace
