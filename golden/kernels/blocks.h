// Blocked matrix product in vector lanes: operands are decoded once, panels of b are packed into the cache, sums stay in
// registers, and threads share the panels.
//
// The parameter P is a type with these members:
//  - BITS of a lane; V, a vector, and its Scalar; ROWS and VECTORS of a block; FENV, the rounding mode of the processor
//  - SumWords and ProductWords, the sources of random words
//  - decoder_a, decoder_b, decoder_start and encode: conversion between codes and scalars; encode_all for a whole vector
//  - takes_reals(call), true if it supports the real numbers of a call; decoders round them to the formats, and write_reals
//    converts a vector of sums
//  - Extremes, a summary of operands, and accepts(), which returns a Verdict on them
//  - step<CHECKED>(sum, a, b, word, product word), a step of the sums; CHECKS, true if CHECKED has an effect
//  - TWICE; if true also step_twice(sum, a, b), a faster step that sets a flag if it may be wrong, and scales(), the factors
//    of the operands for it
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <new>

#include "lanes.h"

namespace halfulp {

// Array that begins at a multiple of 64 bytes.
template <class T>
struct Aligned {
    std::unique_ptr<char[]> memory;
    T* data;
    explicit Aligned(i64 count) : memory(new char[size_t(count) * sizeof(T) + 64]) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory.get());
        data = reinterpret_cast<T*>((address + 63) / 64 * 64);
    }
};

// Decision of a kernel on given operands: results would be inexact; no step can overflow; each step must check overflow; no
// step can overflow, and steps are those of step_twice().
enum Verdict { REFUSED, UNCHECKED, CHECKED, IN_TWO };

inline bool contiguous(const i64* offsets, i64 count) {
    for (i64 index = 1; index < count; ++index)
        if (offsets[index] != offsets[0] + index) return false;
    return true;
}

// Decoded operand. Number (batch, i, j) is at the sum of the offsets of batch, row and column.
template <class P>
struct Numbers {
    using Scalar = typename P::Scalar;
    using Extremes = typename P::Extremes;
    static constexpr i64 BAND = 16, CHUNK = 1 << 12;  // lines, or numbers, that one task decodes

    Aligned<Scalar> numbers;
    std::vector<i64> batches, rows, columns;
    Extremes seen;

    // Decodes the matrices of `count` batches, contiguous along rows if `along_rows`, else along columns. The tensor of a
    // view with tables is decoded as it is.
    template <class Decode>
    Numbers(const View& view, const i64* batch_of, i64 count, i64 n, i64 m, bool along_rows, i64 threads, const Decode& decode)
        : numbers(view.rows ? view.size : count * n * m), batches(size_t(count)), rows(size_t(n)), columns(size_t(m)) {
        for (i64 index = 0; index < count; ++index)
            batches[size_t(index)] = view.rows ? view.batches[batch_of[index]] : index * n * m;
        for (i64 i = 0; i < n; ++i) rows[size_t(i)] = view.rows ? view.rows[i] : along_rows ? i * m : i;
        for (i64 j = 0; j < m; ++j) columns[size_t(j)] = view.rows ? view.columns[j] : along_rows ? j : j * n;
        if (view.real)
            fill(view, reinterpret_cast<const float*>(view.data), batch_of, count, n, m, along_rows, threads, decode);
        else
            fill(view, view.data, batch_of, count, n, m, along_rows, threads, decode);
    }

    // Multiplies all numbers.
    void scale(Scalar by, i64 size, i64 threads) {
        run_parallel((size + CHUNK - 1) / CHUNK, threads, [&](i64 chunk) {
            const i64 end = std::min(size, (chunk + 1) * CHUNK);
            for (i64 at = chunk * CHUNK; at < end; ++at) numbers.data[at] *= by;
        });
    }

private:
    template <class T, class Decode>
    void fill(const View& view, const T* data, const i64* batch_of, i64 count, i64 n, i64 m, bool along_rows, i64 threads,
              const Decode& decode) {
        if (view.rows) {
            run_in_parts((view.size + CHUNK - 1) / CHUNK, threads, [&](i64 chunk, Extremes& own) {
                const i64 first = chunk * CHUNK, there = view.size - first < CHUNK ? view.size - first : CHUNK;
                Scalar* to = numbers.data + first;
                read(data + first, 1, there, decode, to);
                for (i64 at = 0; at < there; ++at) own.see(to[at]);
            });
            return;
        }
        const i64 lines = along_rows ? n : m, length = along_rows ? m : n, bands = (lines + BAND - 1) / BAND;
        const i64 next = along_rows ? view.column : view.row, next_line = along_rows ? view.row : view.column;
        run_in_parts(count * bands, threads, [&](i64 task, Extremes& own) {
            const i64 index = task / bands, first = task % bands * BAND;
            const i64 there = lines - first < BAND ? lines - first : BAND;
            const T* from = data + view.batches[batch_of[index]] + first * next_line;
            Scalar* to = numbers.data + (index * lines + first) * length;
            if (next_line == 1 && next != 1)  // memory is contiguous across the lines
                for (i64 at = 0; at < length; ++at)
                    for (i64 line = 0; line < there; ++line) to[line * length + at] = decode(given(from[at * next + line]));
            else
                for (i64 line = 0; line < there; ++line)
                    read(from + line * next_line, next, length, decode, to + line * length);
            for (i64 at = 0; at < there * length; ++at) own.see(to[at]);
        });
    }

