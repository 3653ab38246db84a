// Chains of steps of matrix units: dot products that are aligned and truncated, exact, pairwise, or staged.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "call.h"

namespace halfulp {

enum class Order { ALIGNED, GROUPED, EXACT, PAIRWISE, STAGED };

// Number of columns that are computed at once.
constexpr int COLUMNS = 8;

// Matrices of numbers in binary32, with significands and exponents as in matrix_unit.py. Rows of `a` have `steps` steps of K
// elements. COLUMNS columns of `b` are a tile: of each element in turn it has the numbers of all its columns. `special` is not
// 0 for a step of a row, or of a tile, with an infinity or NaN. Scales are for each step, or for each group: significands and
// exponents. `zero` is not 0 for a step of a row or column with a zero, whose exponent is below all others.
struct MatrixUnit {
    i64 batches, n, m, steps, threads;
    const std::int32_t *a, *b, *a_exponent, *b_exponent;
    const float *a_real, *b_real;
    const std::int8_t *a_special, *b_special;
    const std::int32_t *a_zero, *b_zero;
    const std::int32_t *a_scale, *b_scale, *a_scale_exponent, *b_scale_exponent;
    const double* start;  // or null
    double* out;
};

inline std::uint64_t bits_of(double x) {
    std::uint64_t word;
    std::memcpy(&word, &x, sizeof word);
    return word;
}

inline double real_of(std::uint64_t word) {
    double x;
    std::memcpy(&x, &word, sizeof x);
    return x;
}

inline double power(i64 exponent) { return real_of(std::uint64_t(exponent + 1023) << 52); }

// Exponent of a finite number; -1023 for zero. Numbers here are not subnormal in binary64.
inline i64 exponent_of(double x) { return i64(bits_of(x) >> 52 & 0x7FF) - 1023; }

inline bool is_finite(double x) { return (bits_of(x) >> 52 & 0x7FF) != 0x7FF; }

// Numbers of all columns of a tile.
template <class T>
using Row __attribute__((vector_size(sizeof(T) * COLUMNS))) = T;

template <class T>
inline Row<T> row(const T* numbers) {
    Row<T> x;
    std::memcpy(&x, numbers, sizeof x);
    return x;
}

// Truncates the magnitude of an integer that is shifted to the left by `places`.
inline i64 truncated(i64 x, i64 places) {
    const i64 size = x < 0 ? -x : x;
    const i64 moved = places >= 0 ? size << places : size >> (places < -63 ? 63 : -places);
    return x < 0 ? -moved : moved;
}

// Integer shifted to the left by `places`, rounded down.
inline i64 floored(i64 x, i64 places) { return places >= 0 ? x << places : x >> (places < -63 ? 63 : -places); }

// A format of results: rounding of a number in binary64 to `man` bits after the point, not below 2^(lowest - man).
struct Result {
    int man, lowest, highest;
    bool nearest;

    double operator()(double x) const {
        const i64 exponent = std::max<i64>(exponent_of(x), lowest);
        const double scaled = x * power(man - exponent);
        const double whole = nearest ? std::nearbyint(scaled) : std::trunc(scaled);
        const double rounded = whole * power(exponent - man);
        return std::fabs(rounded) >= power(highest + 1) ? std::copysign(HUGE_VAL, x) : rounded;
    }

    // Rounds finite numbers; zeros become +0.
    void all(double* x) const {
        i64 word[COLUMNS], down[COLUMNS];
        double scale[COLUMNS], unit[COLUMNS];
        std::memcpy(word, x, sizeof word);
        for (int l = 0; l < COLUMNS; ++l) {
            const i64 own = (word[l] >> 52 & 0x7FF) - 1023, exponent = own < lowest ? lowest : own;
            word[l] = (man - exponent + 1023) << 52, down[l] = (exponent - man + 1023) << 52;
        }
        std::memcpy(scale, word, sizeof scale);
        std::memcpy(unit, down, sizeof unit);
        const double limit = power(highest + 1);
        for (int l = 0; l < COLUMNS; ++l) {
            const double scaled = x[l] * scale[l];
            const double rounded = (nearest ? std::nearbyint(scaled) : std::trunc(scaled)) * unit[l];
            x[l] = (std::fabs(rounded) >= limit ? std::copysign(HUGE_VAL, rounded) : rounded) + 0.0;
        }
    }
};

// Sum of numbers of binary64, rounded to odd.
template <int COUNT>
inline double odd_sum(const double* terms) {
    double parts[COUNT];
    for (int i = 0; i < COUNT; ++i) {
        double x = terms[i];
        for (int j = 0; j < i; ++j) {
            const double y = parts[j], sum = x + y, back = sum - y;
            parts[j] = (x - back) + (y - (sum - back));
            x = sum;
        }
        parts[i] = x;
    }
    // The parts ascend and their bits do not overlap, but zeros may be between them. Sums of neighbours, downwards and upwards,
    // make the last part the nearest number to the sum (Shewchuk 1997, section 2.8), so that the others only tell its side.
    const auto join = [&](int j) {
        const double x = parts[j + 1], y = parts[j], sum = x + y, back = sum - y;
        parts[j] = (x - back) + (y - (sum - back)), parts[j + 1] = sum;
    };
    for (int j = COUNT - 2; j >= 0; --j) join(j);
    for (int j = 0; j < COUNT - 1; ++j) join(j);
    int top = COUNT - 1;
    while (top > 0 && parts[top] == 0) --top;
    double rest = 0;
    for (int j = top - 1; j >= 0 && rest == 0; --j) rest = parts[j];
    const std::uint64_t word = bits_of(parts[top]);
    if (rest == 0 || (word & 1)) return parts[top];
    return real_of((rest < 0) == (parts[top] < 0) ? word + 1 : word - 1);
}

// Real: type in which products of two operands are exact. UP: places by which products of the largest exponent are shifted to
// the left. BITS: of the accumulator after the point.
template <Order ORDER, class Real, int K, int FRACTION, int ZERO, int UP, int BITS, int LOWEST, int GROUP, int HALVES>
struct Steps {
    const MatrixUnit& call;
    const Result round;

