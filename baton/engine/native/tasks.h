// Work in parts that threads take one after the other, and room for each.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

#include "thread_pool.h"

namespace {  // one translation unit includes this: ops.cpp

// How many threads the operator that runs here shares its work among, and whose: the operators' own, or torch's, which
// keep their cores for milliseconds after each operator. Where torch computes the products, all run on torch's.
class Threads {
 public:
  // So many of the operators' own; 0: as many as torch has; below 0: torch's.
  static void use(int64_t own) {
    own_ = own >= 0;
    count_ = own > 0 ? own : at::get_num_threads();
  }
  static int64_t count() { return count_; }

  // Calls body() on up to `most` of them at once, this one among them.
  template <class F>
  static void run(int64_t most, const F& body) {
    most = std::min(most, count_);
    if (most <= 1) return body();
    if (own_) return ThreadPool::of_this_thread().run(most - 1, body);
    at::parallel_for(0, most, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) body();
    });
  }

 private:
  static inline thread_local bool own_ = false;
  static inline thread_local int64_t count_ = 1;
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

// One task after the other to whichever thread is free: run(task, after, scratch). A thread takes the
// task that it does after this one beforehand, so that it fetches what that reads into its own caches;
// where there is none, `after` is `tasks` or more.
template <class F>
void share(int64_t tasks, const F& run) {
  std::atomic<int64_t> next{0};
  Threads::run(tasks, [&] {
    Scratch scratch;
    for (int64_t task = next++, after; task < tasks; task = after) {
      after = next++;
      run(task, after, scratch);
    }
  });
}

// Rows to whichever thread is free, at least `grain` at a time: run(first, last).
template <class F>
void share_rows(int64_t rows, int64_t grain, const F& run) {
  constexpr int64_t kTurns = 4;  // of each thread
  const int64_t some = std::max(grain, rows / (kTurns * Threads::count()) + 1);
  share((rows + some - 1) / some, [&](int64_t task, int64_t, Scratch&) {
    run(task * some, std::min(rows, (task + 1) * some));
  });
}

}  // namespace
