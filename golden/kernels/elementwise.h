// Arithmetic on tensors of real numbers: chains of element-wise operations, and sums of many numbers, whose every result is
// rounded to a floating-point format.
//
// Numbers are in binary64 lanes, and the processor rounds toward zero: an operation on numbers of binary32 gives its exact
// result truncated, with the last bit set if it is inexact (rounding to odd), which rounds to every format with at least two
// bits less as the exact result does (Boldo and Melquiond, IEEE TC 57(4), 2008).
#pragma once
#include "floats.h"

namespace halfulp {

// A format of at most 24 bits of precision, and a rounding. `drop` bits of a word of binary64 are discarded; results that
// are no finite numbers are given as numbers of binary64. In a compound format with `parts` numbers of the format, results
// are sums of parts, rounded to binary32.
struct Target {
    i64 mode, bits, drop, subnormals, signed_zero, parts;
    double smallest, largest;  // smallest normal number, largest finite number
    double nan, plus_inf, minus_inf, plus_over, minus_over;
    i64 nan_code, inf_code, sign_code;
};

using Lane = Word<64>;
using Number = Lane::F;
using Bits = Lane::U;
constexpr int LANES = Lanes<64>::count;

inline Bits chosen(Bits mask, Bits x, Bits y) { return (x & mask) | (y & ~mask); }
inline Number magnitude(Number x) { return (Number)((Bits)x & Lane::magnitude); }

template <Mode MODE>
struct Rounder64 {
    const Bits low;
    const int drop, up;
    const Bits subnormal, flush;
    const Number smallest, largest;
    const Bits nan, plus_inf, minus_inf, plus_over, minus_over, negative_zero;

    explicit Rounder64(const Target& to)
        : low(all<Bits>((u64(1) << to.drop) - 1)),
          drop(int(to.drop)),
          up(int(to.drop - to.bits)),
          subnormal(all<Bits>(to.subnormals ? ~u64(0) : u64(0))),
          flush(~subnormal),
          smallest(all<Number>(to.smallest)),
          largest(all<Number>(to.largest)),
          nan(all<Bits>(to.nan)),
          plus_inf(all<Bits>(to.plus_inf)),
          minus_inf(all<Bits>(to.minus_inf)),
          plus_over(all<Bits>(to.plus_over)),
          minus_over(all<Bits>(to.minus_over)),
          negative_zero(all<Bits>(u64(to.signed_zero ? 0 : Lane::sign))) {}

