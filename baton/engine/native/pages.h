// Pages of KV, in the order in which attention multiplies: it reads them as they lie.
#pragma once

#include "multiply.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int kGroup = 16;  // keys that lie side by side in any page: a block's tokens are a multiple

// The pool [pages, layers, 2, kv_heads, block · size]: of each head K as [size / P, block, P], then V as
// [block / P, size, P], where P values are what one step multiplies. `torch-native/1` names this.
struct Shape {
  Shape(const Tensor& pool, int64_t heads, int64_t block)
      : layers(pool.size(1)), block(block), kv_heads(pool.size(3)), size(pool.size(4) / block),
        heads(heads), group(heads / kv_heads), row(kv_heads * size),
        line((heads + 2 * kv_heads) * size) {}
  int64_t layers, block, kv_heads, size, heads;
  int64_t group;  // query heads per KV head
  int64_t row;    // values of one token's K, or V
  int64_t line;   // values of one token in qkv

  // Values before the K of a page's layer; V lies block · row beyond.
  int64_t keys(int64_t page, int64_t layer) const { return (page * layers + layer) * 2 * block * row; }
  // Values before the rest of a head.
  int64_t head(int64_t kv_head) const { return kv_head * size * block; }
};

// Writes a token's K and V [kv_heads, size]. Slots count tokens of parts, K or V of a page's layer.
template <class T>
void store(const Shape& shape, const T* keys, const T* values, int64_t key_slot,
           int64_t value_slot, T* pool) {
  constexpr int P = Multiply<T>::P;
  const int64_t size = shape.size, block = shape.block, at = key_slot % block;
  T* const k = pool + (key_slot - at) * shape.row;
  T* const v = pool + (value_slot - at) * shape.row;
  for (int64_t head = 0; head < shape.kv_heads; ++head, keys += size, values += size) {
    T* const column = k + shape.head(head) + at * P;
    for (int64_t i = 0; i < size; i += P) std::memcpy(column + i * block, keys + i, P * sizeof(T));
    T* const line = v + shape.head(head) + at / P * size * P + at % P;
    for (int64_t i = 0; i < size; ++i) line[i * P] = values[i];
  }
}

}  // namespace