    static u64 given(i64 code) { return u64(code); }
    static float given(float number) { return number; }

    template <class Work>
    void run_in_parts(i64 tasks, i64 threads, const Work& work) {
        std::vector<Extremes> parts(size_t(tasks) + 1);
        run_parallel(tasks, threads, [&](i64 task) {
            Extremes own;
            work(task, own);
            parts[size_t(task)] = own;
        });
        for (const Extremes& part : parts) seen.join(part);
    }

    // The usual distance of 1 is a constant, so that the compiler can unroll the loop.
    template <class T, class Decode>
    static void read(const T* from, i64 next, i64 count, const Decode& decode, Scalar* to) {
        if (next == 1)
            for (i64 at = 0; at < count; ++at) to[at] = decode(given(from[at]));
        else
            for (i64 at = 0; at < count; ++at) to[at] = decode(given(from[at * next]));
    }
};

// Packed panels of an operand b of products with few rows, such as the weights of a recurrent cell, whose packing would take
// longer than the product. They are packed at the second product in a row that finds the operand at an address. Its bytes
// decide if it is the same operand, because torch's version counters miss changes through `.data` and numpy arrays.
template <class P>
struct Packed {
    using Scalar = typename P::Scalar;
    static constexpr i64 ROWS = 128, SMALLEST = 1 << 14, LARGEST = 1 << 22, CHUNK = 1 << 16, SLOTS = 4;

    std::vector<float> given;
    Aligned<Scalar> panels;
    typename P::Extremes seen;

    struct Slot {
        const void* data = nullptr;
        i64 k = 0, m = 0, row = 0, last_use = 0;
        std::shared_ptr<const Packed> packed;
    };

    Packed(const Call& call, i64 numbers, const typename P::Extremes& extremes)
        : given(size_t(call.k * call.m)), panels(numbers), seen(extremes) {
        run_parallel(chunks(), call.threads, [&](i64 chunk) {
            std::memcpy(given.data() + chunk * CHUNK, from(call) + chunk * CHUNK, bytes(chunk));
        });
    }

    // Returns the panels of the operand of a call, if they are there; sets `wanted` if the caller should add them.
    static std::shared_ptr<const Packed> find(const Call& call, bool& wanted) {
        const View& b = call.b;
        const i64 size = call.k * call.m;
        const bool dense = (b.column == 1 && b.row == call.m) || (b.row == 1 && b.column == call.k);
        if (!b.real || b.rows || !dense || call.packs != 1 || call.n > ROWS || size < SMALLEST || size > LARGEST) return {};
        std::shared_ptr<const Packed> packed;
        {
            const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
            if (!lock) return {};
            Slot& slot = slot_of(call);
            wanted = slot.last_use && !slot.packed;
            slot.last_use = ++uses;
            packed = slot.packed;
        }
        if (!packed || packed->is_of(call)) return packed;
        add(call, {});
        return {};
    }

    static void add(const Call& call, std::shared_ptr<const Packed> packed) {
        const std::unique_lock<std::mutex> lock(mutex, std::try_to_lock);
        if (!lock) return;
        Slot& slot = slot_of(call);
        slot.packed = std::move(packed), slot.last_use = ++uses;
    }

private:
    // No thread waits for it: in a process that was forked while another thread held it, it stays locked.
    static inline std::mutex mutex;
    static inline Slot slots[SLOTS];
    static inline i64 uses = 0;