    // Exponent of an accumulator.
    static i64 own_exponent(double acc) { return acc == 0 ? LOWEST : std::max<i64>(exponent_of(acc), LOWEST); }
    static i64 significand(double acc, i64 exponent) { return i64(acc * power(BITS - exponent)); }

    // Sum with an infinity or NaN.
    double special(const float* x, const float* y, double acc) const {
        double sum = 0;
        for (int k = 0; k < K; ++k) {
            const double product = double(x[k]) * y[k * COLUMNS];
            sum += ORDER == Order::STAGED && std::fabs(product) >= power(round.highest + 1) ? std::copysign(HUGE_VAL, product) : product;
        }
        return sum + acc;
    }

    // Steps of all columns of a tile, whose numbers and accumulators are finite. Products of operands are exact in `Real`, and
    // so are they in units of the last place of a sum, unless they are truncated to zero. Exponents of zeros are below all
    // others, and marks say in which steps there are zeros. Loops over columns compile to vector instructions.
    void aligned(const std::int32_t* e, const std::int32_t* f, const float* x, const float* y, double* acc, bool row_zero,
                 const std::int32_t* zeros, std::int32_t a_scale, const std::int32_t* b_scale) const {
        std::int32_t top[COLUMNS], scale[COLUMNS];
        i64 held[COLUMNS], words[COLUMNS];
        double sum[COLUMNS], unit[COLUMNS];
        Row<std::int32_t> highest = Row<std::int32_t>{} - 100000;
        for (int k = 0; k < K; ++k) {
            const Row<std::int32_t> exponent = row(f + k * COLUMNS) + e[k];
            highest = exponent > highest ? exponent : highest;
        }
        std::memcpy(top, &highest, sizeof top);
        for (int l = 0; l < COLUMNS; ++l) scale[l] = b_scale ? a_scale + b_scale[l] : 0;
        std::memcpy(held, acc, sizeof held);
        for (int l = 0; l < COLUMNS; ++l) {
            const i64 exponent = (held[l] >> 52 & 0x7FF) - 1023;
            const std::int32_t own = acc[l] == 0 ? ZERO : std::int32_t(exponent < LOWEST ? LOWEST : exponent);
            std::int32_t largest = top[l] + scale[l];
            if (row_zero | zeros[l]) largest = largest > ZERO ? largest : ZERO;
            top[l] = largest > own ? largest : own;
        }
        // Factor of products: 2^(FRACTION - top + scale). It is 0 if it is too small for a product to count; it is beyond
        // `Real` only if all products are zero.
        constexpr std::int32_t MOST = std::numeric_limits<Real>::max_exponent - 1;
        Real factors[COLUMNS];
        for (int l = 0; l < COLUMNS; ++l) {
            const std::int32_t exponent = FRACTION - top[l] + scale[l];
            words[l] = exponent < -900 || exponent > MOST ? 0 : i64(exponent + 1023) << 52;
        }
        std::memcpy(unit, words, sizeof unit);
        for (int l = 0; l < COLUMNS; ++l) factors[l] = Real(unit[l]), sum[l] = 0;
        const Row<Real> factor = row(factors);
        // A sum of whole numbers has room for the terms of one part in 32 bits.
        constexpr int PART = K < 16 ? K : 16;
        for (int first = 0; first < K; first += PART) {
            using Whole = std::conditional_t<sizeof(Real) == 4, std::int32_t, i64>;
            Row<Whole> total{};
            for (int k = first; k < first + PART && k < K; ++k) {
                const auto numbers = __builtin_convertvector(row(y + k * COLUMNS), Row<Real>);
                const Row<Real> term = numbers * Real(x[k]) * factor;
                if constexpr (sizeof(Real) == 4) {
                    total += __builtin_convertvector(term, Row<Whole>);
                } else {
                    for (int l = 0; l < COLUMNS; ++l) sum[l] += std::trunc(term[l]);
                }
            }
            Whole part[COLUMNS];
            std::memcpy(part, &total, sizeof part);
            for (int l = 0; l < COLUMNS; ++l) sum[l] += double(part[l]);
        }
        // The accumulator in units of the last place of the sum, truncated, and the sum in these units.
        for (int l = 0; l < COLUMNS; ++l) words[l] = i64(FRACTION - top[l] + 1023) << 52;
        std::memcpy(unit, words, sizeof unit);
        for (int l = 0; l < COLUMNS; ++l) sum[l] += std::trunc(acc[l] * unit[l]);
        for (int l = 0; l < COLUMNS; ++l) words[l] = i64(top[l] - FRACTION + 1023) << 52;
        std::memcpy(unit, words, sizeof unit);
        for (int l = 0; l < COLUMNS; ++l) acc[l] = sum[l] * unit[l];
        round.all(acc);
    }

