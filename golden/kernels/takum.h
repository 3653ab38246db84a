// Takums; the stages are those of golden/takum.py.
#pragma once
#include "number.h"

namespace halfulp {

struct Takum {
    int width;
    static constexpr int head = 5, largest = 254, least = -255;
    static constexpr bool has_subnormals = false;
    u64 nan_code = u64(1) << (width - 1), max_code = nan_code - 1;

    Raw unpack(u64 code) const {
        code &= ones(width);
        if (code == 0) return {0, 0, false, false, false, false};
        if (code == nan_code) return {1, 0, false, true, false, false};
        const bool sign = code >> (width - 1) & 1;
        if (sign) code = (0 - code) & ones(width);
        // The bit after the sign moves to bit 63; zeros extend a short code.
        const u64 body = code << (65 - width);
        const bool up = body >> 63;
        const int regime = int(body >> 60) & 7, bits = up ? regime : 7 - regime;
        const u64 tail = body << 4;
        const int characteristic = bits ? int(tail >> (64 - bits)) : 0;
        const int exponent = up ? (1 << bits) - 1 + characteristic : 1 - (2 << bits) + characteristic;
        const int room = width - head - bits, fraction = room > 0 ? room : 0;
        const u64 significand = (u64(1) << fraction) | (fraction ? tail << bits >> (64 - fraction) : 0);
        return {significand, exponent - fraction, sign, false, false, false};
    }

    u64 pack(const Raw& x, const Rounding& rounding, Saturation saturation, u64 random) const {
        if (x.nan || (x.inf && !replaces_infinities(saturation))) return nan_code;
        if (!x.inf && !x.significand) return 0;
        int fraction = length_of(x.significand) - 1;
        const int scale = x.exponent + fraction;
        u64 magnitude;
        if (x.inf || scale > largest) {
            magnitude = max_code;
        } else if (scale < least) {
            magnitude = 1;
        } else {
            const bool up = scale >= 0;
            const int bits = length_of(u128(up ? scale + 1 : -scale)) - 1;
            const int characteristic = scale + (up ? 1 - (1 << bits) : (2 << bits) - 1);
            bool sticky = x.sticky;
            // At most 112 fraction bits, so that the bits before them fit 128 bits.
            u128 significand = x.significand;
            const int over = fraction > 112 ? fraction - 112 : 0;
            sticky |= (significand & ((u128(1) << over) - 1)) != 0;
            significand >>= over;
            fraction -= over;
            const u128 before = u128(u64((up ? 8 | bits : 7 - bits) << bits | characteristic));
            const u128 string = (before << fraction) | (significand ^ (u128(1) << fraction));
            const int shift = fraction - (width - head - bits);
            const u64 seen = rounding.seen(string, shift, sticky);
            magnitude = shift <= 0 ? u64(string) << -shift : shift < 128 ? u64(string >> shift) : 0;
            if (magnitude < max_code) magnitude += rounding.up(x.sign, magnitude & 1, seen, sticky, random);
            if (!magnitude) magnitude = 1;
        }
        return (x.sign ? 0 - magnitude : magnitude) & ones(width);
    }
};

}  // namespace halfulp