    // Subnormal numbers are added to the smallest normal one: then the same bits of the word are discarded as of others.
    Number operator()(Number x, Bits random) const {
        const Bits word = (Bits)x, minus = Lane::below_zero(word);
        const Number given = magnitude(x);
        const Number more = (Number)((Bits)smallest & (Bits)(given < smallest) & subnormal);
        const Number placed = given + more;
        Bits bits = (Bits)placed | ((Bits)((placed - more) != given) & 1);
        bits += increment<64, MODE>(word, low, bits >> drop & 1, random << up);
        const Number rounded = (Number)(bits & ~low) - more;
        Bits found = (Bits)rounded & ~((Bits)(rounded < smallest) & flush);
        const Bits sign = word & Lane::sign;
        found |= sign & ~((Bits)((Number)found == 0) & negative_zero);
        found = chosen((Bits)(rounded > largest), chosen(minus, minus_over, plus_over), found);
        found = chosen((Bits)(given > std::numeric_limits<double>::max()), chosen(minus, minus_inf, plus_inf), found);
        return (Number)chosen((Bits)(x != x), nan, found);
    }
};

inline Bits inexact(Number error) { return differs<64>(error) & 1; }

// Exact sums, differences, products, quotients and roots, rounded to odd. An exactly cancelled sum is -0 if it is rounded
// down.
struct Sum {
    template <Mode MODE>
    static Number run(Number x, Number y) {
        // The total is truncated: if it is inexact, total - x is truncated to less than y, or is exact and not y.
        const Number total = x + y;
        const Bits word = (Bits)total | inexact((total - x) - y);
        if (MODE != RD) return (Number)word;
        return (Number)(word | ((Bits)(total == 0) & ((Bits)x ^ (Bits)y) & Lane::sign));
    }
};

struct Difference {
    template <Mode MODE>
    static Number run(Number x, Number y) {
        return Sum::run<MODE>(x, (Number)((Bits)y ^ Lane::sign));
    }
};

struct Multiplication {
    template <Mode MODE>
    static Number run(Number x, Number y) {
        return x * y;
    }
};

struct Division {
    template <Mode MODE>
    static Number run(Number x, Number y) {
        const Number quotient = x / y;
        Number rest{};
        for (int lane = 0; lane < LANES; ++lane) rest[lane] = __builtin_fma(-quotient[lane], y[lane], x[lane]);
        return (Number)((Bits)quotient | inexact(rest));
    }
};

struct SquareRoot {
    template <Mode MODE>
    static Number run(Number x, Number) {
        Number root{}, rest{};
        for (int lane = 0; lane < LANES; ++lane) root[lane] = __builtin_sqrt(x[lane]);
        for (int lane = 0; lane < LANES; ++lane) rest[lane] = __builtin_fma(-root[lane], root[lane], x[lane]);
        return (Number)((Bits)root | inexact(rest));
    }
};

struct Identity {
    template <Mode MODE>
    static Number run(Number x, Number) {
        return x;
    }
};

// Number of elements that a chain computes at once.
constexpr i64 BLOCK = 512;

// Copies numbers; returns true if all are numbers of a format with that precision and range. It is false for compound ones.
inline bool copy_numbers(const Target& to, const double* x, double* out, i64 count) {
    if (to.parts > 1) return false;
    const Bits low = all<Bits>((u64(1) << to.drop) - 1), negative_zero = all<Bits>(u64(to.signed_zero ? 0 : Lane::sign));
    const Number smallest = all<Number>(to.smallest), largest = all<Number>(to.largest);
    Bits others{};
    for (i64 at = 0; at < count; at += LANES) {
        const Number given = load<Number>(x + at), size = magnitude(given);
        const Bits usual = (Bits)(size >= smallest) & (Bits)(size <= largest);
        const Bits zero = (Bits)(size == 0) & ~((Bits)given & negative_zero);
        others |= ((Bits)given & low) | ~(usual | zero);
        std::memcpy(out + at, &given, sizeof given);
    }
    bool all_are = true;
    for (int lane = 0; lane < LANES; ++lane) all_are &= others[lane] == 0;
    return all_are;
}

template <Mode MODE, class Operation>
void round_each(const Target& to, const double* x, const double* y, const double* words, double* out, i64 count) {
    const Rounder64<MODE> round(to);
    for (i64 at = 0; at < count; at += LANES) {
        const Bits random = MODE == SR && words ? load<Bits>(words + at) : Bits{};
        const Number found = round(Operation::template run<MODE>(load<Number>(x + at), load<Number>(y + at)), random);
        std::memcpy(out + at, &found, sizeof found);
    }
}

template <Mode MODE>
using OfMode = std::integral_constant<Mode, MODE>;

template <class Work>
void with_mode(i64 mode, const Work& work) {
    switch (Mode(mode)) {
        case RN: return work(OfMode<RN>{});
        case RA: return work(OfMode<RA>{});
        case RH: return work(OfMode<RH>{});
        case RHU: return work(OfMode<RHU>{});
        case RHD: return work(OfMode<RHD>{});
        case RZ: return work(OfMode<RZ>{});
        case RU: return work(OfMode<RU>{});
        case RD: return work(OfMode<RD>{});
        case RO: return work(OfMode<RO>{});
        case SR: case EXACT: return work(OfMode<SR>{});
    }
}

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr Target TO_BINARY32{RN,       0,        29,        1,        1, 1, 0x1p-126, std::numeric_limits<float>::max(),
                             std::numeric_limits<double>::quiet_NaN(), INFINITE, -INFINITE, INFINITE, -INFINITE, 0, 0, 0};

// Rounds numbers and their remainders to the parts of a compound format, as values.py does. Remainders and sums of parts
// have bits of the numbers only, and are exact; after infinities and NaN they are +0.
inline void split(const Target& to, double* numbers, i64 count) {
    with_mode(to.mode, [&](auto mode) {
        constexpr Mode last = decltype(mode)::value, leading = last == RU || last == RD || last == RO ? RZ : last;
        Target first = to;
        // Numbers that are truncated overflow to the largest one.
        if (leading != last) first.plus_over = to.largest, first.minus_over = -to.largest;
        const Rounder64<leading> to_part(first);
        const Rounder64<last> to_last(to);
        const Rounder64<RN> to_binary32(TO_BINARY32);
        for (i64 at = 0; at < count; at += LANES) {
            Number rest = load<Number>(numbers + at), total{};
            for (i64 place = 0; place < to.parts; ++place) {
                const Number part = place == to.parts - 1 ? to_last(rest, Bits{}) : to_part(rest, Bits{});
                total = place ? total + part : part;
                rest -= part;
                if (last == RD) rest = (Number)((Bits)rest | ((Bits)(rest == 0) & Lane::sign));
                rest = (Number)((Bits)rest & (Bits)(magnitude(rest) <= std::numeric_limits<double>::max()));
            }
            total = to_binary32(total, Bits{});
            std::memcpy(numbers + at, &total, sizeof total);
        }
    });
}

template <class Operation>
void each(const Target& to, const double* x, const double* y, const double* words, double* out, i64 count) {
    if (to.parts == 1)
        return with_mode(to.mode, [&](auto mode) {
            round_each<decltype(mode)::value, Operation>(to, x, y, words, out, count);
        });
    for (i64 at = 0; at < count; at += LANES) {
        const Number given = load<Number>(x + at), other = load<Number>(y + at);
        const Number odd = to.mode == RD ? Operation::template run<RD>(given, other) : Operation::template run<RN>(given, other);
        std::memcpy(out + at, &odd, sizeof odd);
    }
    split(to, out, count);
}

// Results of a function, rounded to odd, by the codes of numbers of the format.
inline void look_up(const Target& to, const double* table, const double* x, double* out, i64 count) {
    const i64 hidden = i64(1) << (52 - to.drop);
    u64 first;
    std::memcpy(&first, &to.smallest, sizeof first);
    for (i64 at = 0; at < count; ++at) {
        const double given = std::fabs(x[at]), placed = given < to.smallest ? given + to.smallest : given;
        u64 word;
        std::memcpy(&word, &placed, sizeof word);
        i64 code = i64((word - first) >> to.drop) + (given < to.smallest ? 0 : hidden);
        code = given > std::numeric_limits<double>::max() ? to.inf_code : code;
        code = std::signbit(x[at]) ? code | to.sign_code : code;
        out[at] = table[x[at] != x[at] ? to.nan_code : code];
    }
}

enum Type { BINARY32, BINARY64, BFLOAT16, BINARY16, WORD };

struct Bfloat16 {
    std::uint16_t word;
    operator double() const {
        const u32 wide = u32(word) << 16;
        float value;
        std::memcpy(&value, &wide, sizeof value);
        return value;
    }
    // Numbers of the format only.
    explicit Bfloat16(double number) {
        const float value = float(number);
        u32 wide;
        std::memcpy(&wide, &value, sizeof wide);
        word = std::uint16_t(wide >> 16);
    }
};

struct Binary16 {
    std::uint16_t word;
    operator double() const {
        const u64 field = word >> 10 & 31, rest = word & 1023;
        const double value = field ? std::ldexp(double(rest + 1024), int(field) - 25) : std::ldexp(double(rest), -24);
        const double found = field < 31 ? value : rest ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
        return word >> 15 ? -found : found;
    }
    // Numbers of the format only.
    explicit Binary16(double number) {
        static constexpr Float format{5, 10, 15, IEEE, true};
        u64 wide;
        std::memcpy(&wide, &number, sizeof wide);
        static constexpr Float binary64{11, 52, 1023, IEEE, true};
        word = std::uint16_t(format.pack(binary64.unpack(wide), {RZ, 0, 0}, Saturation::SAT, 0));
    }
};

constexpr int DIMS = 8, OPERANDS = 20, REGISTERS = 48, STEPS_OF_CHAIN = 48;

// A tensor, or a random word for each element of it.
struct Operand {
    void* data;
    i64 type, strides[DIMS];
};

// Operations by index: of `Chain::run`.
struct ChainStep {
    i64 operation, target, x, y, words, to;  // registers; words: -1 without random words
    const double* table;
};

// Element-wise operations on registers. The first registers hold the operands, and at the end the results are stored.
struct Chain {
    i64 dims, sizes[DIMS], operands, results, steps, threads;
    Operand operand[OPERANDS];
    i64 result[OPERANDS];  // registers of the results; they are the last operands
    const Target* targets;
    ChainStep step[STEPS_OF_CHAIN];
};

// Runs of neighbouring elements of a tensor in the order of an iteration.
template <class Work>
void for_runs(const Chain& chain, const Operand& operand, i64 first, i64 count, const Work& work) {
    i64 at[DIMS], offset = 0, rest = first;
    for (i64 dim = chain.dims - 1; dim >= 0; --dim) {
        at[dim] = rest % chain.sizes[dim];
        rest /= chain.sizes[dim];
        offset += at[dim] * operand.strides[dim];
    }
    const i64 inner = chain.dims - 1;
    for (i64 done = 0; done < count;) {
        const i64 left = chain.sizes[inner] - at[inner], run = left < count - done ? left : count - done;
        work(offset, done, run);
        done += run;
        offset += run * operand.strides[inner];
        at[inner] += run;
        for (i64 dim = inner; dim > 0 && at[dim] == chain.sizes[dim]; --dim) {
            offset += operand.strides[dim - 1] - at[dim] * operand.strides[dim];
            at[dim] = 0;
            ++at[dim - 1];
        }
    }
}

template <class From, class Into>
void copy_run(const From* from, i64 step, Into* to, i64 count) {
    if (step == 1)
        for (i64 at = 0; at < count; ++at) to[at] = Into(from[at]);
    else if (step == 0)
        for (i64 at = 0; at < count; ++at) to[at] = Into(from[0]);
    else
        for (i64 at = 0; at < count; ++at) to[at] = Into(from[at * step]);
}

template <class T>
void load_as(const Chain& chain, const Operand& operand, i64 first, i64 count, double* to) {
    const T* data = static_cast<const T*>(operand.data);
    for_runs(chain, operand, first, count, [&](i64 offset, i64 done, i64 run) {
        copy_run(data + offset, operand.strides[chain.dims - 1], to + done, run);
    });
}

inline void load_block(const Chain& chain, const Operand& operand, i64 first, i64 count, double* to) {
    switch (operand.type) {
        case BINARY32: load_as<float>(chain, operand, first, count, to); break;
        case BFLOAT16: load_as<Bfloat16>(chain, operand, first, count, to); break;
        case BINARY16: load_as<Binary16>(chain, operand, first, count, to); break;
        default: load_as<double>(chain, operand, first, count, to);  // words too, as bits
    }
    for (i64 at = count; at % LANES; ++at) to[at] = 0;
}

template <class T>
void store_as(const Chain& chain, const Operand& operand, i64 first, i64 count, const double* from) {
    T* data = static_cast<T*>(operand.data);
    const i64 step = operand.strides[chain.dims - 1];
    for_runs(chain, operand, first, count, [&](i64 offset, i64 done, i64 run) {
        if (step == 1)
            for (i64 at = 0; at < run; ++at) data[offset + at] = T(from[done + at]);
        else
            for (i64 at = 0; at < run; ++at) data[offset + at * step] = T(from[done + at]);
    });
}

inline void store_block(const Chain& chain, const Operand& operand, i64 first, i64 count, const double* from) {
    switch (operand.type) {
        case BINARY32: return store_as<float>(chain, operand, first, count, from);
        case BFLOAT16: return store_as<Bfloat16>(chain, operand, first, count, from);
        case BINARY16: return store_as<Binary16>(chain, operand, first, count, from);
        default: return store_as<double>(chain, operand, first, count, from);
    }
}

inline void run_step(const ChainStep& step, const Target* targets, double* registers, i64 count) {
    const Target& to = targets[step.target];
    const auto at = [&](i64 index) { return registers + index * BLOCK; };
    const double *x = at(step.x), *y = at(step.y), *words = step.words < 0 ? nullptr : at(step.words);
    double* out = at(step.to);
    switch (step.operation) {
        case 0:
            if (!copy_numbers(to, x, out, count)) each<Identity>(to, x, x, words, out, count);
            return;
        case 1: return each<Sum>(to, x, y, words, out, count);
        case 2: return each<Difference>(to, x, y, words, out, count);
        case 3: return each<Multiplication>(to, x, y, words, out, count);
        case 4: return each<Division>(to, x, y, words, out, count);
        case 5: return each<SquareRoot>(to, x, x, words, out, count);
        default: look_up(to, step.table, x, out, count); return each<Identity>(to, out, out, words, out, count);
    }
}

// Sum of two dense tensors of binary32 that `rounded_sum` computes: in a format with its range and at most 11 bits of
// precision, rounded to nearest.
inline bool is_narrow_sum(const Chain& chain) {
    if (chain.dims != 1 || chain.operands != 3 || chain.results != 1 || chain.steps != 3) return false;
    for (i64 index = 0; index < 3; ++index) {
        const ChainStep& step = chain.step[index];
        const Target& to = chain.targets[step.target];
        const bool fits = to.parts == 1 && to.mode == RN && to.subnormals && to.signed_zero && to.drop >= 42 && to.smallest == 0x1p-126;
        const bool overflows = to.plus_inf == INFINITE && to.plus_over == INFINITE && to.minus_over == -INFINITE;
        if (chain.operand[index].type != BINARY32 || chain.operand[index].strides[0] != 1) return false;
        if (!fits || !overflows || step.target != chain.step[0].target || step.words >= 0) return false;
        if (index < 2 ? step.operation != 0 || step.x != index : step.operation != 1 || step.x != 2 || step.y != 3) return false;
    }
    return chain.result[0] == 4;
}

inline void add_narrow(const Chain& chain, i64 first, i64 count) {
    const int drop = int(chain.targets[chain.step[0].target].drop) - 29;
    const auto* left = static_cast<const float*>(chain.operand[0].data) + first;
    const auto* right = static_cast<const float*>(chain.operand[1].data) + first;
    auto* out = static_cast<float*>(chain.operand[2].data) + first;
    for (i64 at = 0; at < count; at += Lanes<32>::count) {
        const size_t bytes = size_t(std::min<i64>(Lanes<32>::count, count - at)) * sizeof(float);
        VectorF32 x{}, y{};
        std::memcpy(&x, left + at, bytes);
        std::memcpy(&y, right + at, bytes);
        x = rounded_sum(x, y, drop);
        std::memcpy(out + at, &x, bytes);
    }
}

inline void run_chain(const Chain& chain) {
    constexpr i64 TASK = 16 * BLOCK;
    i64 count = 1;
    for (i64 dim = 0; dim < chain.dims; ++dim) count *= chain.sizes[dim];
    const i64 tasks = (count + TASK - 1) / TASK;
    const bool narrow = is_narrow_sum(chain);
    run_parallel(tasks, chain.threads, [&](i64 task) {
        const Machine machine(narrow ? FE_TONEAREST : FE_TOWARDZERO);
        alignas(64) double registers[REGISTERS * BLOCK];
        const i64 end = (task + 1) * TASK < count ? (task + 1) * TASK : count, loads = chain.operands - chain.results;
        if (narrow) return add_narrow(chain, task * TASK, end - task * TASK);
        bool constant[OPERANDS] = {};
        for (i64 first = task * TASK; first < end; first += BLOCK) {
            const i64 there = end - first < BLOCK ? end - first : BLOCK;
            for (i64 index = 0; index < loads; ++index) {
                const Operand& operand = chain.operand[index];
                if (constant[index]) continue;
                bool moves = false;
                for (i64 dim = 0; dim < chain.dims; ++dim) moves |= operand.strides[dim] != 0;
                load_block(chain, operand, first, there, registers + index * BLOCK);
                constant[index] = !moves && there == BLOCK;
            }
            for (i64 index = 0; index < chain.steps; ++index) run_step(chain.step[index], chain.targets, registers, there);
            for (i64 index = 0; index < chain.results; ++index)
                store_block(chain, chain.operand[loads + index], first, there, registers + chain.result[index] * BLOCK);
        }
    });
}

// Sums of many numbers, one after the other; each sum starts from +0, and is rounded after each addition. The elements of a
// sum are in row-major order of the summed dimensions.
struct Reduction {
    i64 kept, kept_sizes[DIMS], kept_strides[DIMS];
    i64 summed, summed_sizes[DIMS], summed_strides[DIMS];
    const void* x;
    void* out;  // in row-major order of the kept dimensions
    i64 type, threads;
    const Target *number, *sum;  // formats of elements, or null if they stay as they are, and of sums
    i64 native;                  // sums are those of binary32
};

// Offsets in memory of `count` elements from `first` on.
inline void offsets(i64 dims, const i64* sizes, const i64* strides, i64 first, i64 count, i64* found) {
    i64 at[DIMS], offset = 0;
    for (i64 dim = dims - 1; dim >= 0; --dim) {
        at[dim] = first % sizes[dim];
        first /= sizes[dim];
        offset += at[dim] * strides[dim];
    }
    for (i64 index = 0; index < count; ++index) {
        found[index] = offset;
        for (i64 dim = dims - 1; dim >= 0; --dim) {
            offset += strides[dim];
            if (++at[dim] < sizes[dim]) break;
            offset -= at[dim] * strides[dim];
            at[dim] = 0;
        }
    }
}

constexpr i64 SUMS = 128, TERMS = 32;  // sums of a task, and terms that it loads at once

struct SumTile {
    alignas(64) double terms[TERMS * SUMS], sums[SUMS];
    alignas(64) float narrow_terms[SUMS], narrow_sums[SUMS];
    i64 of_sum[SUMS], of_term[TERMS], terms_there, sums_there, width;