    // Returns the slot of an operand, in place of the one that was not used for longest.
    static Slot& slot_of(const Call& call) {
        Slot* oldest = slots;
        for (Slot& slot : slots) {
            if (slot.data == from(call) && slot.k == call.k && slot.m == call.m && slot.row == call.b.row) return slot;
            if (slot.last_use < oldest->last_use) oldest = &slot;
        }
        *oldest = {from(call), call.k, call.m, call.b.row, 0, {}};
        return *oldest;
    }

    static const float* from(const Call& call) {
        return reinterpret_cast<const float*>(call.b.data) + call.b.batches[call.pack_batch[0]];
    }

    i64 chunks() const { return (i64(given.size()) + CHUNK - 1) / CHUNK; }
    size_t bytes(i64 chunk) const { return size_t(std::min(CHUNK, i64(given.size()) - chunk * CHUNK)) * sizeof(float); }

    bool is_of(const Call& call) const {
        std::atomic<bool> same{true};
        run_parallel(chunks(), call.threads, [&](i64 chunk) {
            if (same && std::memcmp(given.data() + chunk * CHUNK, from(call) + chunk * CHUNK, bytes(chunk))) same = false;
        });
        return same;
    }
};

template <class P>
struct Blocks {
    using V = typename P::V;
    using Scalar = typename P::Scalar;
    using U = typename Lanes<P::BITS>::U;
    static constexpr int lanes = BYTES * 8 / P::BITS, rows = P::ROWS, vectors = P::VECTORS, columns = lanes * vectors;
    static constexpr bool sum_words = !std::is_same<typename P::SumWords, NoWords>::value;
    static constexpr bool product_words = !std::is_same<typename P::ProductWords, NoWords>::value;
    static constexpr i64 DEPTH = 4 * STEPS;  // steps for which a panel is packed at once
    static constexpr i64 WORTH = 16, SHARE = 64;  // smallest and largest number of blocks for which a task packs a panel

    // Sums of a block and the states of their random words.
    struct Block {
        V sum[rows][vectors];
        LaneWords<typename P::SumWords, P::BITS> of_sum[rows][vectors];
        LaneWords<typename P::ProductWords, P::BITS> of_product[rows][vectors];
        i64 batch, top;
        const Scalar* left[rows];
    };

    // Blocks of one panel of b: those from `first` to `end`, counted over the batches that share it.
    struct Task {
        i64 pack, panel, first, end;
    };

    const Call& call;
    const i64 panels = (call.m + columns - 1) / columns, row_blocks = (call.n + rows - 1) / rows;
    const i64 part = call.part ? call.part : call.k;  // products of a sum
    Numbers<P> a = numbers_of_a();
    bool wanted = false;
    std::shared_ptr<const Packed<P>> packed = Packed<P>::find(call, wanted);
    // Empty if the panels are there.
    const Numbers<P> b{call.b,
                       call.pack_batch,
                       packed ? 0 : call.packs,
                       packed ? 0 : call.k,
                       packed ? 0 : call.m,
                       call.b.column == 1,
                       call.threads,
                       P::decoder_b()};
    const typename P::Extremes seen_b = packed ? packed->seen : b.seen;

    Scalar scale_a = 1, scale_b = 1;  // powers of two, of which those of a are in its numbers

    explicit Blocks(const Call& arguments) : call(arguments) {}

