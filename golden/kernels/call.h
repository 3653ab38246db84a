// Arguments of a kernel, and the distribution of its work over threads.
#pragma once
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <thread>
#include <vector>

#include "number.h"
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace halfulp {

// A tensor of int64 of shape (batches, rows, columns[, steps]); each batch has its own offset.
struct View {
    const i64* data;
    const i64* batches;  // offset of each batch
    i64 row, column, step;

    const i64* at(i64 batch, i64 i, i64 j) const { return data + batches[batch] + i * row + j * column; }
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
    i64* out;
    i64 down, across;                            // distance in `out` to the next element of a column, and of a row

    i64 element(i64 batch, i64 i, i64 j) const { return batch * n * m + i * down + j * across; }
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

// Calls work(task) for every task, in any order, on `threads` threads.
template <class Work>
void run_parallel(i64 tasks, i64 threads, const Work& work) {
    if (threads > tasks) threads = tasks;
    std::atomic<i64> next{0};
    const auto run = [&] {
        const Machine usual(FE_TONEAREST);
        for (i64 task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) work(task);
    };
    std::vector<std::thread> others;
    try {
        for (i64 index = 1; index < threads; ++index) others.emplace_back(run);
    } catch (...) {
        // The system allows no more threads: those that have started do all tasks.
    }
    run();
    for (auto& other : others) other.join();
}

}  // namespace halfulp
