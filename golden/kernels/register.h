// Exact sums of numbers of any format.
#pragma once
#include <vector>

#include "number.h"

namespace halfulp {

// A two's-complement sum in units of 2^quantum. A sum that overflows `width` bits becomes infinite and stays so.
struct Register {
    const int width, quantum, limbs = width / 64 + 2;
    std::vector<u64> limb = std::vector<u64>(size_t(limbs)), magnitude = limb;
    bool nan = false, inf = false, inf_sign = false;

    void place(const Raw& x) {
        for (u64& digits : limb) digits = 0;
        nan = inf = inf_sign = false;
        add(x, false);
    }

    void add(const Raw& x, bool guard = true) {
        nan |= x.nan || (inf && x.inf && inf_sign != x.sign);
        if (x.inf && !inf) inf = true, inf_sign = x.sign;
        if (nan || inf || !x.significand) return;
        int up = x.exponent - quantum;
        u128 significand = x.significand;
        if (up < 0) {
            significand >>= -up;  // drops zeros only: every number is a multiple of the unit
            up = 0;
        }
        const int place = up % 64;
        u64 parts[3] = {u64(significand) << place, 0, 0};
        parts[1] = u64(significand >> 64) << place | (place ? u64(significand) >> (64 - place) : 0);
        parts[2] = place ? u64(significand >> 64) >> (64 - place) : 0;
        int index = up / 64;
        u64 carry = 0;
        for (int part = 0; index < limbs; ++part, ++index) {
            const u64 more = part < 3 ? parts[part] : 0;
            if (part >= 3 && !carry) break;
            const u64 before = limb[index];
            if (x.sign) {
                const u64 after = before - more, borrowed = before < more;
                limb[index] = after - carry;
                carry = borrowed | (after < carry);
            } else {
                const u64 after = before + more, carried = after < before;
                limb[index] = after + carry;
                carry = carried | (limb[index] < after);
            }
        }
        if (!guard) return;
        const u64 sign = negative() ? ~u64(0) : 0;
        const int top = (width - 1) / 64, within = (width - 1) % 64;
        bool beyond = limb[top] >> within != sign >> within;
        for (int above = top + 1; above < limbs; ++above) beyond |= limb[above] != sign;
        if (beyond) inf = true, inf_sign = sign != 0;
    }

    bool negative() const { return limb[limbs - 1] >> 63; }

    Raw raw() {
        if (nan || inf) return {1, 0, inf_sign, nan, inf, false};
        const bool sign = negative();
        u64 carry = sign;
        for (int index = 0; index < limbs; ++index) {
            magnitude[index] = (sign ? ~limb[index] : limb[index]) + carry;
            carry = carry && magnitude[index] == 0;
        }
        int left = limbs;
        while (left > 1 && !magnitude[left - 1]) --left;
        Raw x{0, quantum + 64 * left, sign, false, false, false};
        // Take the bits from the leading one downwards until 128 bits are full; the others are sticky.
        while (left--) {
            const int room = 128 - length_of(x.significand), taken = room < 64 ? room : 64;
            if (taken) x.significand = x.significand << taken | magnitude[left] >> (64 - taken);
            x.exponent -= taken;
            x.sticky |= taken < 64 && magnitude[left] << taken;
        }
        if (!x.significand) x.sign = false;
        return narrowed(x);
    }
};

}  // namespace halfulp
