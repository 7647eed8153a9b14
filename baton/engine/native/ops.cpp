// The torch engine's operators on a CPU: norms, gates, rotation, and attention over paged KV.
//
// Each does what its counterpart in baton/engine/kernels.py does, which is the reference. Vectors are
// the compiler's own (GCC and Clang), so the same source serves every CPU; one inner product also
// exists in AVX-512 BF16. Everything is computed in float, or in double where the model is.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

namespace {

using at::BFloat16;
using at::Tensor;

constexpr int64_t kGrain = 16384;  // values that are worth a thread

// N values of type T in memory, computed with as type C.
template <class T, int N>
struct Simd {
  using C = T;
  typedef C V __attribute__((vector_size(N * sizeof(C))));
  static INLINE V load(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  static INLINE void store(T* to, V v) { std::memcpy(to, &v, sizeof v); }
};

// Spelled out: where lanes are counted by a template's parameter, GCC cannot convert them.
template <int N>
struct Words;
template <>
struct Words<8> {
  typedef float V __attribute__((vector_size(32)));
  typedef uint32_t W __attribute__((vector_size(32)));
  typedef uint16_t H __attribute__((vector_size(16)));
};
template <>
struct Words<16> {
  typedef float V __attribute__((vector_size(64)));
  typedef uint32_t W __attribute__((vector_size(64)));
  typedef uint16_t H __attribute__((vector_size(32)));
};

template <int N>
struct Simd<BFloat16, N> : Words<N> {
  using C = float;
  using typename Words<N>::V;
  using typename Words<N>::W;
  using typename Words<N>::H;
  static INLINE V load(const BFloat16* from) { return (V)(words(from) << 16); }
  static INLINE W words(const BFloat16* from) {
    H half;
    std::memcpy(&half, from, sizeof half);
#ifdef __AVX512F__
    // GCC 12 takes the conversion of a whole vector to pieces.
    if constexpr (N == 16) return (W)_mm512_cvtepu16_epi32((__m256i)half);
#endif
    return __builtin_convertvector(half, W);
  }
  static INLINE W rounded(V v) {  // to nearest, ties to even; in the upper halves
    W bits = (W)v;
    return bits + 0x7FFF + ((bits >> 16) & 1);
  }
  static INLINE void store(BFloat16* to, V v) {
    const W words = rounded(v) >> 16;
#ifdef __AVX512F__
    if constexpr (N == 16) {
      const __m256i half = _mm512_cvtepi32_epi16((__m512i)words);
      std::memcpy(to, &half, sizeof half);
      return;
    }
#endif
    const H half = __builtin_convertvector(words, H);
    std::memcpy(to, &half, sizeof half);
  }
};

template <class T>
using Computed = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;
template <class T>
constexpr int kLanes = 64 / sizeof(Computed<T>);

template <class V>
INLINE V maximum(V a, V b) {
  return a > b ? a : b;
}

// The sum of a vector's N values.
template <int N, class C, class V>
INLINE C total(V v) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    typedef C Half __attribute__((vector_size(N / 2 * sizeof(C))));
    Half parts[2];
    std::memcpy(parts, &v, sizeof v);
    return total<N / 2, C>(parts[0] + parts[1]);
  }
}

// Adjacent pairs of a's values added, then of b's.
template <int N, class C, class V>
INLINE V fold(V a, V b) {
  typedef std::conditional_t<sizeof(C) == 4, int32_t, int64_t> I;
  typename Simd<I, N>::V even, odd;
  for (int i = 0; i < N; ++i) even[i] = 2 * i, odd[i] = 2 * i + 1;
  return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
}

// The sums of N vectors' values: one lane each.
template <int N, class C, class V>
INLINE V totals(V (&of)[N]) {
#pragma GCC unroll 4
  for (int count = N / 2; count >= 1; count /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) of[i] = fold<N, C>(of[2 * i], of[2 * i + 1]);
  return of[0];
}

template <class C, int N>
INLINE typename Simd<C, N>::V exponential(typename Simd<C, N>::V x) {
  using V = typename Simd<C, N>::V;
  if constexpr (std::is_same_v<C, double>) {
    V y;
    for (int i = 0; i < N; ++i) y[i] = std::exp(x[i]);
    return y;
  } else {
    // 2^n · e^r with |r| ≤ ln2 / 2 and e^r by its Taylor polynomial: within 2 units in the last place.
    typedef int32_t I __attribute__((vector_size(N * 4)));
    const V least = V{} - 87.0f, most = V{} + 88.0f;
    V bounded = x < least ? least : x;
    bounded = bounded > most ? most : bounded;
    const V magic = V{} + 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
    V n = bounded * 1.44269504088896341f + magic;
    I exponent = ((I)n - (I)magic + 127) << 23;
    n -= magic;
    V r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
    V y = V{} + 1.0f / 5040;
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    return x < least ? V{} : y * (V)exponent;
  }
}