    double grouped(const std::int32_t* s, const std::int32_t* t, double acc, const std::int32_t* p, const std::int32_t* pe,
                   const std::int32_t* q, const std::int32_t* qe) const {
        constexpr int GROUPS = K / GROUP;
        i64 value[GROUPS], exponent[GROUPS];
        i64 top = acc == 0 ? ZERO : own_exponent(acc);
        const i64 own = top;
        for (int g = 0; g < GROUPS; ++g) {
            std::int32_t sum = 0, any = 0;
            for (int k = g * GROUP; k < (g + 1) * GROUP; ++k) {
                const std::int32_t product = s[k] * t[k * COLUMNS];
                sum += product;
                any |= product;
            }
            const i64 scale = i64(p[g]) * q[g * COLUMNS];
            value[g] = sum * scale;
            exponent[g] = any == 0 || scale == 0 ? ZERO : i64(pe[g]) + qe[g * COLUMNS];
            top = std::max(top, exponent[g]);
        }
        i64 total = acc == 0 ? 0 : truncated(significand(acc, own), FRACTION - BITS - (top - own));
        for (int g = 0; g < GROUPS; ++g) total += truncated(value[g], UP - (top - exponent[g]));
        return double(total) * power(top - FRACTION);
    }

    double staged(const std::int32_t* s, const std::int32_t* e, const std::int32_t* t, const std::int32_t* f,
                  double acc) const {
        constexpr int NEVER = -999, STAGES = 32;
        i64 sums[HALVES], tops[HALVES];
        for (int half = 0; half < HALVES; ++half) {
            i64 product[K], exponent[K], top = NEVER, sum = 0;
            for (int k = half; k < K; k += HALVES) {
                product[k] = i64(s[k]) * t[k * COLUMNS];
                exponent[k] = product[k] == 0 ? NEVER : e[k] + f[k * COLUMNS];
                top = std::max(top, exponent[k]);
            }
            for (int k = half; k < K; k += HALVES) sum += truncated(product[k], UP - (top - exponent[k]));
            sums[half] = sum, tops[half] = top;
        }
        i64 total = sums[0], top = tops[0];
        if (HALVES == 2) {
            top = std::max(top, tops[HALVES - 1]);
            total = floored(sums[0], tops[0] - top) + floored(sums[HALVES - 1], tops[HALVES - 1] - top);
        }
        const i64 own = own_exponent(acc), largest = std::max(top, own);
        total = floored(total, STAGES - FRACTION - (largest - top));
        i64 held = floored(significand(acc, own), FRACTION - BITS - (largest - own));
        if (HALVES == 2 && own < largest - FRACTION - 1) held = 0;
        const double value = double(total + (held << (STAGES - FRACTION))) * power(largest - STAGES);
        const i64 exponent = std::max<i64>(exponent_of(value), LOWEST);
        return std::floor(value * power(STAGES - 1 - exponent)) * power(exponent - STAGES + 1);
    }

    static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

    // The numbers of operands are flushed already; those of an accumulator become +0.
    double pairwise(const float* x, const float* y, double acc) const {
        float total = std::fabs(acc) < 0x1p-126 ? 0.0f : float(acc);
        for (int first = 0; first < K; first += FRACTION) {
            float level[FRACTION];
            for (int k = 0; k < FRACTION; ++k) level[k] = flushed(x[first + k] * y[(first + k) * COLUMNS]);
            for (int count = FRACTION; count > 1; count /= 2)
                for (int k = 0; k < count / 2; ++k) level[k] = flushed(level[2 * k] + level[2 * k + 1]);
            total = flushed(total + level[0]);
        }
        return total;
    }

