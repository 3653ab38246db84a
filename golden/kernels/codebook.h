// Codebooks; the stages are those of golden/codebook.py, on 128-bit integers. T has the tables (golden/kernels/codebook.py).
#pragma once
#include "number.h"

namespace halfulp {

template <class T>
struct Codebook {
    static constexpr int width = T::width;
    static constexpr bool has_subnormals = false;
    static constexpr u64 nan_code = T::nan_code;

    static Raw unpack(u64 code) {
        code &= ones(width);
        return {T::significands[code], T::exponents[code], (T::flags[code] & 1) != 0, (T::flags[code] & 2) != 0,
                (T::flags[code] & 4) != 0, false};
    }

    template <class R, bool SATURATE>
    static u64 pack(const Raw& x, u64 random) {
        if (x.nan) return nan_code;
        if (x.inf) return T::infinities[x.sign];
        // The magnitude in units of the last place that decides rounding; a larger shift exceeds every value.
        const int shift = T::quantum - R::places - x.exponent;
        u128 units = x.significand;
        bool sticky = x.sticky;
        if (shift > 0) {
            sticky |= shift < 128 ? (units & ((u128(1) << shift) - 1)) != 0 : units != 0;
            units = shift < 128 ? units >> shift : 0;
        } else if (units) {
            units = length_of(units) - shift > 126 ? u128(1) << 126 : units << -shift;
        }
        const u128* rungs = T::rungs(x.sign);
        const int end = T::lasts[x.sign];
        int low = 0, high = end;
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (units >= rungs[middle] << R::places)
                low = middle;
            else
                high = middle - 1;
        }
        if (low == end) return code_of<R, SATURATE>(x.sign, end);
        const u128 gap = rungs[low + 1] - rungs[low], way = units - (rungs[low] << R::places);
        const u64 seen = u64(way / gap);
        sticky |= way % gap != 0;
        const bool inexact = seen || sticky, down = T::floors && x.sign;
        // Below zero the floor is the next value of the table, and the distance from it is the rest of the interval.
        const u64 rest = down ? (0 - (seen + sticky)) & ones(R::places) : seen;
        const u64 last = (T::codes(x.sign)[low] ^ u64(down && inexact)) & 1;
        const u64 up = R::up(x.sign, last, rest, sticky, random, T::floors);
        return code_of<R, SATURATE>(x.sign, low + int(down ? u64(inexact) - up : up));
    }

private:
    template <class R, bool SATURATE>
    static u64 code_of(bool sign, int place) {
        if (T::has_threshold && place == T::lasts[sign])
            return SATURATE || R::to_largest(sign) ? T::codes(sign)[place - 1] : T::infinities[sign];
        return T::codes(sign)[place];
    }
};

}  // namespace halfulp