// Copies of n values in the type that is computed with, and back.
template <class T>
void widen(const T* from, Computed<T>* to, int64_t n) {
  constexpr int N = kLanes<T>;
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    auto v = Simd<T, N>::load(from + i);
    std::memcpy(to + i, &v, sizeof v);
  }
  for (; i < n; ++i) to[i] = static_cast<Computed<T>>(from[i]);
}

template <class T>
void narrow(const Computed<T>* from, T* to, int64_t n) {
  constexpr int N = kLanes<T>;
  int64_t i = 0;
  for (; i + N <= n; i += N) Simd<T, N>::store(to + i, Simd<Computed<T>, N>::load(from + i));
  for (; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

// x[n] ← x / rms(x) · weight
template <class C>
void normalize(C* x, const C* weight, int64_t n, C epsilon) {
  constexpr int N = 64 / sizeof(C);
  typename Simd<C, N>::V sums{};
  int64_t i = 0;
  for (; i + N <= n; i += N) {
    auto v = Simd<C, N>::load(x + i);
    sums += v * v;
  }
  C sum = total<N, C>(sums);
  for (; i < n; ++i) sum += x[i] * x[i];
  const C by = 1 / std::sqrt(sum / static_cast<C>(n) + epsilon);
  for (i = 0; i < n; ++i) x[i] *= by * weight[i];
}

template <class T>
std::vector<Computed<T>> widened(const std::optional<Tensor>& from) {
  if (!from) return {};
  std::vector<Computed<T>> to(from->numel());
  widen(from->const_data_ptr<T>(), to.data(), from->numel());
  return to;
}

template <class T>
void add_norm(Tensor& hidden, const std::optional<Tensor>& delta, const Tensor& weight,
              double epsilon, Tensor& out) {
  const int64_t size = hidden.size(1);
  const auto by = widened<T>(weight);
  T* sums = hidden.mutable_data_ptr<T>();
  const T* added = delta ? delta->const_data_ptr<T>() : nullptr;
  T* to = out.mutable_data_ptr<T>();
  at::parallel_for(0, hidden.size(0), 1 + kGrain / size, [&](int64_t first, int64_t last) {
    std::vector<Computed<T>> x(size), y(size);
    for (int64_t row = first; row < last; ++row) {
      widen(sums + row * size, x.data(), size);
      if (added) {
        widen(added + row * size, y.data(), size);
        for (int64_t i = 0; i < size; ++i) x[i] += y[i];
        narrow(x.data(), sums + row * size, size);
        widen(sums + row * size, x.data(), size);
      }
      normalize<Computed<T>>(x.data(), by.data(), size, epsilon);
      narrow(x.data(), to + row * size, size);
    }
  });
}

template <class T>
void gate(const Tensor& both, Tensor& out) {
  using C = Computed<T>;
  constexpr int N = kLanes<T>;
  const int64_t size = out.size(1);
  const T* from = both.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  at::parallel_for(0, out.size(0), 1 + kGrain / size, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const T* gates = from + row * 2 * size;
      const T* values = gates + size;
      int64_t i = 0;
      for (; i + N <= size; i += N) {
        auto x = Simd<T, N>::load(gates + i);
        auto y = x / (1 + exponential<C, N>(-x)) * Simd<T, N>::load(values + i);
        Simd<T, N>::store(to + row * size + i, y);
      }
      for (; i < size; ++i) {
        const C x = static_cast<C>(gates[i]);
        to[row * size + i] = static_cast<T>(x / (1 + std::exp(-x)) * static_cast<C>(values[i]));
      }
    }
  });
}

// Where things lie in the pool [pages, layers, 2, block, kv_heads, size].
struct Shape {
  Shape(const Tensor& pool, int64_t heads)
      : layers(pool.size(1)), block(pool.size(3)), kv_heads(pool.size(4)), size(pool.size(5)),
        heads(heads), group(heads / kv_heads), row(kv_heads * size),
        line((heads + 2 * kv_heads) * size) {}
  int64_t layers, block, kv_heads, size, heads;
  int64_t group;  // query heads per KV head
  int64_t row;    // values of one token in a block
  int64_t line;   // values of one token in qkv
  int64_t keys(int64_t page, int64_t layer) const { return (page * layers + layer) * 2 * block * row; }
};