    double exact(const float* x, const float* y, double acc) const {
        double terms[K + 1], sum = acc;
        for (int k = 0; k < K; ++k) sum += terms[k] = double(x[k]) * y[k * COLUMNS];
        terms[K] = acc;
        if (!is_finite(sum)) return sum;
        const double total = odd_sum<K + 1>(terms);
        return total == 0 ? 0.0 : round(total);
    }

    // One step of a sum: of a row, and of column l of a tile.
    double step(i64 row, i64 tile, i64 at, int l, double acc) const {
        const i64 i = (row * call.steps + at) * K, j = (tile * call.steps + at) * K * COLUMNS + l;
        if (ORDER == Order::PAIRWISE) return pairwise(call.a_real + i, call.b_real + j, acc);
        if (ORDER == Order::EXACT) return exact(call.a_real + i, call.b_real + j, acc);
        if (ORDER == Order::STAGED || is_special(row, tile, at) || !is_finite(acc)) {
            // Finite operands of staged sums may have infinite products.
            const double sum = special(call.a_real + i, call.b_real + j, acc);
            if (!is_finite(sum)) return sum;
        }
        constexpr int GROUPS = ORDER == Order::GROUPED ? K / GROUP : 1;
        const i64 p = (row * call.steps + at) * GROUPS, q = (tile * call.steps + at) * GROUPS * COLUMNS + l;
        const std::int32_t *s = call.a + i, *t = call.b + j, *e = call.a_exponent + i, *f = call.b_exponent + j;
        if (ORDER == Order::GROUPED)
            return round(grouped(s, t, acc, call.a_scale + p, call.a_scale_exponent + p, call.b_scale + q,
                                 call.b_scale_exponent + q)) + 0.0;
        return round(staged(s, e, t, f, acc));
    }

    bool is_special(i64 row, i64 tile, i64 at) const {
        return call.a_special[row * call.steps + at] || call.b_special[tile * call.steps + at];
    }

    // One step of the sums of a row and of all columns of a tile.
    void steps(i64 row, i64 tile, i64 at, double* acc) const {
        if (ORDER != Order::ALIGNED) {
            for (int l = 0; l < COLUMNS; ++l) acc[l] = step(row, tile, at, l, acc[l]);
            return;
        }
        const i64 i = (row * call.steps + at) * K, j = (tile * call.steps + at) * K * COLUMNS;
        double ends[COLUMNS];
        bool ended = is_special(row, tile, at);
        for (int l = 0; l < COLUMNS; ++l) ended |= !is_finite(acc[l]);
        if (ended)
            for (int l = 0; l < COLUMNS; ++l) {
                ends[l] = special(call.a_real + i, call.b_real + j + l, acc[l]);
                if (!is_finite(ends[l])) acc[l] = 0;
            }
        const std::int32_t* scales = call.b_scale_exponent ? call.b_scale_exponent + (tile * call.steps + at) * COLUMNS : nullptr;
        const std::int32_t scale = scales ? call.a_scale_exponent[row * call.steps + at] : 0;
        aligned(call.a_exponent + i, call.b_exponent + j, call.a_real + i, call.b_real + j, acc,
                call.a_zero[row * call.steps + at], call.b_zero + (tile * call.steps + at) * COLUMNS, scale, scales);
        if (ended)
            for (int l = 0; l < COLUMNS; ++l)
                if (!is_finite(ends[l])) acc[l] = ends[l];
    }

    void run() const {
        constexpr i64 BAND = 8;
        const i64 rows = call.batches * call.n, bands = (rows + BAND - 1) / BAND, tiles = (call.m + COLUMNS - 1) / COLUMNS;
        run_parallel(bands, call.threads, [&](i64 band) {
            for (i64 tile = 0; tile < tiles; ++tile)
                for (i64 row = band * BAND; row < std::min(rows, (band + 1) * BAND); ++row) {
                    const i64 first = tile * COLUMNS, count = std::min<i64>(COLUMNS, call.m - first);
                    double acc[COLUMNS] = {};
                    for (i64 l = 0; l < count; ++l)
                        if (call.start) acc[l] = call.start[row * call.m + first + l];
                    for (i64 at = 0; at < call.steps; ++at) steps(row, row / call.n * tiles + tile, at, acc);
                    for (i64 l = 0; l < count; ++l) call.out[row * call.m + first + l] = acc[l];
                }
        });
    }
};

}  // namespace halfulp
