// Work in parts that threads take one after the other, and room for each.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "vectors.h"

namespace {  // one translation unit includes this: ops.cpp

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

// One task after the other to whichever thread is free: run(task, after, scratch). A thread takes the
// task that it does after this one beforehand, so that it fetches what that reads into its own caches;
// where there is none, `after` is `tasks` or more.
template <class F>
void share(int64_t tasks, const F& run) {
  const int64_t threads = std::min<int64_t>(tasks, at::get_num_threads());
  std::atomic<int64_t> next{threads};
  at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
    Scratch scratch;
    for (int64_t begin = first; begin < last; ++begin)
      for (int64_t task = begin, after; task < tasks; task = after) {
        after = next++;
        run(task, after, scratch);
      }
  });
}

}  // namespace
