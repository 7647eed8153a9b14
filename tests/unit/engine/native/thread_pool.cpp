// Calls of ThreadPool, run by test_thread_pool.py; exits with the number of the line that failed.
#include "thread_pool.h"

#include <dirent.h>
#include <signal.h>

#include <cstdlib>
#include <set>
#include <stdexcept>

#define CHECK(what) \
  if (!(what)) std::_Exit(__LINE__ & 0xFF)

namespace {

std::set<int> threads() {
  std::set<int> found;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks))
    if (entry->d_name[0] != '.') found.insert(std::atoi(entry->d_name));
  closedir(tasks);
  return found;
}

// Each task is done once, by however many threads, call after call.
void each_task_is_done_once() {
  for (int64_t call = 0; call < 20'000; ++call) {
    const int64_t helpers = call % 4, tasks = call % 37;
    std::vector<int> done(tasks);  // not atomic: a race would be seen
    std::atomic<int64_t> next{0};
    ThreadPool::of_this_thread().run(helpers, [&] {
      for (int64_t task; (task = next++) < tasks;) ++done[task];
    });
    for (const int count : done) CHECK(count == 1);
    if (call % 500 == 0) usleep(200);  // helpers fall asleep
  }
}

void what_a_task_throws_reaches_the_caller() {
  for (int call = 0; call < 200; ++call) {
    std::atomic<int> left{8};
    bool caught = false;
    try {
      ThreadPool::of_this_thread().run(2, [&] {
        for (int task; (task = left--) > 0;)
          if (task == 1 + call % 8) throw std::runtime_error("one");
      });
    } catch (const std::runtime_error&) {
      caught = true;
    }
    CHECK(caught);
    ThreadPool::of_this_thread().run(2, [] {});  // nothing is left of it
  }
}

std::atomic<int> held{0};
std::atomic<bool> released{false};

// A helper that another process's work keeps from its core is one that stands in a signal's handler here.
void nobody_waits_for_a_helper_that_has_no_core() {
  ThreadPool pool;
  const std::set<int> before = threads();
  pool.run(2, [] {});
  struct sigaction action {};
  action.sa_handler = [](int) {
    ++held;
    while (!released) {
    }
  };
  sigaction(SIGUSR1, &action, nullptr);
  int helpers = 0;
  for (const int thread : threads())
    if (!before.count(thread)) {
      ++helpers;
      syscall(SYS_tgkill, getpid(), thread, SIGUSR1);
    }
  CHECK(helpers == 2);
  while (held < helpers) {
  }
  int done = 0;
  pool.run(2, [&] { ++done; });
  CHECK(done == 1);
  released = true;
}

// A caller that waits for a helper with a task sleeps, and is woken.
void a_helper_that_has_begun_is_waited_for() {
  ThreadPool pool;
  for (int call = 0; call < 20; ++call) {
    std::atomic<bool> began{false}, ended{false};
    const auto caller = std::this_thread::get_id();
    pool.run(1, [&] {
      if (std::this_thread::get_id() == caller) {
        while (!began) {
        }
      } else {
        began = true;
        usleep(1'000);
        ended = true;
      }
    });
    CHECK(ended);
  }
}

void stay_on(int thread, const cpu_set_t& cores) { CHECK(!sched_setaffinity(thread, sizeof cores, &cores)); }

void a_helper_leaves_the_callers_core() {
  cpu_set_t all, one;
  CPU_ZERO(&all);
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof all, &all);
  if (CPU_COUNT(&all) < 2) return;
  ThreadPool pool;
  const std::set<int> before = threads();
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> serves{false};  // until then a helper has not seen which cores it may use
  pool.run(1, [&] {
    if (std::this_thread::get_id() != caller) serves = true;
    while (!serves) sched_yield();
  });
  const int core = sched_getcpu();
  CPU_SET(core, &one);
  stay_on(0, one);
  for (const int thread : threads())
    if (!before.count(thread)) stay_on(thread, one);
  std::atomic<int> used{-1};
  pool.run(1, [&] {
    if (std::this_thread::get_id() != caller) used = sched_getcpu();
    while (used == -1) sched_yield();
  });
  CHECK(used != core);
  stay_on(0, all);
}

}  // namespace

int main() {
  each_task_is_done_once();
  what_a_task_throws_reaches_the_caller();
  nobody_waits_for_a_helper_that_has_no_core();
  a_helper_that_has_begun_is_waited_for();
  a_helper_leaves_the_callers_core();
  std::thread(each_task_is_done_once).join();  // a thread's helpers end with it
}