    int run() {
        const Machine usual(FE_TONEAREST);
        typename P::Extremes of_start;
        bool minus_zero = false;
        // Start values that all rows or columns share are seen once.
        const i64 tall = call.start.rows || call.start.row ? call.n : 1, wide = call.start.columns || call.start.column ? call.m : 1;
        if (call.start.data)
            for (i64 batch = 0; batch < call.batches; ++batch)
                for (i64 i = 0; i < tall; ++i)
                    for (i64 j = 0; j < wide; ++j) {
                        const Scalar value = start_at(batch, i, j);
                        of_start.see(value);
                        minus_zero |= value == 0 && std::signbit(double(value));
                    }
        if (!P::takes_reals(call)) return 1;
        if (call.part && (call.start.data || !call.out.real || P::FENV != FE_TONEAREST)) return 1;
        Verdict verdict = P::accepts(a.seen, seen_b, of_start, part);
        if (verdict == REFUSED) return 1;
        if (wanted) keep_panels();
        if constexpr (P::TWICE) {
            int of_a, of_b;
            if (verdict == UNCHECKED && !minus_zero && P::scales(a.seen, seen_b, of_a, of_b)) {
                verdict = IN_TWO;
                scale_a = std::ldexp(scale_a, of_a), scale_b = std::ldexp(scale_b, of_b);
                if (of_a) a.scale(scale_a, call.a.rows ? call.a.size : call.batches * call.n * call.k, call.threads);
            }
        }
        std::vector<std::vector<i64>> sharing(static_cast<size_t>(call.packs));
        for (i64 batch = 0; batch < call.batches; ++batch) sharing[size_t(call.pack_of[batch])].push_back(batch);
        std::vector<Task> tasks;
        for (i64 pack = 0; pack < call.packs; ++pack) {
            const i64 blocks = i64(sharing[size_t(pack)].size()) * row_blocks;
            i64 share = blocks * call.packs * panels / (4 * call.threads) + 1;
            share = std::min(std::max(share, WORTH), SHARE);
            for (i64 first = 0; first < blocks; first += share)
                for (i64 panel = 0; panel < panels; ++panel)
                    tasks.push_back({pack, panel, first, first + share < blocks ? first + share : blocks});
        }
        // Threads divide the blocks of the tasks that are left when all have the same number.
        const size_t left = tasks.size() % size_t(call.threads);
        const i64 parts = left ? call.threads / i64(left) : 1;
        for (size_t index = tasks.size() - left, end = tasks.size(); index < end; ++index)
            for (i64 part = parts; part > 1; --part) {
                Task& task = tasks[index];
                const i64 middle = task.end - (task.end - task.first) / part;
                if (middle == task.end) continue;
                tasks.push_back({task.pack, task.panel, middle, task.end});
                tasks[index].end = middle;
            }
        run_parallel(i64(tasks.size()), call.threads, [&](i64 index) {
            const Task& task = tasks[size_t(index)];
            const std::vector<i64>& batches = sharing[size_t(task.pack)];
            if constexpr (P::TWICE)
                if (verdict == IN_TWO) return compute<IN_TWO>(task, batches);
            if constexpr (P::CHECKS)
                if (verdict == CHECKED) return compute<CHECKED>(task, batches);
            compute<UNCHECKED>(task, batches);
        });
        return 0;
    }

private:
    Numbers<P> numbers_of_a() const {
        std::vector<i64> every(static_cast<size_t>(call.batches));
        for (i64 batch = 0; batch < call.batches; ++batch) every[size_t(batch)] = batch;
        return {call.a, every.data(), call.batches, call.n, call.k, true, call.threads, P::decoder_a()};
    }

    void keep_panels() {
        auto made = std::make_shared<Packed<P>>(call, panels * call.k * columns, seen_b);
        run_parallel(panels, call.threads, [&](i64 panel) {
            pack(b.numbers.data + b.batches[0], panel * columns, 0, call.k, made->panels.data + panel * call.k * columns);
        });
        packed = std::move(made);
        Packed<P>::add(call, packed);
    }

    template <Verdict VERDICT>
    void compute(const Task& task, const std::vector<i64>& sharing) const {
        const i64 left = task.panel * columns;
        Aligned<Block> blocks(task.end - task.first);
        Aligned<Scalar> panel(DEPTH * columns);
        Aligned<float> totals(call.part ? (task.end - task.first) * rows * columns : 0);
        if (call.part) std::fill_n(totals.data, (task.end - task.first) * rows * columns, -0.0f);
        for (i64 index = task.first; index < task.end; ++index)
            begin(*new (blocks.data + index - task.first) Block, sharing[size_t(index / row_blocks)],
                  index % row_blocks * rows, left);
        const Machine machine(P::FENV);
        for (i64 first = 0, steps; first < call.k; first += steps) {
            steps = std::min(DEPTH, part - first % part);
            const Scalar* right = packed ? packed->panels.data + (task.panel * call.k + first) * columns : panel.data;
            if (!packed) pack(b.numbers.data + b.batches[size_t(task.pack)], left, first, steps, panel.data);
            if (VERDICT == IN_TWO) {
                for (i64 at = 0; at < steps * columns; ++at) panel.data[at] = right[at] * scale_b;
                right = panel.data;
            }
            for (i64 index = 0; index < task.end - task.first; ++index)
                add<VERDICT>(blocks.data[index], a.columns.data() + first, right, steps);
            if (call.part && (first + steps) % part == 0)
                for (i64 index = 0; index < task.end - task.first; ++index)
                    add_sums(blocks.data[index], totals.data + index * rows * columns);
        }
        for (i64 index = 0; index < task.end - task.first; ++index)
            store(blocks.data[index], left, call.part ? totals.data + index * rows * columns : nullptr);
    }

