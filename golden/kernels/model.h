// Parts of the models of units (model.py): exact sums of many terms, and internal random sources.
#pragma once
#include <initializer_list>

#include "register.h"

namespace halfulp {

// Exact sum of terms that are multiples of 2^quantum, and whose sum has less than `width` bits. A sum that is zero is -0 if
// all terms are -0, and under rd if any term is not +0; it is +0 unless zeros are `signed_zero`.
inline Raw total(Mode mode, bool signed_zero, int width, int quantum, std::initializer_list<Raw> terms) {
    Register held{width, quantum};
    bool plus = false, minus = false;
    for (const Raw& x : terms) {
        held.add(x, false);
        plus |= x.significand || !x.sign;
        minus |= x.significand || x.sign;
    }
    Raw sum = held.raw();
    if (!sum.significand && !sum.sticky) sum.sign = signed_zero && (mode == RD ? minus : !plus);
    return sum;
}

inline Raw negated(Raw x, bool negative) {
    x.sign ^= negative;
    return x;
}

// Fibonacci LFSR: the state shifts left, and the parity of the bits in `taps` becomes its lowest bit. An inverting source
// shows the states of an LFSR for one period, then their complements for one; bit `width` of its state tells which.
struct Lfsr {
    int width;
    u64 taps;
    bool inverting;

    u64 shown(u64 state) const { return (inverted(state) ? ~state : state) & ones(width); }

    u64 after(u64 state) const {
        const u64 held = state & ones(width), next = ((held << 1) | u64(__builtin_parityll(held & taps))) & ones(width);
        return inverting ? next | (inverted(state) ^ u64(next == 1)) << width : next;
    }

private:
    u64 inverted(u64 state) const { return inverting ? state >> width & 1 : 0; }
};

}  // namespace halfulp
