// Blocked matrix product in vector lanes: operands are decoded and packed once, sums stay in registers, and threads share
// the blocks.
//
// The parameter P is a type with these members:
//  - BITS of a lane; V, a vector, and its Scalar; ROWS and VECTORS of a block; FENV, the rounding mode of the processor
//  - SumWords and ProductWords, the sources of random words
//  - decoder_a, decoder_b, decoder_start and encode: conversion between codes and scalars; encode_all for a whole vector
//  - Extremes, a summary of operands, and accepts(), which returns a Verdict on them
//  - step<CHECKED>(sum, a, b, word, product word), a step of the sums
#pragma once
#include <memory>

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

// Decision of a kernel on given operands: results would be inexact; no step can overflow; each step must check overflow.
enum Verdict { REFUSED, UNCHECKED, CHECKED };

template <class P>
struct Blocks {
    using V = typename P::V;
    using Scalar = typename P::Scalar;
    using U = typename Lanes<P::BITS>::U;
    static constexpr int lanes = BYTES * 8 / P::BITS, rows = P::ROWS, vectors = P::VECTORS, columns = lanes * vectors;
    static constexpr bool sum_words = !std::is_same<typename P::SumWords, NoWords>::value;
    static constexpr bool product_words = !std::is_same<typename P::ProductWords, NoWords>::value;
    static constexpr i64 GROUP = 4;  // blocks of rows that share a panel of b
    static constexpr i64 BAND = 16;  // rows of b that one task packs

    const Call& call;
    const i64 panels = (call.m + columns - 1) / columns, row_blocks = (call.n + rows - 1) / rows;
    const i64 bands = (call.k + BAND - 1) / BAND;
    Aligned<Scalar> a{call.batches * row_blocks * rows * call.k}, b{call.packs * panels * columns * call.k};

    explicit Blocks(const Call& arguments) : call(arguments) {}

    int run() {
        const Machine usual(FE_TONEAREST);
        std::vector<typename P::Extremes> seen(size_t(call.batches * row_blocks + call.packs * bands) + 1);
        run_parallel(call.batches * row_blocks, call.threads, [&](i64 task) { pack_a(task, seen[size_t(task)]); });
        const i64 after = call.batches * row_blocks;
        run_parallel(call.packs * bands, call.threads, [&](i64 task) { pack_b(task, seen[size_t(after + task)]); });
        typename P::Extremes of_a, of_b, of_start;
        for (i64 task = 0; task < after; ++task) of_a.join(seen[size_t(task)]);
        for (i64 task = 0; task < call.packs * bands; ++task) of_b.join(seen[size_t(after + task)]);
        const auto decode_start = P::decoder_start();
        if (call.start.data)
            for (i64 batch = 0; batch < call.batches; ++batch)
                for (i64 i = 0; i < call.n; ++i)
                    for (i64 j = 0; j < call.m; ++j) of_start.see(decode_start(u64(*call.start.at(batch, i, j))));
        const Verdict verdict = P::accepts(of_a, of_b, of_start, call.k);
        if (verdict == REFUSED) return 1;
        const i64 groups = (row_blocks + GROUP - 1) / GROUP;
        // With few rows, threads share the panels too.
        i64 parts = call.batches * groups >= 4 * call.threads ? 1 : (4 * call.threads + groups - 1) / (groups ? groups : 1);
        if (parts > panels) parts = panels;
        run_parallel(call.batches * groups * parts, call.threads, [&](i64 task) {
            const Machine machine(P::FENV);
            const i64 part = task % parts, group = task / parts % groups, batch = task / parts / groups;
            for (i64 panel = panels * part / parts; panel < panels * (part + 1) / parts; ++panel)
                for (i64 block = group * GROUP; block < (group + 1) * GROUP && block < row_blocks; ++block)
                    if (verdict == CHECKED)
                        one_block<true>(batch, block, panel);
                    else
                        one_block<false>(batch, block, panel);
        });
        return 0;
    }

private:
    // Decodes `count` numbers; the usual distance of 1 is a constant, so that the compiler can unroll the loop.
    template <class Decode>
    static void unpack(const i64* from, i64 distance, i64 count, const Decode& decode, Scalar* to, int spread) {
        if (distance == 1)
            for (i64 index = 0; index < count; ++index) to[index * spread] = decode(u64(from[index]));
        else
            for (i64 index = 0; index < count; ++index) to[index * spread] = decode(u64(from[index * distance]));
    }

    void pack_a(i64 task, typename P::Extremes& seen) {
        const auto decode = P::decoder_a();
        const i64 batch = task / row_blocks, first = task % row_blocks * rows;
        Scalar* to = a.data + task * rows * call.k;
        typename P::Extremes own;
        for (int row = 0; row < rows; ++row) {
            const i64 i = first + row < call.n ? first + row : call.n - 1;
            unpack(call.a.at(batch, i, 0), call.a.column, call.k, decode, to + row, rows);
        }
        for (i64 index = 0; index < rows * call.k; ++index) own.see(to[index]);
        seen = own;
    }