    // Adds the sums of a block to its totals, and begins new ones.
    void add_sums(Block& block, float* totals) const {
        for (int row = 0; row < rows; ++row)
            for (int vector = 0; vector < vectors; ++vector, totals += lanes) {
                VectorF32 x{}, y{};
                P::write_reals(block.sum[row][vector], reinterpret_cast<float*>(&x));
                std::memcpy(&y, totals, lanes * sizeof(float));
                if (call.k != part) x = rounded_sum(x, y, int(call.drop));
                std::memcpy(totals, &x, lanes * sizeof(float));
                block.sum[row][vector] = V{};
            }
    }

    Scalar start_at(i64 batch, i64 i, i64 j) const {
        const auto decode = P::decoder_start();
        return call.start.real ? decode(*call.start.real_at(batch, i, j)) : decode(u64(*call.start.at(batch, i, j)));
    }

    void begin(Block& block, i64 batch, i64 top, i64 left) const {
        block.batch = batch, block.top = top;
        for (int row = 0; row < rows; ++row) {
            const i64 i = top + row < call.n ? top + row : call.n - 1;
            block.left[row] = a.numbers.data + a.batches[size_t(batch)] + a.rows[size_t(i)];
            for (int vector = 0; vector < vectors; ++vector) {
                i64 j = left + vector * lanes;
                const int there = j >= call.m ? 0 : call.m - j < lanes ? int(call.m - j) : lanes;
                V begin{};
                if (call.start.data)
                    for (int lane = 0; lane < there; ++lane)
                        begin[lane] = start_at(batch, i, j + lane);
                block.sum[row][vector] = begin;
                if (there == 0) j = left;  // lanes without a sum take the random words of other lanes
                block.of_sum[row][vector].begin(call, batch, i, j, there ? there : 1);
                block.of_product[row][vector].begin(call, batch, i, j, there ? there : 1);
            }
        }
    }

    // Copies steps of a panel of b: vectors, squares that are transposed, or single numbers.
    void pack(const Scalar* from, i64 left, i64 first, i64 steps, Scalar* to) const {
        const i64* step_at = b.rows.data() + first;
        for (int vector = 0; vector < vectors; ++vector, to += lanes, left += lanes) {
            const int there = left >= call.m ? 0 : call.m - left < lanes ? int(call.m - left) : lanes;
            const i64* lane_at = b.columns.data() + (there ? left : 0);
            if (there == lanes && contiguous(lane_at, lanes)) {
                for (i64 step = 0; step < steps; ++step)
                    std::memcpy(to + step * columns, from + lane_at[0] + step_at[step], sizeof(V));
                continue;
            }
            i64 step = 0;
            for (; step + lanes <= steps; step += lanes) {
                V square[lanes];
                if (contiguous(step_at + step, lanes))
                    for (int lane = 0; lane < lanes; ++lane)
                        square[lane] = lane < there ? load<V>(from + step_at[step] + lane_at[lane]) : V{};
                else if (contiguous(step_at + step, lanes / 2) && contiguous(step_at + step + lanes / 2, lanes / 2))
                    for (int lane = 0; lane < lanes; ++lane) {
                        Scalar line[lanes] = {};
                        if (lane < there) {
                            std::memcpy(line, from + step_at[step] + lane_at[lane], sizeof(V) / 2);
                            std::memcpy(line + lanes / 2, from + step_at[step + lanes / 2] + lane_at[lane], sizeof(V) / 2);
                        }
                        square[lane] = load<V>(line);
                    }
                else
                    break;
                transpose(square);
                for (int row = 0; row < lanes; ++row) std::memcpy(to + (step + row) * columns, &square[row], sizeof(V));
            }
            for (; step < steps; ++step) {
                const Scalar* at = from + step_at[step];
                for (int lane = 0; lane < lanes; ++lane) to[step * columns + lane] = lane < there ? at[lane_at[lane]] : 0;
            }
        }
    }

    // Adds `steps` products to the sums of a block.
    template <Verdict VERDICT>
    void add(Block& block, const i64* left_at, const Scalar* y, i64 steps) const {
        if constexpr (VERDICT != IN_TWO) {
            add_part<VERDICT, false>(block, left_at, y, steps);
        } else {
            for (i64 first = 0; first < steps; first += STEPS, left_at += STEPS, y += STEPS * columns) {
                const i64 count = std::min(i64(STEPS), steps - first);
                V before[rows][vectors];
                std::memcpy(before, block.sum, sizeof before);
                add_part<IN_TWO, true>(block, left_at, y, count);
                if (!clear_flags()) continue;
                std::memcpy(block.sum, before, sizeof before);
                add_part<UNCHECKED, true>(block, left_at, y, count);
                clear_flags();
            }
        }
    }

