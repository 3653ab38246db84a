// Codebooks; the stages are those of golden/codebook.py, on 128-bit integers.
#pragma once
#include "number.h"

namespace halfulp {

// The tables are those of golden/kernels/codebook.py. 128-bit integers are stored as two integers, high half first. Arrays
// of two tables have that of positive numbers first.
struct Codebook {
    i64 width, quantum, floors, has_threshold;
    u64 nan_code;
    static constexpr bool has_subnormals = false;
    const u64* infinities;
    const i64* lasts;
    const u64* significands;
    const i64 *exponents, *flags;
    const u64 *magnitudes[2], *codes[2];

    Raw unpack(u64 code) const {
        code &= ones(int(width));
        return {significands[code], int(exponents[code]), (flags[code] & 1) != 0, (flags[code] & 2) != 0,
                (flags[code] & 4) != 0, false};
    }

    u64 pack(const Raw& x, const Rounding& rounding, Saturation saturation, u64 random) const {
        if (x.nan) return nan_code;
        if (x.inf) return infinite(x.sign, saturation);
        // The magnitude in units of the last bit that rounding depends on; numbers with a larger shift are out of range.
        const int shift = int(quantum) - rounding.places - x.exponent;
        u128 units = x.significand;
        bool sticky = x.sticky;
        if (shift > 0) {
            sticky |= shift < 128 ? (units & ((u128(1) << shift) - 1)) != 0 : units != 0;
            units = shift < 128 ? units >> shift : 0;
        } else if (units) {
            units = length_of(units) - shift > 126 ? u128(1) << 126 : units << -shift;
        }
        const int end = int(lasts[x.sign]);
        int low = 0, high = end;
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (units >= magnitude(x.sign, middle) << rounding.places)
                low = middle;
            else
                high = middle - 1;
        }
        if (low == end) return code_of(x.sign, end, rounding, saturation);
        const u128 lower = magnitude(x.sign, low), gap = magnitude(x.sign, low + 1) - lower;
        const u128 way = units - (lower << rounding.places);
        const u64 seen = u64(way / gap);
        sticky |= way % gap != 0;
        const bool inexact = seen || sticky, down = floors && x.sign;
        // The floor of a negative number is the next entry of the table; the discarded part is measured from there.
        const u64 rest = down ? (0 - (seen + sticky)) & ones(rounding.places) : seen;
        const u64 last = (codes[x.sign][low] ^ u64(down && inexact)) & 1;
        const u64 up = rounding.up(x.sign, last, rest, sticky, random, floors);
        return code_of(x.sign, low + int(down ? u64(inexact) - up : up), rounding, saturation);
    }

private:
    u64 infinite(bool sign, Saturation saturation) const {
        return replaces_infinities(saturation) ? codes[sign][lasts[sign] - has_threshold] : infinities[sign];
    }

    u128 magnitude(bool sign, int place) const {
        return u128(magnitudes[sign][2 * place]) << 64 | magnitudes[sign][2 * place + 1];
    }

    u64 code_of(bool sign, int place, const Rounding& rounding, Saturation saturation) const {
        if (has_threshold && place == lasts[sign])
            return replaces_overflows(saturation) || rounding.to_largest(sign) ? codes[sign][place - 1] : infinities[sign];
        return codes[sign][place];
    }
};

}  // namespace halfulp