    void pack_b(i64 task, typename P::Extremes& seen) {
        const auto decode = P::decoder_b();
        const i64 pack = task / bands, first = task % bands * BAND;
        const i64 steps = call.k - first < BAND ? call.k - first : BAND, panel_size = columns * call.k;
        Scalar* const band = b.data + pack * panels * panel_size + first * columns;
        const auto pack_row = [&](i64 step, i64 panel) {
            const i64 left = panel * columns, there = call.m - left < columns ? call.m - left : columns;
            Scalar* const to = band + panel * panel_size + step * columns;
            unpack(call.b.at(call.pack_batch[pack], first + step, left), call.b.column, there, decode, to, 1);
            for (i64 j = there; j < columns; ++j) to[j] = 0;
        };
        // The inner loop runs along the dimension that is contiguous in memory.
        if (call.b.column == 1)
            for (i64 step = 0; step < steps; ++step)
                for (i64 panel = 0; panel < panels; ++panel) pack_row(step, panel);
        else
            for (i64 panel = 0; panel < panels; ++panel)
                for (i64 step = 0; step < steps; ++step) pack_row(step, panel);
        typename P::Extremes own;
        for (i64 panel = 0; panel < panels; ++panel)
            for (i64 index = 0; index < steps * columns; ++index) own.see(band[panel * panel_size + index]);
        seen = own;
    }

    template <bool CHECK>
    __attribute__((noinline)) void one_block(i64 batch, i64 block, i64 panel) {
        const Scalar* x = a.data + (batch * row_blocks + block) * rows * call.k;
        const Scalar* y = b.data + (call.pack_of[batch] * panels + panel) * columns * call.k;
        const i64 top = block * rows, left = panel * columns;
        const auto decode_start = P::decoder_start();
        V sum[rows][vectors];
        LaneWords<typename P::SumWords, P::BITS> of_sum[rows][vectors];
        LaneWords<typename P::ProductWords, P::BITS> of_product[rows][vectors];
        for (int row = 0; row < rows; ++row)
            for (int vector = 0; vector < vectors; ++vector) {
                const i64 i = top + row < call.n ? top + row : call.n - 1;
                i64 j = left + vector * lanes;
                const int there = j >= call.m ? 0 : call.m - j < lanes ? int(call.m - j) : lanes;
                V begin{};
                if (call.start.data)
                    for (int lane = 0; lane < there; ++lane)
                        begin[lane] = decode_start(u64(*call.start.at(batch, i, j + lane)));
                sum[row][vector] = begin;
                if (there == 0) j = left;  // lanes without a sum take the random words of other lanes
                of_sum[row][vector].begin(call, batch, i, j, there ? there : 1);
                of_product[row][vector].begin(call, batch, i, j, there ? there : 1);
            }
        alignas(64) U words[sum_words ? STEPS : 1][rows][vectors], others[product_words ? STEPS : 1][rows][vectors];
        for (i64 first = 0; first < call.k; first += STEPS) {
            const int steps = call.k - first < STEPS ? int(call.k - first) : STEPS;
            for (int row = 0; row < rows; ++row)
                for (int vector = 0; vector < vectors; ++vector) {
                    if (sum_words) of_sum[row][vector].fill(&words[0][row][vector], steps, rows * vectors);
                    if (product_words) of_product[row][vector].fill(&others[0][row][vector], steps, rows * vectors);
                }
            for (int step = 0; step < steps; ++step, x += rows, y += columns) {
                V right[vectors];
                for (int vector = 0; vector < vectors; ++vector) right[vector] = load<V>(y + vector * lanes);
#pragma GCC unroll 16
                for (int row = 0; row < rows; ++row) {
                    const V left_of_all = all<V>(x[row]);
#pragma GCC unroll 16
                    for (int vector = 0; vector < vectors; ++vector)
                        sum[row][vector] = P::template step<CHECK>(
                            sum[row][vector], left_of_all, right[vector], sum_words ? words[step][row][vector] : U{},
                            product_words ? others[step][row][vector] : U{});
                }
            }
        }
        for (int row = 0; row < rows && top + row < call.n; ++row)
            for (int vector = 0; vector < vectors; ++vector) store(batch, top + row, left + vector * lanes, sum[row][vector]);
    }

    void store(i64 batch, i64 i, i64 j, V sum) {
        i64* to = call.out + call.element(batch, i, j);
        alignas(64) typename Lanes<P::BITS>::Unsigned codes[lanes];
        if (call.across == 1 && j + lanes <= call.m && P::encode_all(sum, codes)) {
            for (int lane = 0; lane < lanes; ++lane) to[lane] = i64(codes[lane]);
        } else {
            for (int lane = 0; lane < lanes && j + lane < call.m; ++lane, to += call.across) *to = i64(P::encode(sum[lane]));
        }
    }
};

}  // namespace halfulp
