// The general kernel: any conversion and any multiply-accumulate, one number at a time in 128-bit integers; exact sums are
// in a wider register, and sums in compound formats in binary64 lanes. Formats, roundings and sources are run-time
// parameters, so that it is compiled once.
#pragma once
#include <cstring>
#include <variant>

#include "codebook.h"
#include "compound.h"
#include "elements.h"
#include "register.h"
#include "scale.h"
#include "states.h"
#include "takum.h"
#include "words.h"

namespace halfulp {

using Format = std::variant<Float, Fixed, Posit, Takum, Codebook, Scale>;

inline Raw unpack(const Format& format, u64 code) {
    return std::visit([&](const auto& one) { return one.unpack(code); }, format);
}

inline u64 pack(const Format& format, const Raw& x, const Rounding& rounding, Saturation saturation, u64 random) {
    return std::visit([&](const auto& one) { return one.pack(x, rounding, saturation, random); }, format);
}

// A format as passed from Python: the index of its family in `Format`, and the members of its object.
struct Parameters {
    i64 family, members[5];
    const Codebook* codebook;

    Format format() const {
        const auto member = [&](int index) { return int(members[index]); };
        switch (family) {
            case 0: return Float{member(0), member(1), member(2), member(3), members[4] != 0};
            case 1: return Fixed{member(0), member(1), members[2] != 0, members[3] != 0, members[4] != 0};
            case 2: return Posit{member(0), member(1)};
            case 3: return Takum{member(0)};
            case 5: return Scale{member(0)};
            default: return *codebook;
        }
    }
};

// A conversion. Codes are int64; real numbers have `bytes` bytes.
struct Conversion {
    Parameters a, o;
    Rounding rounding;
    Saturation saturation;
    i64 bytes;
};

// A multiply-accumulate step. The product is rounded if `rounds_product`; the sum is exact if `quire_width` is not 0. An
// accumulator has `parts` numbers of the format `o`, and those before the last one have the rounding `leading`.
struct MacStep {
    Parameters a, b, o, product;
    Rounding rounding, product_rounding, leading;
    Saturation saturation;
    i64 rounds_product, quire_width, quire_quantum, parts;
    Source sum_words, product_words;
};

// Computes the elements of a matrix product one by one.
struct Sums {
    const MacStep& step;
    const Format a = step.a.format(), b = step.b.format(), o = step.o.format(), product = step.product.format();
    Words sum_words{step.sum_words}, product_words{step.product_words};
    Register held{int(step.quire_width), int(step.quire_quantum)};

    Raw term(const Raw& x, const Raw& y, u64 word) const {
        const Raw exact = multiply(x, y);
        if (!step.rounds_product) return exact;
        return unpack(product, pack(product, narrowed(exact), step.product_rounding, step.saturation, word));
    }

