// Accumulation of blocks: sums of exact dot products, each times the scales of its blocks, in binary64 lanes.
//
// A term is exact in a lane if the places of its elements and scales are near enough; else the step of an element is computed
// in 128-bit integers.
#pragma once
#include "floats.h"

namespace halfulp {

// Operands in real numbers. Those of b are in panels of some columns, the last one padded. Scales are positive or
// NaN. The numbers of a step are multiples of 2^low and below 2^top, with their scale.
struct Dots {
    i64 single;                                          // 1: elements are in binary32, which holds their dot products
    const void *left, *right;                            // (batch, row, step, place), (batch, panel, step, place, column)
    const double *left_scale, *right_scale;              // (batch, row, step), (batch, panel, step, column)
    const std::int32_t *left_low, *left_top, *right_low, *right_top;  // (batch, row, step), (batch, panel, step)
    const i64 *left_of, *right_of;                       // batch of each operand for each batch of the result
    const std::int32_t* places;                          // as right, with SELECTS: place in the step of left
};

// S has the members of a specification of FloatSteps but a and b, and LENGTH, the products of a dot product, LEFT, the
// elements of a in a step, SELECTS, true if each product selects one of them, ROUNDING, SATURATION, A_QUANTUM and B_QUANTUM.
// T is the type of elements and dot products.
template <class S, class T>
struct Folds {
    using P = FloatSteps<S, 64>;
    using V = typename P::V;
    using U = typename P::U;
    using VT = typename Lanes<8 * sizeof(T)>::F;
    static constexpr int lanes = Lanes<64>::count, ROWS = 4, VECTORS = 2, COLUMNS = VECTORS * BYTES / sizeof(T);
    static constexpr int PARTS = COLUMNS / lanes;  // vectors of sums in a row
    static constexpr i64 TALL = 64, WIDE = 8;      // rows and panels of a task

    const Call& call;
    const Dots& given;
    const i64 panels = (call.m + COLUMNS - 1) / COLUMNS, steps = call.k;
    const int more = S::LENGTH > 1 ? 64 - __builtin_clzll(u64(S::LENGTH) - 1) : 0;  // bits of a sum above those of a product

    void run() const {
        const i64 tall = (call.n + TALL - 1) / TALL, wide = (panels + WIDE - 1) / WIDE;
        run_parallel(call.batches * tall * wide, call.threads, [&](i64 task) {
            const Machine machine(P::FENV);
            const i64 first = task % wide * WIDE, top = task / wide % tall * TALL, batch = task / wide / tall;
            for (i64 panel = first; panel < std::min(first + WIDE, panels); ++panel)
                for (i64 row = top; row < std::min(top + TALL, call.n); row += ROWS) block(batch, row, panel);
        });
    }

private:
    static V part_of(const VT (&dot)[VECTORS], int part) {
        T numbers[lanes];
        std::memcpy(numbers, reinterpret_cast<const T*>(dot) + part * lanes, sizeof numbers);
        V found{};
        for (int lane = 0; lane < lanes; ++lane) found[lane] = double(numbers[lane]);
        return found;
    }

    void block(i64 batch, i64 top, i64 panel) const {
        const i64 left = panel * COLUMNS, of_b = given.right_of[batch] * panels + panel;
        V sum[ROWS][PARTS];
        LaneWords<typename S::SumWords, 64> random[ROWS][PARTS];
        alignas(64) U words[STEPS][ROWS][PARTS];
        const auto decode = P::decoder_start();
        i64 of_a[ROWS];
        for (int row = 0; row < ROWS; ++row) {
            const i64 i = std::min(top + row, call.n - 1);
            of_a[row] = (given.left_of[batch] * call.n + i) * steps;
            for (int part = 0; part < PARTS; ++part) {
                const i64 j = left + part * lanes, there = std::max<i64>(0, std::min<i64>(lanes, call.m - j));
                sum[row][part] = V{};
                if (call.start.data)
                    for (i64 lane = 0; lane < there; ++lane) sum[row][part][lane] = decode(u64(*call.start.at(batch, i, j + lane)));
                random[row][part].begin(call, batch, i, there ? j : left, int(there ? there : 1));
            }
        }
        const V factor = all<V>(power(S::B_SCALE));
        for (i64 step = 0; step < steps; ++step) {
            if (step % STEPS == 0)
                for (int row = 0; row < ROWS; ++row)
                    for (int part = 0; part < PARTS; ++part)
                        random[row][part].fill(&words[0][row][part], int(std::min<i64>(STEPS, steps - step)), ROWS * PARTS);
            VT dots[ROWS][VECTORS];
            multiply(of_a, step, (of_b * steps + step) * S::LENGTH * COLUMNS, dots);
            const double* scales = given.right_scale + (of_b * steps + step) * COLUMNS;
            for (int row = 0; row < ROWS; ++row) {
                const i64 at = of_a[row] + step;
                const int low = given.left_low[at] + given.right_low[of_b * steps + step];
                const int high = given.left_top[at] + given.right_top[of_b * steps + step] + more;
                const bool exact = high - low <= 53;
                const bool near = low + S::B_SCALE >= -1074 && high + S::B_SCALE < 1023;
                const V up = all<V>(given.left_scale[at]);
#pragma GCC unroll 8
                for (int part = 0; part < PARTS; ++part) {
                    const V dot = part_of(dots[row], part), scale = up * load<V>(scales + part * lanes) * factor;
                    const U word = words[step % STEPS][row][part];
                    V next = P::template step<true>(sum[row][part], dot, scale, word, U{});
                    if (!exact || !near)
                        for (int lane = 0; lane < lanes && left + part * lanes + lane < call.m; ++lane)
                            if (!exact || dot[lane] != 0)
                                next[lane] = exactly(sum[row][part][lane], at, of_b * steps + step, part * lanes + lane, word[lane]);
                    sum[row][part] = next;
                }
            }
        }
        for (int row = 0; row < ROWS && top + row < call.n; ++row)
            for (int part = 0; part < PARTS; ++part)
                for (i64 lane = 0, j = left + part * lanes; lane < lanes && j < call.m; ++lane, ++j)
                    *call.result(batch, top + row, j) = i64(P::encode(sum[row][part][lane]));
    }

