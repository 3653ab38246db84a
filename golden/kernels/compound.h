// Accumulators in compound formats: sums of numbers in binary64 lanes without loss, and their parts, as in
// products/compound.py. plan.py (`fits_exact`) refuses descriptions whose numbers binary64 does not hold far from its ends.
#pragma once
#include <cmath>

#include "floats.h"

namespace halfulp {

using Lane = Word<64>;
using Number = Lane::F;
using Bits = Lane::U;
constexpr int LANES = Lanes<64>::count;

constexpr Float BINARY64{11, 52, 1023, IEEE, true};
constexpr int MOST_PARTS = 32;

inline Raw raw_of(double x) { return BINARY64.unpack(word_of(x)); }

// A number whose significand has at most 53 bits, and whose last place is a normal number of binary64.
inline double number_of(const Raw& x) {
    if (x.nan) return NAN;
    const double one = x.significand ? number_of(u64(x.exponent + BINARY64.bias) << BINARY64.man) : 0;
    const double magnitude = x.inf ? INFINITY : double(u64(x.significand)) * one;
    return x.sign ? -magnitude : magnitude;
}

inline Number chosen(Bits mask, Number x, Number y) { return (Number)(((Bits)x & mask) | ((Bits)y & ~mask)); }

// Adds a number to an expansion of `length` numbers in ascending magnitude whose bits do not overlap (Shewchuk, 1997), by
// Knuth's TwoSum.
inline void grow(Number* expansion, int length, Number number) {
#pragma GCC unroll 8
    for (int place = 0; place < length; ++place) {
        const Number other = expansion[place], total = number + other, of_other = total - number;
        expansion[place] = (number - (total - of_other)) + (other - of_other);
        number = total;
    }
    expansion[length] = number;
}

// The sum of an expansion, rounded to odd: it rounds to every shorter format as the exact sum does.
inline Number odd(const Number* expansion, int length) {
    Number result = expansion[0];
#pragma GCC unroll 8
    for (int place = 1; place < length; ++place) result = (Number)odd_sum<64>(expansion[place], result);
    return result;
}

// Adds terms to accumulators with PARTS parts of the format `part`, each rounded once. With MOST_PARTS, the number of parts
// is a run-time parameter.
template <int PARTS>
struct CompoundSum {
    const int given;
    const Float part;
    const Rounding leading, last;
    const Saturation saturation;
    const int parts = PARTS < MOST_PARTS ? PARTS : given, below = 52 - part.man;
    const u64 least = word_of(std::ldexp(1.0, part.emin)), most = word_of(number_of(part.unpack(part.max_code)));
    const bool signed_zero = part.specials != FNUZ && part.specials != UZ;

    // The first part is in the highest bits of a code.
    void load(Number* held, int lane, u64 codes) const {
        for (int place = parts - 1; place >= 0; --place, codes >>= part.width) held[place][lane] = number_of(part.unpack(codes));
    }

    u64 read(const Number* held, int lane) const {
        u64 codes = 0;
        for (int place = 0; place < parts; ++place)
            codes = codes << part.width | part.pack(raw_of(held[place][lane]), leading, Saturation::OFF, 0);
        return codes;
    }

    void add(Number* held, Number added, Bits random) const {
        const int count = PARTS < MOST_PARTS ? PARTS : parts;  // unrolled
        Number sum[2 * PARTS + 1], plain = held[count - 1];
        sum[0] = plain;
#pragma GCC unroll 8
        for (int length = 1; length < count; ++length) {
            plain += held[count - 1 - length];
            grow(sum, length, held[count - 1 - length]);
        }
        grow(sum, count, added);
        // Infinities, NaN and sums of zeros are those of the plain sum; another exactly cancelled sum is +0, or -0.
        const Bits minus = all<Bits>(last.mode == RD ? Lane::sign : u64(0));
        const Number total = plain + added;
        Bits zero = (Bits)chosen((Bits)(total == 0), total, (Number)minus) | (((Bits)plain | (Bits)added) & minus);
        Bits ended = not_finite(total);
        Number rest = odd(sum, count + 1);
        rest = chosen(ended, total, chosen((Bits)(rest == 0), (Number)zero, rest));
#pragma GCC unroll 8
        for (int place = 0; place < count; ++place) {
            const bool is_last = place == count - 1;
            held[place] = rounded(rest, is_last ? last : leading, is_last ? random : Bits{});
            if (is_last) break;
            ended |= not_finite(held[place]);
            grow(sum, count + 1 + place, -held[place]);
            rest = odd(sum, count + 2 + place);
            rest = chosen((Bits)(rest == 0), (Number)minus, rest);
            rest = (Number)((Bits)rest & ~ended);
        }
    }

  private:
    static Bits not_finite(Number x) { return (Bits)((Lane::I)((Bits)x & Lane::magnitude) >= (Lane::I)all<Bits>(Lane::infinity)); }

    // To nearest, a number in the normal range is rounded by an addition to its word, whose carry moves the exponent.
    Number rounded(Number x, const Rounding& rounding, Bits random) const {
        const Bits word = (Bits)x, size = word & Lane::magnitude;
        Bits usual = (Bits)((signed_zero ? size : word) == 0);
        if (rounding.mode == RN)
            usual |= (Bits)((Lane::I)size >= (Lane::I)all<Bits>(least)) & (Bits)((Lane::I)size < (Lane::I)all<Bits>(most));
        Number result = (Number)((word + (ones(below - 1) + (word >> below & 1))) & ~ones(below));
        if (!any_lane(~usual)) return result;
        for (int lane = 0; lane < LANES; ++lane)
            if (!usual[lane])
                result[lane] = number_of(part.unpack(part.pack(raw_of(x[lane]), rounding, saturation, random[lane])));
        return result;
    }
};

}  // namespace halfulp
