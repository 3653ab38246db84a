// Accumulators in compound formats: sums of numbers in binary64 without loss, and their parts, as in products/compound.py.
// plan.py (`fits_compound`) refuses descriptions whose numbers binary64 does not hold far from its ends.
#pragma once
#include <cmath>

#include "number.h"

namespace halfulp {

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

// An expansion: numbers in ascending magnitude whose bits do not overlap (Shewchuk, 1997).
struct Expansion {
    double part[MOST_PARTS * 2 + 1];
    int length = 0;

    // Adds a number by Knuth's TwoSum.
    void add(double number) {
        for (int place = 0; place < length; ++place) {
            const double other = part[place], total = number + other, of_other = total - number;
            part[place] = (number - (total - of_other)) + (other - of_other);
            number = total;
        }
        part[length++] = number;
    }

    // The sum, rounded to odd: it rounds to every shorter format as the exact sum does (Boldo and Melquiond, 2008).
    double odd() const {
        double result = part[0];
        for (int place = 1; place < length; ++place) {
            const double other = part[place], total = other + result, of_result = total - other;
            const double error = (other - (total - of_result)) + (result - of_result);
            u64 word = word_of(total);
            if (error != 0 && std::isfinite(total) && !std::isnan(error)) word = (word - ((total < 0) != (error < 0))) | 1;
            result = number_of(word);
        }
        return result;
    }
};

// Adds terms one by one to an accumulator with `parts` parts of the format `part`, each rounded once.
struct CompoundSum {
    const Float part;
    const int parts;
    const Rounding leading, last;
    const Saturation saturation;
    const int below = 52 - part.man;
    const double least = std::ldexp(1.0, part.emin), most = number_of(part.unpack(part.max_code));
    double held[MOST_PARTS] = {};

    // The first part is in the highest bits of a code.
    void load(u64 codes) {
        for (int place = 0; place < parts; ++place) {
            held[place] = number_of(part.unpack(codes >> ((parts - 1 - place) * part.width)));
        }
    }

    u64 read() const {
        u64 codes = 0;
        for (int place = 0; place < parts; ++place) {
            codes = codes << part.width | part.pack(raw_of(held[place]), leading, Saturation::OFF, 0);
        }
        return codes;
    }

    void add(double added, u64 random) {
        const bool down = last.mode == RD;
        Expansion sum;
        double plain = held[parts - 1];
        sum.add(held[parts - 1]);
        for (int place = parts - 2; place >= 0; --place) {
            plain += held[place];
            sum.add(held[place]);
        }
        sum.add(added);
        // Infinities, NaN and sums of zeros are those of the plain sum; another exactly cancelled sum is +0, or -0.
        const double total = plain + added, cancelled = down ? -0.0 : 0.0;
        bool ended = !std::isfinite(total);
        double rest = ended ? total : sum.odd();
        if (!ended && rest == 0) {
            rest = total == 0 ? total : cancelled;
            if (down && (std::signbit(plain) || std::signbit(added))) rest = -0.0;
        }
        for (int place = 0; place < parts; ++place) {
            const bool is_last = place == parts - 1;
            held[place] = place && ended ? 0.0 : rounded(rest, is_last ? last : leading, is_last ? random : 0);
            if (is_last) break;
            ended |= !std::isfinite(held[place]);
            sum.add(-held[place]);
            rest = sum.odd();
            if (rest == 0) rest = cancelled;
        }
    }

  private:
    double rounded(double x, const Rounding& rounding, u64 random) const {
        // To nearest, a number in the normal range is rounded by an addition to its word, whose carry moves the exponent.
        if (const double magnitude = std::fabs(x); rounding.mode == RN && magnitude >= least && magnitude < most) {
            u64 word = word_of(x);
            word += (u64(1) << (below - 1)) - 1 + (word >> below & 1);
            return number_of(word & ~ones(below));
        }
        return number_of(part.unpack(part.pack(raw_of(x), rounding, saturation, random)));
    }
};

}  // namespace halfulp