    // Dot products of a step. A sum of zeros is -0 if all of them are, or any rounded down, as in an exact sum.
    void multiply(const i64 (&of_a)[ROWS], i64 step, i64 at_b, VT (&dots)[ROWS][VECTORS]) const {
        const T *x[ROWS], *y = static_cast<const T*>(given.right) + at_b;
        VT dot[ROWS][VECTORS];
        for (int row = 0; row < ROWS; ++row) {
            x[row] = static_cast<const T*>(given.left) + (of_a[row] + step) * S::LEFT;
            for (int vector = 0; vector < VECTORS; ++vector) dot[row][vector] = all<VT>(T(S::ROUNDING.mode == RD ? 0.0 : -0.0));
        }
        for (int at = 0; at < S::LENGTH; ++at, y += COLUMNS) {
            VT right[VECTORS];
#pragma GCC unroll 2
            for (int vector = 0; vector < VECTORS; ++vector) right[vector] = load<VT>(y + vector * (COLUMNS / VECTORS));
#pragma GCC unroll 4
            for (int row = 0; row < ROWS; ++row) {
                const VT both = all<VT>(x[row][S::SELECTS ? 0 : at]);
#pragma GCC unroll 2
                for (int vector = 0; vector < VECTORS; ++vector)
                    if constexpr (S::SELECTS)
                        dot[row][vector] += selected(x[row], at_b + at * COLUMNS + vector * (COLUMNS / VECTORS)) * right[vector];
                    else
                        dot[row][vector] += both * right[vector];
            }
        }
        std::memcpy(dots, dot, sizeof dot);
    }

    // The elements of a that are factors of a vector of b; `first` is the first number of that vector.
    VT selected(const T* x, i64 first) const {
        T found[COLUMNS / VECTORS];
        for (int lane = 0; lane < COLUMNS / VECTORS; ++lane) found[lane] = x[given.places[first + lane]];
        return load<VT>(found);
    }

    static constexpr double power(int exponent) {
        double found = 1;
        for (int step = 0; step < (exponent < 0 ? -exponent : exponent); ++step) found *= exponent < 0 ? 0.5 : 2;
        return found;
    }

    // A step of one sum; `at_a` and `at_b` count steps of rows and panels.
    __attribute__((noinline)) double exactly(double sum, i64 at_a, i64 at_b, i64 column, u64 word) const {
        const T* x = static_cast<const T*>(given.left) + at_a * S::LEFT;
        const T* y = static_cast<const T*>(given.right) + at_b * S::LENGTH * COLUMNS + column;
        const double scale = given.left_scale[at_a] * given.right_scale[at_b * COLUMNS + column];
        const double up_a = power(-S::A_QUANTUM), up_b = power(-S::B_QUANTUM);
        __int128 total = 0;
        bool nan = scale != scale, plus = false, minus = false, any = false, every = true;
        for (i64 at = 0; at < S::LENGTH; ++at) {
            i64 place = at;
            if constexpr (S::SELECTS) place = given.places[(at_b * S::LENGTH + at) * COLUMNS + column];
            const double p = double(x[place]), q = double(y[at * COLUMNS]), product = p * q;
            const bool negative = std::signbit(p) != std::signbit(q);
            any |= negative, every &= negative;
            if (product != product)
                nan = true;
            else if (std::isinf(product))
                (negative ? minus : plus) = true;
            else
                total += __int128(i64(p * up_a)) * i64(q * up_b);
        }
        Raw term{0, S::A_QUANTUM + S::B_QUANTUM, S::ROUNDING.mode == RD ? any : every, nan || (plus && minus), false, false};
        if (!term.nan) {
            u64 bits;
            std::memcpy(&bits, &scale, sizeof bits);
            u64 significand = (bits & ones(52)) | u64(1) << 52;
            const int zeros = __builtin_ctzll(significand);
            significand >>= zeros;
            term.exponent += int(bits >> 52) - 1023 - 52 + zeros;
            term.inf = plus || minus;
            if (total) term.sign = total < 0;
            term.significand = u128(total < 0 ? -total : total) * significand;
            if (term.inf) term.sign = minus, term.significand = 1;
        }
        const Raw held = S::o.unpack(P::encode(sum));
        const u64 code = S::o.pack(add(S::ROUNDING.mode, term, held), S::ROUNDING, S::SATURATION, word);
        return P::template scalar<S::o>(code, S::O_SCALE);
    }
};

}  // namespace halfulp