template <class T>
void rotate_store(Tensor& qkv, const Tensor& cosines, const Tensor& sines,
                  const std::optional<Tensor>& q_norm, const std::optional<Tensor>& k_norm,
                  double epsilon, Tensor& pool, const Tensor& slots, const Shape& shape) {
  using C = Computed<T>;
  const int64_t tokens = qkv.size(0), half = shape.size / 2;
  const auto q_weight = widened<T>(q_norm), k_weight = widened<T>(k_norm);
  T* lines = qkv.mutable_data_ptr<T>();
  T* kept = pool.mutable_data_ptr<T>();
  const T* cos_of = cosines.const_data_ptr<T>();
  const T* sin_of = sines.const_data_ptr<T>();
  const int64_t* slot = slots.const_data_ptr<int64_t>();
  at::parallel_for(0, tokens, 1 + kGrain / shape.line, [&](int64_t first, int64_t last) {
    std::vector<C> cosine(half), sine(half), x(shape.size), y(shape.size);
    for (int64_t token = first; token < last; ++token) {
      T* line = lines + token * shape.line;
      widen(cos_of + token * half, cosine.data(), half);
      widen(sin_of + token * half, sine.data(), half);
      for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
        T* at = line + head * shape.size;
        const auto& weight = head < shape.heads ? q_weight : k_weight;
        widen(at, x.data(), shape.size);
        if (!weight.empty()) normalize<C>(x.data(), weight.data(), shape.size, epsilon);
        for (int64_t i = 0; i < half; ++i) {
          y[i] = x[i] * cosine[i] - x[i + half] * sine[i];
          y[i + half] = x[i + half] * cosine[i] + x[i] * sine[i];
        }
        narrow(y.data(), at, shape.size);
      }
      const T* keys = line + shape.heads * shape.size;
      std::memcpy(kept + slot[token] * shape.row, keys, shape.row * sizeof(T));
      std::memcpy(kept + slot[tokens + token] * shape.row, keys + shape.row, shape.row * sizeof(T));
    }
  });
}

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

// Two ways to multiply: rows of one matrix, element by element, with lanes of another.

// One value per step.
template <class T>
struct Multiply {
  using C = Computed<T>;
  static constexpr int kLanes = 64 / sizeof(C);
  static constexpr int kValues = 1;
  using V = typename Simd<C, kLanes>::V;
  using E = C;
  typedef V L __attribute__((may_alias));
  static INLINE V add(V sum, E element, L lanes) { return sum + element * lanes; }
  static INLINE E element(const T* values) { return static_cast<C>(values[0]); }
  static INLINE const E* key(const T* values, E* copy, int64_t n) {
    widen(values, copy, n);
    return copy;
  }
  static INLINE void value(const T* const* rows, E* to, int64_t n) { widen(rows[0], to, n); }
  static INLINE void weights(const V* rows, E* to) { std::memcpy(to, rows, sizeof(V)); }
};

#ifdef __AVX512BF16__
// Two bfloat16 values per step, in the halves of one word.
struct Dot {
  using C = float;
  static constexpr int kLanes = 16;
  static constexpr int kValues = 2;
  using S = Simd<BFloat16, 16>;
  using V = S::V;
  using E = uint32_t;
  typedef S::W L __attribute__((may_alias));
  static INLINE V add(V sum, E element, L lanes) {
    return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)lanes, (__m512bh)_mm512_set1_epi32(element));
  }
  static INLINE E element(const BFloat16* values) {
    E pair;
    std::memcpy(&pair, values, sizeof pair);
    return pair;
  }
  static INLINE const E* key(const BFloat16* values, E*, int64_t) {
    return reinterpret_cast<const E*>(values);
  }
  static INLINE void value(const BFloat16* const* rows, E* to, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const S::W pairs = S::words(rows[0] + i) | S::words(rows[1] + i) << 16;
      std::memcpy(to + i, &pairs, sizeof pairs);
    }
    for (; i < n; ++i) to[i] = uint32_t(rows[0][i].x) | uint32_t(rows[1][i].x) << 16;
  }
  static INLINE void weights(const V* rows, E* to) {
    const S::W pairs = (S::rounded(rows[0]) >> 16) | (S::rounded(rows[1]) & 0xFFFF0000u);
    std::memcpy(to, &pairs, sizeof pairs);
  }
};
#endif

constexpr int kRows = 4;    // rows multiplied at once
constexpr int kWide = 4;    // vectors of lanes
constexpr int kKeys = 64;   // keys between two rescalings

