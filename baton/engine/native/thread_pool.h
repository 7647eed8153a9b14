// Threads that compute with the one that calls. Knows nothing of torch.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace {  // one translation unit includes this: ops.cpp

// How long a thread that has nothing to do spins before it sleeps: as long as Python takes from one operator to
// the next. A process that shares the core is held up no longer than that.
constexpr std::chrono::microseconds kSpin{50};

// The helpers of one calling thread. A call returns when its work is done, and waits for those helpers that have
// begun; at the barrier of an OpenMP region it would wait for all of them, and so for one that has no core because
// another process has it. Threads sleep in Linux's futexes: before libstdc++'s atomics sleep they yield, and with that
// give up their time slice on a core that is shared.
class ThreadPool {
 public:
  static ThreadPool& of_this_thread() {
    static thread_local ThreadPool pool;
    return pool;
  }

  // Calls `body` here and at the same time in up to `helpers` other threads, those that come before it
  // returned here; returns when all have, and throws what one of them threw.
  template <class F>
  void run(int64_t helpers, const F& body) {
    while (static_cast<int64_t>(threads_.size()) < helpers)
      threads_.emplace_back([this, number = threads_.size()] { serve(number); });
    body_ = &body;
    call_ = [](const void* of) { (*static_cast<const F*>(of))(); };
    helpers_ = helpers;
    core_ = sched_getcpu();
    inside_.store(kOpen);
    ++round_;
    if (asleep_.load()) futex(round_, FUTEX_WAKE_PRIVATE, INT_MAX);
    guarded();
    uint32_t inside = inside_.fetch_and(~kOpen) & ~kOpen;
    spin([&] { return (inside = inside_.load()) == 0; });
    while (inside & kCount) {  // a helper may have lost its core, and can have this one
      if (inside & kCallerSleeps || inside_.compare_exchange_strong(inside, inside | kCallerSleeps))
        futex(inside_, FUTEX_WAIT_PRIVATE, inside | kCallerSleeps);
      inside = inside_.load();
    }
    if (failing_.exchange(false)) std::rethrow_exception(std::exchange(failed_, nullptr));
  }

  ~ThreadPool() {
    ends_ = true;
    ++round_;
    futex(round_, FUTEX_WAKE_PRIVATE, INT_MAX);
    for (auto& thread : threads_) thread.join();
  }

 private:
  using Word = std::atomic<uint32_t>;
  // Of `inside_`: whether helpers may come, whether the caller sleeps until the last one leaves, and how many there are.
  static constexpr uint32_t kOpen = 1u << 31, kCallerSleeps = 1u << 30, kCount = kCallerSleeps - 1;

  static void futex(Word& word, int operation, uint32_t value) {
    static_assert(sizeof word == sizeof value && Word::is_always_lock_free);
    syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
  }

  // Waits for a while until something is so.
  template <class F>
  static void spin(const F& is_so) {
    using Clock = std::chrono::steady_clock;
    for (const auto end = Clock::now() + kSpin; Clock::now() < end;)
      for (int i = 0; i < 8; ++i) {
        if (is_so()) return;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
      }
  }

  void serve(size_t number) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (uint32_t seen = 0;;) {
      spin([&] { return round_.load() != seen; });
      for (; round_.load() == seen; --asleep_) {
        ++asleep_;  // before the kernel compares, as `round_` is moved before `asleep_` is read
        futex(round_, FUTEX_WAIT_PRIVATE, seen);
      }
      if (ends_) return;
      seen = round_.load();
      uint32_t inside = inside_.load();
      do {
        if (!(inside & kOpen)) break;
      } while (!inside_.compare_exchange_weak(inside, inside + 1));
      if (!(inside & kOpen)) continue;
      if (static_cast<int64_t>(number) < helpers_) {
        if (sched_getcpu() == core_) leave_core(core_, allowed);
        guarded();
      }
      if (--inside_ == kCallerSleeps) futex(inside_, FUTEX_WAKE_PRIVATE, 1);
    }
  }

  // Moves this helper, which may use the cores `allowed`, to another core than the caller's. Of three threads on two
  // cores, such as a caller, its helper and another process, Linux leaves any two on one for as long as they like.
  static void leave_core(int core, cpu_set_t allowed) {
    CPU_CLR(core, &allowed);
    if (CPU_COUNT(&allowed)) sched_setaffinity(0, sizeof allowed, &allowed);
  }

  void guarded() {
    try {
      call_(body_);
    } catch (...) {
      if (!failing_.exchange(true)) failed_ = std::current_exception();
    }
  }

  // The call that runs. Helpers read it while `inside_` counts them.
  const void* body_ = nullptr;
  void (*call_)(const void*) = nullptr;
  int64_t helpers_ = 0;
  int core_ = -1;  // the caller's
  std::exception_ptr failed_;
  std::atomic<bool> failing_{false};

  Word round_{0}, asleep_{0}, inside_{0};
  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

}  // namespace