    u64 sum(const Raw* x, const Raw* y, u64 code, i64 k) {
        if (!k) return code;
        if (!step.quire_width) {
            for (i64 at = 0; at < k; ++at) {
                const Raw total = add(step.rounding.mode, term(x[at], y[at], product_words.next()), unpack(o, code));
                code = pack(o, total, step.rounding, step.saturation, sum_words.next());
            }
            return code;
        }
        held.place(unpack(o, code));
        u64 word = 0;
        for (i64 at = 0; at < k; ++at) {
            word = sum_words.next();
            held.add(term(x[at], y[at], product_words.next()));
        }
        return pack(o, held.raw(), step.rounding, step.saturation, word);
    }
};

constexpr i64 COLUMNS = 64;  // of a task

// Multiplies matrices with accumulators in compound formats: neighbouring columns in lanes, and two vectors at once, so that
// the processor works on one while results of the other are under way.
template <int PARTS>
void compound_gemm(const Call& call, const MacStep& step) {
    constexpr int VECTORS = 2, WIDTH = VECTORS * LANES;
    const i64 groups = (call.m + WIDTH - 1) / WIDTH, panels = (call.m + COLUMNS - 1) / COLUMNS;
    std::vector<double> b(size_t(call.packs * groups * WIDTH * call.k));
    run_parallel(call.packs * groups, call.threads, [&](i64 task) {
        const Format format = step.b.format();
        const i64 batch = call.pack_batch[task / groups], first = task % groups * WIDTH;
        double* to = b.data() + task * WIDTH * call.k;
        for (i64 at = 0; at < call.k; ++at)
            for (i64 j = first; j < first + WIDTH; ++j)
                *to++ = j < call.m ? number_of(unpack(format, u64(*call.b.at(batch, at, j)))) : 0;
    });
    run_parallel(call.batches * call.n * panels, call.threads, [&](i64 task) {
        const i64 row = task / panels, batch = row / call.n, i = row % call.n, first = task % panels * COLUMNS;
        Sums sums{step};
        std::vector<double> a(size_t(call.k));
        for (i64 at = 0; at < call.k; ++at) a[at] = number_of(unpack(sums.a, u64(*call.a.at(batch, i, at))));
        std::vector<Words> sum_words(WIDTH, sums.sum_words), product_words(WIDTH, sums.product_words);
        const CompoundSum<PARTS> sum{int(step.parts), std::get<Float>(sums.o), step.leading, step.rounding, step.saturation};
        for (i64 j = first; j < call.m && j < first + COLUMNS; j += WIDTH) {
            Number held[VECTORS][PARTS] = {}, term[VECTORS];
            Bits random[VECTORS] = {};
            const int there = int(std::min(i64(WIDTH), call.m - j));
            for (int lane = 0; lane < there; ++lane) {
                sum_words[lane].begin(call, batch, i, j + lane);
                product_words[lane].begin(call, batch, i, j + lane);
                const u64 code = call.start.data ? u64(*call.start.at(batch, i, j + lane)) : 0;
                sum.load(held[lane / LANES], lane % LANES, code);
            }
            const double* column = b.data() + (call.pack_of[batch] * groups + j / WIDTH) * WIDTH * call.k;
            for (i64 at = 0; at < call.k; ++at, column += WIDTH) {
                for (int vector = 0; vector < VECTORS; ++vector) term[vector] = load<Number>(column + vector * LANES) * a[at];
                for (int lane = 0; step.rounds_product && lane < there; ++lane)
                    term[lane / LANES][lane % LANES] =
                        number_of(sums.term(raw_of(a[at]), raw_of(column[lane]), product_words[lane].next()));
                for (int lane = 0; step.rounding.bits && lane < there; ++lane)
                    random[lane / LANES][lane % LANES] = sum_words[lane].next();
                for (int vector = 0; vector < VECTORS; ++vector) sum.add(held[vector], term[vector], random[vector]);
            }
            for (int lane = 0; lane < there; ++lane)
                *call.result(batch, i, j + lane) = i64(sum.read(held[lane / LANES], lane % LANES));
        }
    });
}

// A 64-bit code is passed as the int64 with the same bits.
inline void gemm(const Call& call, const MacStep& step) {
    if (step.parts == 2) return compound_gemm<2>(call, step);
    if (step.parts > 1) return compound_gemm<MOST_PARTS>(call, step);
    const i64 panels = (call.m + COLUMNS - 1) / COLUMNS;
    std::vector<Raw> b(size_t(call.packs * call.m * call.k));
    run_parallel(call.packs * panels, call.threads, [&](i64 task) {
        const Format format = step.b.format();
        const i64 pack = task / panels, first = task % panels * COLUMNS;
        for (i64 j = first; j < call.m && j < first + COLUMNS; ++j) {
            Raw* column = b.data() + (pack * call.m + j) * call.k;
            for (i64 at = 0; at < call.k; ++at) column[at] = unpack(format, u64(*call.b.at(call.pack_batch[pack], at, j)));
        }
    });
    run_parallel(call.batches * call.n * panels, call.threads, [&](i64 task) {
        const i64 row = task / panels, batch = row / call.n, i = row % call.n, first = task % panels * COLUMNS;
        Sums sums{step};
        std::vector<Raw> a(size_t(call.k));
        for (i64 at = 0; at < call.k; ++at) a[at] = unpack(sums.a, u64(*call.a.at(batch, i, at)));
        for (i64 j = first; j < call.m && j < first + COLUMNS; ++j) {
            sums.sum_words.begin(call, batch, i, j);
            sums.product_words.begin(call, batch, i, j);
            const u64 code = call.start.data ? u64(*call.start.at(batch, i, j)) : 0;
            const Raw* column = b.data() + (call.pack_of[batch] * call.m + j) * call.k;
            *call.result(batch, i, j) = i64(sums.sum(a.data(), column, code, call.k));
        }
    });
}

// Adds partial sums and rounds once: element (batch, i, j) has those in row i * m + j of a, which are binary64 numbers, times
// 2 to the powers in b.
inline void round_sums(const Call& call, const MacStep& step) {
    run_parallel(call.batches * call.n, call.threads, [&](i64 row) {
        const i64 batch = row / call.n, i = row % call.n;
        Sums sums{step};
        for (i64 j = 0; j < call.m; ++j) {
            sums.sum_words.begin(call, batch, i, j);
            sums.held.place(call.start.data ? unpack(sums.o, u64(*call.start.at(batch, i, j))) : Raw{});
            for (i64 at = 0; at < call.k; ++at) {
                double partial;
                std::memcpy(&partial, call.a.at(batch, i * call.m + j, at), sizeof partial);
                const bool negative = partial < 0;
                sums.held.add({u64(negative ? -partial : partial), int(*call.b.at(batch, at, 0)), negative}, false);
            }
            const u64 code = pack(sums.o, sums.held.raw(), step.rounding, step.saturation, sums.sum_words.next());
            *call.result(batch, i, j) = i64(code);
        }
    });
}

inline void convert(const Elements& call, const Conversion& given) {
    const Format a = given.a.format(), o = given.o.format();
    const auto run = [&](const auto* codes) {
        run_chunks(call, [&](i64 at, i64 end) {
            for (; at < end; ++at) {
                const u64 word = call.random ? u64(call.random[at]) : 0;
                call.out[at] = i64(pack(o, unpack(a, codes[at]), given.rounding, given.saturation, word));
            }
        });
    };
    if (given.bytes == 4)
        run(static_cast<const u32*>(call.x));
    else
        run(static_cast<const u64*>(call.x));
}

// Converts binary32 numbers by a table for their upper halves, whose last bit is set if the lower half is not zero.
inline void look_up(const Elements& call, const std::uint16_t* table) {
    const u32* x = static_cast<const u32*>(call.x);
    run_chunks(call, [&](i64 at, i64 end) {
        for (; at < end; ++at) call.out[at] = table[x[at] >> 16 | u32((x[at] & 0xFFFF) != 0)];
    });
}

}  // namespace halfulp

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void halfulp_convert(const halfulp::Elements* call, const halfulp::Conversion* given) {
    halfulp::convert(*call, *given);
}

EXPORTED void halfulp_look_up(const halfulp::Elements* call, const std::uint16_t* table) { halfulp::look_up(*call, table); }

EXPORTED void halfulp_jump(const halfulp::Jump* call) { halfulp::jump(*call); }

template <class Work>
int completed(const Work& work) {
    try {
        work();
        return 0;
    } catch (...) {
        return 1;  // out of memory
    }
}

EXPORTED int halfulp_gemm(const halfulp::Call* call, const halfulp::MacStep* step) {
    return completed([&] { halfulp::gemm(*call, *step); });
}

EXPORTED int halfulp_round_sums(const halfulp::Call* call, const halfulp::MacStep* step) {
    return completed([&] { halfulp::round_sums(*call, *step); });
}