// sums[j] += Σ_s rows[j][s · stride] · lanes[s]
template <class M>
INLINE void multiply(const typename M::E* const* rows,
                                                    int64_t stride, const typename M::E* lanes,
                                                    int64_t steps,
                                                    typename M::V (&sums)[kRows][kWide]) {
  // Names of their own keep them in registers.
  typename M::V held[kRows][kWide];
#pragma GCC unroll 4
  for (int j = 0; j < kRows; ++j)
#pragma GCC unroll 4
    for (int w = 0; w < kWide; ++w) held[j][w] = sums[j][w];
  for (int64_t s = 0; s < steps; ++s) {
    const auto* const by = reinterpret_cast<const typename M::L*>(lanes) + s * kWide;
#pragma GCC unroll 4
    for (int j = 0; j < kRows; ++j) {
      const auto element = rows[j][s * stride];
#pragma GCC unroll 4
      for (int w = 0; w < kWide; ++w) held[j][w] = M::add(held[j][w], element, by[w]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kRows; ++j)
#pragma GCC unroll 4
    for (int w = 0; w < kWide; ++w) sums[j][w] = held[j][w];
}

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

template <class F>
void by_type(const Tensor& of, const F& run) {
  switch (of.scalar_type()) {
    case at::kBFloat16: return run(BFloat16());
    case at::kFloat: return run(float());
    case at::kDouble: return run(double());
    default: TORCH_CHECK(false, "no operator for ", of.scalar_type());
  }
}

Tensor add_norm_op(Tensor& hidden, const std::optional<Tensor>& delta, const Tensor& weight,
                   double epsilon) {
  TORCH_CHECK(hidden.dim() == 2 && hidden.is_contiguous() && weight.numel() == hidden.size(1) &&
                  (!delta || (delta->is_contiguous() && delta->sizes() == hidden.sizes())),
              "add_norm: hidden and delta are [tokens, size], weight is [size]");
  Tensor out = at::empty(hidden.sizes(), hidden.options());
  by_type(hidden, [&](auto t) { add_norm<decltype(t)>(hidden, delta, weight, epsilon, out); });
  return out;
}

Tensor gate_op(const Tensor& both) {
  TORCH_CHECK(both.dim() == 2 && both.is_contiguous(), "gate: both is [tokens, 2 · size]");
  Tensor out = at::empty({both.size(0), both.size(1) / 2}, both.options());
  by_type(both, [&](auto t) { gate<decltype(t)>(both, out); });
  return out;
}

Tensor attend_op(Tensor& qkv, const Tensor& cosines, const Tensor& sines,
                 const std::optional<Tensor>& q_norm, const std::optional<Tensor>& k_norm,
                 double epsilon, Tensor& pool, int64_t layer, int64_t heads, const Tensor& slots,
                 const Tensor& spans, const Tensor& table) {
  TORCH_CHECK(pool.dim() == 6 && pool.is_contiguous() && pool.size(5) % 8 == 0 &&
                  heads % pool.size(4) == 0 && heads / pool.size(4) <= 32,
              "attend: pool is [pages, layers, 2, block, kv_heads, size], size a multiple of 8");
  const Shape shape(pool, heads);
  const int64_t tokens = qkv.size(0);
  TORCH_CHECK(qkv.is_contiguous() && qkv.dim() == 2 && qkv.size(1) == shape.line &&
                  cosines.is_contiguous() && cosines.numel() == tokens * shape.size / 2 &&
                  sines.is_contiguous() && sines.numel() == cosines.numel() &&
                  slots.is_contiguous() && slots.numel() == 2 * tokens && spans.is_contiguous() &&
                  spans.size(1) == 3 && table.is_contiguous() && table.size(0) == spans.size(0),
              "attend: the shapes do not go together");
  Tensor out = at::empty({tokens, heads * shape.size}, qkv.options());
  by_type(qkv, [&](auto t) {
    using T = decltype(t);
    rotate_store<T>(qkv, cosines, sines, q_norm, k_norm, epsilon, pool, slots, shape);
#ifdef __AVX512BF16__
    using M = std::conditional_t<std::is_same_v<T, BFloat16>, Dot, Multiply<T>>;
#else
    using M = Multiply<T>;
#endif
    attend<T, M>(qkv, pool, layer, spans, table, shape, out);
  });
  return out;
}

}  // namespace

TORCH_LIBRARY(baton_native, library) {
  library.def("add_norm(Tensor(a!) hidden, Tensor? delta, Tensor weight, float epsilon) -> Tensor");
  library.def("gate(Tensor both) -> Tensor");
  library.def(
      "attend(Tensor(a!) qkv, Tensor cosines, Tensor sines, Tensor? q_norm, Tensor? k_norm, "
      "float epsilon, Tensor(b!) pool, int layer, int heads, Tensor slots, Tensor spans, "
      "Tensor table) -> Tensor");
}

TORCH_LIBRARY_IMPL(baton_native, CPU, library) {
  library.impl("add_norm", add_norm_op);
  library.impl("gate", gate_op);
  library.impl("attend", attend_op);
}
