// Adapters: what matrices of low rank add to the outputs of a linear map. Each row has its own; a row's sums go in
// order, and see neither the other rows nor the other adapters.
#pragma once

#include "multiply.h"
#include "tasks.h"

namespace {  // one translation unit includes this: ops.cpp

#ifdef __AVX512F__
constexpr int kLowRows = 6;
#else
constexpr int kLowRows = 4;
#endif
constexpr int64_t kSpread = 256;  // outputs of a task

// Words of type E of a matrix that each step of `Multiply` takes: [steps][lanes], zeros beyond the last row.
template <class T>
void pack_low(const T* from, int64_t rank, int64_t inputs, int64_t lanes, typename Multiply<T>::E* to) {
  using E = typename Multiply<T>::E;
  constexpr int P = Multiply<T>::P;
  for (int64_t s = 0; s < inputs / P; ++s)
    for (int64_t r = 0; r < lanes; ++r) {
      E word{};
      if (r < rank) std::memcpy(&word, from + r * inputs + s * P, sizeof word);
      to[s * lanes + r] = word;
    }
}

// low[r][lane] = scale(lane) · Σ x(r) · a(lane), of rows anywhere.
template <class T, int ROWS, int WIDE>
INLINE void shrink(const T* const (&rows)[ROWS], const typename Multiply<T>::E* a, int64_t steps, int64_t lanes,
                   const Computed<T>* scales, Computed<T>* const (&low)[ROWS]) {
  using M = Multiply<T>;
  using S = Simd<Computed<T>, M::N>;
  typename M::V sums[ROWS][WIDE]{};
  for (int64_t s = 0; s < steps; ++s, a += lanes) {
    typename M::L by[WIDE];
#pragma GCC unroll 4
    for (int w = 0; w < WIDE; ++w) by[w] = *reinterpret_cast<const typename M::L*>(a + w * M::N);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      typename M::E word;
      std::memcpy(&word, rows[r] + s * M::P, sizeof word);
      const auto x = M::element(word);
#pragma GCC unroll 4
      for (int w = 0; w < WIDE; ++w) sums[r][w] = M::add(sums[r][w], x, by[w]);
    }
  }
  for (int r = 0; r < ROWS; ++r)
    for (int w = 0; w < WIDE; ++w)
      S::store(low[r] + w * M::N, sums[r][w] * S::load(scales + w * M::N));
}

// y[r][o] += Σ low(r)[i] · b[i][o], of `width` outputs.
template <class T, int ROWS>
INLINE void spread(const Computed<T>* const (&low)[ROWS], const T* b, int64_t rank, int64_t pitch, int64_t width,
                   T* const (&y)[ROWS]) {
  using C = Computed<T>;
  constexpr int N = Multiply<T>::N;
  using S = Simd<T, N>;
  int64_t o = 0;
  for (; o + N <= width; o += N) {
    typename S::V sums[ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) sums[r] = S::load(y[r] + o);
    for (int64_t i = 0; i < rank; ++i) {
      const auto by = S::load(b + i * pitch + o);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; ++r) sums[r] = fused<C, N>(low[r][i] - typename S::V{}, by, sums[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) S::store(y[r] + o, sums[r]);
  }
  for (; o < width; ++o)
    for (int r = 0; r < ROWS; ++r) {
      C sum = static_cast<C>(y[r][o]);
      for (int64_t i = 0; i < rank; ++i) sum += low[r][i] * static_cast<C>(b[i * pitch + o]);
      y[r][o] = static_cast<T>(sum);
    }
}

// One module of an adapter among the outputs of the map.
struct LowPart {
  int64_t adapter, lane, rank, first, outputs;
};

template <class T>
void add_low(const Tensor& x, Tensor& y, const Tensor& rows, const Tensor& ends, at::TensorList a,
             at::TensorList scales, at::TensorList b, const std::vector<LowPart>& parts) {
  using C = Computed<T>;
  using M = Multiply<T>;
  const int64_t inputs = x.size(1), outputs = y.size(1), steps = inputs / M::P;
  const int64_t* const row_of = rows.const_data_ptr<int64_t>();
  const int64_t* const end_of = ends.const_data_ptr<int64_t>();
  const auto first_of = [&](int64_t adapter) { return adapter ? end_of[adapter - 1] : 0; };
  int64_t most = 0;
  for (const auto& one : a) most = std::max(most, one.size(1));
  Tensor held = at::empty({rows.size(0), most}, x.options().dtype(at::CppTypeToScalarType<C>::value));
  C* const low = held.template mutable_data_ptr<C>();
  const T* const from = x.const_data_ptr<T>();
  T* const to = y.mutable_data_ptr<T>();
  struct Some {
    int64_t adapter, first, count;
  };
  std::vector<Some> some;
  for (int64_t adapter = 0; adapter < static_cast<int64_t>(a.size()); ++adapter)
    for (int64_t at = first_of(adapter); at < end_of[adapter]; at += kLowRows)
      some.push_back({adapter, at, std::min<int64_t>(kLowRows, end_of[adapter] - at)});
  share(some.size(), [&](int64_t task, int64_t, Scratch&) {
    const auto [adapter, first, count] = some[task];
    const Tensor& matrix = a[adapter];
    if (!matrix.numel()) return;  // it has no module of this map
    const int64_t lanes = matrix.size(1);
    const auto* const words = reinterpret_cast<const typename M::E*>(matrix.const_data_ptr());
    const C* const by = scales[adapter].template const_data_ptr<C>();
    with_count<kLowRows>(count, [&](auto counted) {
      constexpr int kRows = decltype(counted)::value;
      const T* source[kRows];
      for (int r = 0; r < kRows; ++r) source[r] = from + row_of[first + r] * inputs;
      for (int64_t lane = 0; lane < lanes; lane += kAtOnce * M::N)
        with_count<kAtOnce>(std::min<int64_t>(kAtOnce, (lanes - lane) / M::N), [&](auto wide) {
          C* sums[kRows];
          for (int r = 0; r < kRows; ++r) sums[r] = low + (first + r) * most + lane;
          shrink<T, kRows, decltype(wide)::value>(source, words + lane, steps, lanes, by + lane, sums);
        });
    });
  });
  struct Piece {
    int64_t part, first;
  };
  std::vector<Piece> pieces;
  for (int64_t part = 0; part < static_cast<int64_t>(parts.size()); ++part)
    for (int64_t at = 0; at < parts[part].outputs; at += kSpread) pieces.push_back({part, at});
  share(pieces.size(), [&](int64_t task, int64_t, Scratch&) {
    const auto [number, begin] = pieces[task];
    const LowPart& part = parts[number];
    const int64_t width = std::min(kSpread, part.outputs - begin);
    const T* const by = b[number].template const_data_ptr<T>() + begin;
    for (int64_t at = first_of(part.adapter), end = end_of[part.adapter]; at < end; at += kLowRows)
      with_count<kLowRows>(std::min<int64_t>(kLowRows, end - at), [&](auto counted) {
        constexpr int kRows = decltype(counted)::value;
        const C* sums[kRows];
        T* target[kRows];
        for (int r = 0; r < kRows; ++r) {
          sums[r] = low + (at + r) * most + part.lane;
          target[r] = to + row_of[at + r] * outputs + part.first + begin;
        }
        spread<T, kRows>(sums, by, part.rank, part.outputs, width, target);
      });
  });
}

}  // namespace