    template <class T>
    void load(const Reduction& call) {
        const T* x = static_cast<const T*>(call.x);
        const bool along = terms_there > 1 && std::abs(of_term[1] - of_term[0]) < std::abs(of_sum[sums_there > 1] - of_sum[0]);
        if (along)
            for (i64 sum = 0; sum < sums_there; ++sum)
                for (i64 term = 0; term < terms_there; ++term)
                    terms[term * width + sum] = double(x[of_sum[sum] + of_term[term]]);
        else
            for (i64 term = 0; term < terms_there; ++term)
                for (i64 sum = 0; sum < sums_there; ++sum)
                    terms[term * width + sum] = double(x[of_sum[sum] + of_term[term]]);
    }

    void add(const Reduction& call) {
        for (i64 term = 0; term < terms_there; ++term) {
            const double* from = terms + term * width;
            if (!call.native) {
                each<Sum>(*call.sum, sums, from, nullptr, sums, width);
                continue;
            }
            for (i64 at = 0; at < width; ++at) narrow_terms[at] = float(from[at]);
            for (i64 at = 0; at < width; ++at) narrow_sums[at] += narrow_terms[at];
        }
    }
};

template <class T>
void reduce_as(const Reduction& call) {
    i64 sums = 1, terms = 1;
    for (i64 dim = 0; dim < call.kept; ++dim) sums *= call.kept_sizes[dim];
    for (i64 dim = 0; dim < call.summed; ++dim) terms *= call.summed_sizes[dim];
    i64 share = (sums + call.threads - 1) / call.threads;
    share = share < SUMS ? (share + LANES - 1) / LANES * LANES : SUMS;
    run_parallel((sums + share - 1) / share, call.threads, [&](i64 task) {
        auto tile = std::make_unique<SumTile>();
        const i64 first = task * share;
        tile->sums_there = sums - first < share ? sums - first : share;
        tile->width = (tile->sums_there + LANES - 1) / LANES * LANES;
        offsets(call.kept, call.kept_sizes, call.kept_strides, first, tile->sums_there, tile->of_sum);
        for (i64 begin = 0; begin < terms; begin += TERMS) {
            tile->terms_there = terms - begin < TERMS ? terms - begin : TERMS;
            offsets(call.summed, call.summed_sizes, call.summed_strides, begin, tile->terms_there, tile->of_term);
            tile->template load<T>(call);
            const i64 count = tile->terms_there * tile->width;
            if (call.number && !copy_numbers(*call.number, tile->terms, tile->terms, count)) {
                const Machine machine(FE_TOWARDZERO);
                each<Identity>(*call.number, tile->terms, tile->terms, nullptr, tile->terms, count);
            }
            const Machine machine(call.native ? FE_TONEAREST : FE_TOWARDZERO);
            tile->add(call);
        }
        T* out = static_cast<T*>(call.out) + first;
        for (i64 at = 0; at < tile->sums_there; ++at) {
            const double found = call.native ? double(tile->narrow_sums[at]) : tile->sums[at];
            out[at] = T(found != found ? call.sum->nan : found);
        }
    });
}

inline void reduce(const Reduction& call) {
    switch (call.type) {
        case BINARY32: return reduce_as<float>(call);
        case BFLOAT16: return reduce_as<Bfloat16>(call);
        case BINARY16: return reduce_as<Binary16>(call);
        default: return reduce_as<double>(call);
    }
}

// Adds rows to rows of a matrix, in their order; both are in row-major order.
struct Scatter {
    i64 rows, columns, type, threads;
    void* into;
    const void* x;
    const i64* places;  // a row of `into` for each row of x
    const Target *number, *sum;
};

template <class T>
void scatter_as(const Scatter& call) {
    const i64 blocks = (call.columns + BLOCK - 1) / BLOCK;
    run_parallel(blocks, call.threads, [&](i64 block) {
        const Machine machine(FE_TOWARDZERO);
        alignas(64) double terms[BLOCK], sums[BLOCK];
        const i64 first = block * BLOCK, count = call.columns - first < BLOCK ? call.columns - first : BLOCK;
        for (i64 row = 0; row < call.rows; ++row) {
            const T* x = static_cast<const T*>(call.x) + row * call.columns + first;
            T* into = static_cast<T*>(call.into) + call.places[row] * call.columns + first;
            copy_run(x, 1, terms, count);
            copy_run(into, 1, sums, count);
            for (i64 at = count; at % LANES; ++at) terms[at] = sums[at] = 0;
            for (const Target* to : {call.number, call.sum})
                if (to && !copy_numbers(*to, terms, terms, count)) each<Identity>(*to, terms, terms, nullptr, terms, count);
            if (!copy_numbers(*call.sum, sums, sums, count)) each<Identity>(*call.sum, sums, sums, nullptr, sums, count);
            each<Sum>(*call.sum, sums, terms, nullptr, sums, count);
            for (i64 at = 0; at < count; ++at) into[at] = T(sums[at]);
        }
    });
}

inline void scatter(const Scatter& call) {
    switch (call.type) {
        case BINARY32: return scatter_as<float>(call);
        case BFLOAT16: return scatter_as<Bfloat16>(call);
        case BINARY16: return scatter_as<Binary16>(call);
        default: return scatter_as<double>(call);
    }
}

}  // namespace halfulp

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void halfulp_chain(const halfulp::Chain* call) { halfulp::run_chain(*call); }
EXPORTED void halfulp_reduce(const halfulp::Reduction* call) { halfulp::reduce(*call); }
EXPORTED void halfulp_scatter(const halfulp::Scatter* call) { halfulp::scatter(*call); }
