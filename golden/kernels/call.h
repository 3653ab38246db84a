// Arguments of a kernel, and the distribution of its work over threads.
#pragma once
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <thread>
#include <vector>

#include "number.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

// Process in which torch started its threads, set by build.py.
extern "C" {
__attribute__((visibility("default"), used)) inline std::int64_t halfulp_process = 0;
}

namespace halfulp {

// A tensor of shape (batches, rows, columns[, steps]) of codes in int64, or of real numbers in binary32. An element is at the
// sum of the offsets of its batch, row, column and step. Offsets of rows and columns are multiples of a distance, or those
// of a table.
struct View {
    const i64* data;
    const i64* batches;  // offset of each batch
    i64 row, column, step;
    const i64 *rows, *columns;  // offsets, or null
    i64 size;                   // with tables: number of elements of the tensor
    i64 real;                   // 1: real numbers

    i64 row_offset(i64 i) const { return rows ? rows[i] : i * row; }
    i64 column_offset(i64 j) const { return columns ? columns[j] : j * column; }
    i64 offset(i64 batch, i64 i, i64 j) const { return batches[batch] + row_offset(i) + column_offset(j); }
    const i64* at(i64 batch, i64 i, i64 j) const { return data + offset(batch, i, j); }
    float* real_at(i64 batch, i64 i, i64 j) const {
        return const_cast<float*>(reinterpret_cast<const float*>(data)) + offset(batch, i, j);
    }
};

struct Call {
    i64 batches, n, m, k, threads;
    i64 packs;               // distinct batches of b
    const i64* pack_of;      // index of the distinct batch of b for each batch
    const i64* pack_batch;   // one batch for each distinct batch of b
    View a, b, start, sum_words, product_words;  // start.data is null if sums start from +0
    const i64 *sum_states, *product_states;      // states of the sources of each element
    u64 key;                                     // key of counter-based words
    i64 first_step;                              // first step of counter-based words
    View out;
    i64 down, across;                            // distance between the indices of elements of a column, and of a row
    // If not 0, a result is no sum of k products: sums of `part` products each are added in turn. Both operands and the
    // result of an addition are numbers of binary32 that are rounded to nearest without their last `drop` bits.
    i64 part, drop;

    // Index of an element in row-major order of the result that is not transposed.
    i64 element(i64 batch, i64 i, i64 j) const { return batch * n * m + i * down + j * across; }
    i64* result(i64 batch, i64 i, i64 j) const { return const_cast<i64*>(out.at(batch, i, j)); }
};

// Sets the rounding mode of the processor and enables subnormal numbers until the end of the scope.
class Machine {
#if defined(__SSE2__)
    unsigned before = _mm_getcsr();

public:
    explicit Machine(int mode) {
        const unsigned way = mode == FE_TOWARDZERO ? 3 : mode == FE_UPWARD ? 2 : mode == FE_DOWNWARD ? 1 : 0;
        _mm_setcsr(0x1F80u | way << 13);
    }
    ~Machine() { _mm_setcsr(before); }
#else
    std::fenv_t before;

public:
    explicit Machine(int mode) {
        std::fegetenv(&before);
        std::fesetenv(FE_DFL_ENV);
        std::fesetround(mode);
    }
    ~Machine() { std::fesetenv(&before); }
#endif
    Machine(const Machine&) = delete;
};

// Exceptions other than inexact results set flags: infinite or invalid results, and numbers below the normal range.
#if defined(__SSE2__)
constexpr bool HAS_FLAGS = true;

// Clears the flags; returns true if any was set.
inline bool clear_flags() {
    const unsigned state = _mm_getcsr();
    if (!(state & 0x1B)) return false;
    _mm_setcsr(state & ~0x3Fu);
    return true;
}
#else
constexpr bool HAS_FLAGS = false;
inline bool clear_flags() { return true; }
#endif

// Calls work(task) for every task, in any order, on `threads` threads. They are those of torch, by the OpenMP library that it
// has loaded: its threads spin for a while after their work, in the way of other threads. A forked process has none of them.
template <class Work>
void run_parallel(i64 tasks, i64 threads, const Work& work) {
    std::atomic<i64> next{0};
    auto run = [&] {
        const Machine usual(FE_TONEAREST);
        for (i64 task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) work(task);
    };
    if (tasks <= 1 || threads <= 1) return run();
    using Run = decltype(run);
    using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
    static const auto parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    if (parallel && getpid() == halfulp_process)
        return parallel([](void* of) { (*static_cast<Run*>(of))(); }, &run, unsigned(threads), 0);
    std::vector<std::thread> others;
    try {
        for (i64 index = 1; index < std::min(threads, tasks); ++index) others.emplace_back(run);
    } catch (...) {
        // The system allows no more threads: those that have started do all tasks.
    }
    run();
    for (auto& other : others) other.join();
}

}  // namespace halfulp