    // With SCALED, the factors are in the operands, and in the sums during steps IN_TWO only.
    template <Verdict VERDICT, bool SCALED>
    __attribute__((noinline)) void add_part(Block& block, const i64* left_at, const Scalar* y, i64 steps) const {
        const Scalar up_a = SCALED ? 1 / scale_a : 1, up_b = SCALED ? 1 / scale_b : 1;
        const Scalar down = VERDICT == IN_TWO ? scale_a * scale_b : 1, up = 1 / down;
        V sum[rows][vectors];
        const Scalar* x[rows];
        for (int row = 0; row < rows; ++row) {
            x[row] = block.left[row];
            for (int vector = 0; vector < vectors; ++vector) {
                sum[row][vector] = block.sum[row][vector];
                if (VERDICT == IN_TWO) sum[row][vector] *= down;
            }
        }
        alignas(64) U words[sum_words ? STEPS : 1][rows][vectors], others[product_words ? STEPS : 1][rows][vectors];
        for (i64 first = 0; first < steps; first += STEPS) {
            const int count = steps - first < STEPS ? int(steps - first) : STEPS;
            for (int row = 0; row < rows; ++row)
                for (int vector = 0; vector < vectors; ++vector) {
                    if (sum_words) block.of_sum[row][vector].fill(&words[0][row][vector], count, rows * vectors);
                    if (product_words) block.of_product[row][vector].fill(&others[0][row][vector], count, rows * vectors);
                }
            for (int step = 0; step < count; ++step, ++left_at, y += columns) {
                V right[vectors];
                for (int vector = 0; vector < vectors; ++vector) {
                    right[vector] = load<V>(y + vector * lanes);
                    if (SCALED && VERDICT != IN_TWO) right[vector] *= up_b;
                }
#pragma GCC unroll 16
                for (int row = 0; row < rows; ++row) {
                    V left_of_all = all<V>(x[row][*left_at]);
                    if (SCALED && VERDICT != IN_TWO) left_of_all *= up_a;
#pragma GCC unroll 16
                    for (int vector = 0; vector < vectors; ++vector)
                        if constexpr (VERDICT == IN_TWO)
                            sum[row][vector] = P::step_twice(sum[row][vector], left_of_all, right[vector]);
                        else
                            sum[row][vector] = P::template step<VERDICT == CHECKED>(
                                sum[row][vector], left_of_all, right[vector], sum_words ? words[step][row][vector] : U{},
                                product_words ? others[step][row][vector] : U{});
                }
            }
        }
        for (int row = 0; row < rows; ++row)
            for (int vector = 0; vector < vectors; ++vector) {
                block.sum[row][vector] = sum[row][vector];
                if (VERDICT == IN_TWO) block.sum[row][vector] *= up;
            }
    }

    void store(const Block& block, i64 left, const float* totals) const {
        for (int row = 0; row < rows && block.top + row < call.n; ++row)
            for (int vector = 0; vector < vectors; ++vector)
                store(block.batch, block.top + row, left + vector * lanes, block.sum[row][vector],
                      totals ? totals + (row * vectors + vector) * lanes : nullptr);
    }

    void store(i64 batch, i64 i, i64 j, V sum, const float* total) const {
        alignas(64) typename Lanes<P::BITS>::Unsigned codes[lanes];
        const View& out = call.out;
        const bool neighbours = j + lanes <= call.m && (out.columns ? contiguous(out.columns + j, lanes) : out.column == 1);
        if (out.real) {
            float reals[lanes];
            float* to = neighbours ? out.real_at(batch, i, j) : reals;
            if (total)
                std::memcpy(to, total, sizeof reals);
            else
                P::write_reals(sum, to);
            for (int lane = 0; !neighbours && lane < lanes && j + lane < call.m; ++lane)
                *out.real_at(batch, i, j + lane) = reals[lane];
        } else if (neighbours && P::encode_all(sum, codes)) {
            i64* to = call.result(batch, i, j);
            for (int lane = 0; lane < lanes; ++lane) to[lane] = i64(codes[lane]);
        } else {
            for (int lane = 0; lane < lanes && j + lane < call.m; ++lane)
                *call.result(batch, i, j + lane) = i64(P::encode(sum[lane]));
        }
    }
};

}  // namespace halfulp
