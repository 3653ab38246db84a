// Exact arithmetic on single numbers of any format: unpack, multiply, add, round once and pack. A format is an object: a
// compile-time constant in specialised kernels, a run-time parameter in exact.h.
//
// The stages are those of golden/raw.py, floating.py, fixed.py and posit.py, on 128-bit integers. plan.py
// (`fits_exact`) refuses descriptions that need more bits.
#pragma once
#include <cstdint>
#include <cstring>

namespace halfulp {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;
using u128 = unsigned __int128;

inline u64 word_of(double value) {
    u64 word;
    std::memcpy(&word, &value, sizeof word);
    return word;
}

inline double number_of(u64 word) {
    double value;
    std::memcpy(&value, &word, sizeof value);
    return value;
}

enum Mode : int { RN, RA, RH, RHU, RHD, RZ, RU, RD, RO, SR, EXACT };
enum Specials { IEEE, FN, FNUZ, FINITE, UZ };

// Results that become the largest finite number of their sign: none, overflows, or overflows and infinities.
enum class Saturation : i64 { OFF, SAT, SATFINITE };

constexpr bool replaces_overflows(Saturation saturation) {
    switch (saturation) {
        case Saturation::OFF: return false;
        case Saturation::SAT: case Saturation::SATFINITE: return true;
    }
    __builtin_unreachable();
}

constexpr bool replaces_infinities(Saturation saturation) {
    switch (saturation) {
        case Saturation::OFF: case Saturation::SAT: return false;
        case Saturation::SATFINITE: return true;
    }
    __builtin_unreachable();
}

// (-1)^sign * significand * 2^exponent, plus less than one last place if `sticky`.
struct Raw {
    u128 significand;
    int exponent;
    bool sign, nan, inf, sticky;
};

constexpr u64 ones(int width) { return width >= 64 ? ~u64(0) : (u64(1) << width) - 1; }

inline int length_of(u128 value) {
    const u64 high = u64(value >> 64), low = u64(value);
    return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

// Largest width of significands: more bits than any rounding needs, with room above for a carry and a regime.
constexpr int WINDOW = 120;

// A rounding mode with `bits` bits of a random word; it depends on the first `places` discarded bits and a sticky bit.
struct Rounding {
    Mode mode;
    int bits, places;

    // Rounding decision: 1 if the truncated number is incremented. `seen` holds the first `places` discarded bits. With
    // `floor` the truncated number is a floor, not a magnitude.

    u64 up(bool negative, u64 last, u64 seen, bool sticky, u64 random, bool floor = false) const {
        switch (mode) {
            case RN: return seen & (last | sticky);
            case RA: return floor ? seen & u64(sticky | !negative) : seen;
            case RH: return seen & u64(sticky | (floor && negative));
            case RHU: return seen & u64(sticky | floor | !negative);
            case RHD: return seen & u64(sticky | (!floor && negative));
            case RZ: return floor ? sticky & negative : 0;
            case RU: return floor ? sticky : sticky & !negative;
            case RD: return floor ? 0 : sticky & negative;
            case RO: return sticky & (last ^ 1);
            case SR: return (seen + random) >> bits;
            case EXACT: return 0;
        }
        __builtin_unreachable();
    }

    // Discards the lowest `shift` bits of a significand: returns the first `places` of them; the others are sticky.
    u64 seen(u128 significand, int shift, bool& sticky) const {
        if (shift <= 0) return 0;
        const int below = shift - places;
        if (below <= 0) return u64(significand << -below) & ones(places);
        if (below >= 128) {
            sticky |= significand != 0;
            return 0;
        }
        sticky |= (significand & ((u128(1) << below) - 1)) != 0;
        return u64(significand >> below) & ones(places);
    }

    constexpr bool to_largest(bool negative) const {
        return mode == RZ || mode == RO || (negative ? mode == RU : mode == RD);
    }
};

// Truncates a significand to at most WINDOW bits and a sticky bit.
inline Raw narrowed(Raw x) {
    const int over = length_of(x.significand) - WINDOW;
    if (over > 0) {
        x.sticky |= (x.significand & ((u128(1) << over) - 1)) != 0;
        x.significand >>= over;
        x.exponent += over;
    }
    return x;
}

struct Float {
    int exp, man, bias, specials;
    bool has_subnormals;
    int width = 1 + exp + man, precision = man + 1, emin = 1 - bias, quantum = emin - man;
    u64 sign_code = u64(1) << (exp + man);
    u64 max_code = specials == IEEE                    ? sign_code - 1 - (u64(1) << man)
                   : specials == FN || specials == UZ ? sign_code - 2
                                                      : sign_code - 1;
    u64 nan_code = specials == IEEE ? max_code + 1 + (u64(1) << (man ? man - 1 : 0))
                   : specials == FN ? sign_code - 1
                                    : sign_code;
    int emax = int(max_code >> man) - bias;

    Raw unpack(u64 code) const {
        code &= ones(width);
        const u64 magnitude = code & (sign_code - 1);
        const int field = int(magnitude >> man);
        u64 significand = magnitude & ones(man);
        if (field)
            significand |= u64(1) << man;
        else if (!has_subnormals)
            significand = 0;
        Raw x{significand, (field ? field : 1) - bias - man, (code & sign_code) != 0, false, false, false};
        if (specials == IEEE) {
            x.inf = magnitude == max_code + 1;
            x.nan = magnitude > max_code + 1;
        } else if (specials == FN) {
            x.nan = magnitude == nan_code;
        } else if (specials == FNUZ || specials == UZ) {
            x.inf = specials == UZ && magnitude == max_code + 1;
            x.nan = code == sign_code;
        }
        return x;
    }

    u64 pack(const Raw& x, const Rounding& rounding, Saturation saturation, u64 random) const {
        if (x.nan) return nan_code;
        u64 magnitude = 0;
        bool infinite = x.inf;
        if (!x.inf && x.significand) {
            const int first = x.exponent + length_of(x.significand) - 1;
            int last_place = first - man;
            if (has_subnormals && last_place < quantum) last_place = quantum;
            const int shift = last_place - x.exponent;
            bool sticky = x.sticky;
            const u64 seen = rounding.seen(x.significand, shift, sticky);
            u64 truncated = shift <= 0 ? u64(x.significand) << -shift : shift < 128 ? u64(x.significand >> shift) : 0;
            truncated += rounding.up(x.sign, truncated & 1, seen, sticky, random);
            int field = last_place - quantum;
            field += int(truncated >> precision);
            truncated >>= truncated >> precision;
            const int top = emax - emin;
            const u64 largest = (max_code & ones(man)) | (u64(1) << man);
            if (field > top || (field == top && truncated > largest)) {
                if (replaces_overflows(saturation) || rounding.to_largest(x.sign))
                    magnitude = max_code;
                else
                    infinite = true;
            } else if (has_subnormals || field >= 0) {
                magnitude = (u64(field) << man) + truncated;
            }
        }
        if (infinite && replaces_infinities(saturation)) {
            magnitude = max_code;
        } else if (infinite) {
            if (specials == FN || specials == FNUZ) return nan_code;
            magnitude = specials == FINITE ? max_code : max_code + 1;
        }
        const bool sign = x.sign && (magnitude || !(specials == FNUZ || specials == UZ));
        return sign ? magnitude | sign_code : magnitude;
    }
};

struct Fixed {
    int int_bits, frac_bits;
    bool has_sign, wraps, narrow;
    static constexpr bool has_subnormals = false;
    int width = int_bits + frac_bits, quantum = -frac_bits;
    u64 largest = ones(width - has_sign);
    u64 lowest = narrow ? largest : has_sign ? u64(1) << (width - 1) : 0;  // magnitude of the lowest result
    u64 lowest_code = (0 - lowest) & ones(width);

    Raw unpack(u64 code) const {
        code &= ones(width);
        const bool sign = has_sign && code >> (width - 1) & 1;
        return {sign ? (0 - code) & ones(width) : code, quantum, sign, false, false, false};
    }

    u64 pack(const Raw& x, const Rounding& rounding, Saturation saturation, u64 random) const {
        if (x.nan) return 0;
        if (x.inf) return x.sign ? lowest_code : largest;
        const int shift = quantum - x.exponent;
        u128 integer;
        u64 below = 0;
        bool sticky = x.sticky, beyond = false;
        if (shift <= 0) {
            beyond = x.significand && length_of(x.significand) - shift > WINDOW;
            integer = -shift < 128 ? x.significand << -shift : 0;
        } else {
            below = rounding.seen(x.significand, shift, sticky);
            integer = shift < 128 ? x.significand >> shift : 0;
        }
        // The floor of a negative number is below its truncation; the discarded part is measured from the floor.
        const u64 rest = x.sign ? (0 - (below + sticky)) & ones(rounding.places) : below;
        const bool inexact = below != 0 || sticky;
        const u64 last = u64(integer) & 1;
        const u64 up = rounding.up(x.sign, last ^ u64(x.sign && inexact), rest, sticky, random, true);
        integer += x.sign ? u128(u64(inexact)) - u128(up) : u128(up);
        if (replaces_overflows(saturation) || !wraps) {
            if (x.sign && (beyond || integer > lowest)) return lowest_code;
            if (!x.sign && (beyond || integer > largest)) return largest;
        }
        return (x.sign ? 0 - u64(integer) : u64(integer)) & ones(width);
    }
};

struct Posit {
    int width, es;
    static constexpr bool has_subnormals = false;
    int max_scale = (width - 2) << es;
    u64 nan_code = u64(1) << (width - 1), max_code = nan_code - 1;

    Raw unpack(u64 code) const {
        code &= ones(width);
        if (code == 0) return {0, 0, false, false, false, false};
        if (code == nan_code) return {1, 0, false, true, false, false};
        const bool sign = code >> (width - 1) & 1;
        if (sign) code = (0 - code) & ones(width);
        const int body = width - 1;
        const bool first = code >> (body - 1) & 1;
        const u64 run_bits = first ? ~code & ones(body) : code;
        const int run = run_bits ? __builtin_clzll(run_bits) - (64 - body) : body;
        const int k = first ? run - 1 : -run;
        const int rest = body - run - 1 > 0 ? body - run - 1 : 0;
        const u64 tail = code & ones(rest);
        const int fraction = rest > es ? rest - es : 0;
        const int exponent = rest < es ? int(tail << (es - rest)) : int(tail >> fraction);
        return {(u64(1) << fraction) | (tail & ones(fraction)), (k << es) + exponent - fraction, sign, false, false, false};
    }

    u64 pack(const Raw& x, const Rounding& rounding, Saturation saturation, u64 random) const {
        if (x.nan || (x.inf && !replaces_infinities(saturation))) return nan_code;
        if (!x.inf && !x.significand) return 0;
        const int fraction = length_of(x.significand) - 1;
        const int scale = x.exponent + fraction;
        u64 magnitude;
        if (x.inf || scale >= max_scale) {
            magnitude = max_code;
        } else if (scale < -max_scale) {
            magnitude = 1;
        } else {
            const int k = scale >> es, regime_width = k >= 0 ? k + 2 : 1 - k;
            // The bits after the regime: exponent, then fraction.
            const u128 tail = (u128(u64(scale & int(ones(es)))) << fraction) | (x.significand ^ (u128(1) << fraction));
            const int shift = fraction + es - (width - 1 - regime_width);
            bool sticky = x.sticky;
            const u64 seen = rounding.seen(tail, shift, sticky);
            const u64 truncated = shift <= 0 ? u64(tail) << -shift : shift < 128 ? u64(tail >> shift) : 0;
            u64 regime;
            if (k >= 0)
                regime = (u64(1) << (width - 1)) - (u64(1) << (width - 2 - k));
            else
                regime = u64(1) << (width - 2 + k);
            magnitude = regime + truncated;
            magnitude += rounding.up(x.sign, magnitude & 1, seen, sticky, random);
        }
        return (x.sign ? 0 - magnitude : magnitude) & ones(width);
    }
};

inline Raw multiply(const Raw& x, const Raw& y) {
    // Operands have at most 64 bits.
    return {u128(u64(x.significand)) * u64(y.significand),
            x.exponent + y.exponent,
            x.sign != y.sign,
            x.nan || y.nan || (x.inf && !y.significand) || (y.inf && !x.significand),
            x.inf || y.inf,
            false};
}

// Sum. An exactly cancelled sum is -0 under rd and +0 otherwise. The significand of a difference is its floor; `sticky` is
// set if the difference is larger.
inline Raw add(Mode mode, Raw x, Raw y) {
    Raw z{0, 0, false, false, false, false};
    z.nan = x.nan || y.nan || (x.inf && y.inf && x.sign != y.sign);
    z.inf = x.inf || y.inf;
    if (z.inf || z.nan) {
        z.sign = x.inf ? x.sign : y.sign;
        z.significand = 1;
        return z;
    }
    const bool subtract = x.sign != y.sign;
    if (!x.significand || !y.significand) {
        z = x.significand ? x : y;
        if (!z.significand) z.sign = (x.sign && y.sign) || (mode == RD && subtract);
        return z;
    }
    // Both leading ones at bit 125, with room above for a carry.
    const int x_up = 126 - length_of(x.significand), y_up = 126 - length_of(y.significand);
    x.significand <<= x_up, x.exponent -= x_up;
    y.significand <<= y_up, y.exponent -= y_up;
    if (x.exponent < y.exponent || (x.exponent == y.exponent && x.significand < y.significand)) {
        const Raw swap = x;
        x = y;
        y = swap;
    }
    const int distance = x.exponent - y.exponent;
    u128 small = 0;
    if (distance < 128) {
        small = y.significand >> distance;
        z.sticky = distance && (y.significand & ((u128(1) << distance) - 1)) != 0;
    } else {
        z.sticky = true;
    }
    z.significand = subtract ? x.significand - small - z.sticky : x.significand + small;
    z.exponent = x.exponent;
    z.sign = z.significand || z.sticky ? x.sign : mode == RD;
    return narrowed(z);
}

}  // namespace halfulp
