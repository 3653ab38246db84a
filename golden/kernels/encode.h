// Conversion of real numbers to floating-point formats, in vector lanes.
#pragma once
#include "elements.h"
#include "floats.h"

namespace halfulp {

// Converts binary32 or binary64 numbers to floats with subnormals, in binary64 lanes. Scaling by 2^SCALE maps the smallest
// normal number of the format to that of binary64, so that the truncated word is the code (see floats.h). If scaling back
// gives another number, bits were lost below the smallest subnormal: the last bit is then set, as in rounding to odd.
template <const Float& O, const Rounding& R, Saturation SATURATION, bool INFS, bool SIGNED_ZERO, int SCALE, class IN>
void encode_floats(const Elements& call) {
    using W = Word<64>;
    using U = typename W::U;
    using I = typename W::I;
    using F = typename W::F;
    constexpr int lanes = Lanes<64>::count, drop = 52 - O.man;
    constexpr u64 low = (u64(1) << drop) - 1;
    const double down = std::ldexp(1.0, SCALE), up = std::ldexp(1.0, -SCALE);
    const IN* x = static_cast<const IN*>(call.x);
    // Results for infinite operands, and for overflow by sign.
    constexpr bool finite = replaces_infinities(SATURATION) || (O.nan_code == O.sign_code && SIGNED_ZERO);
    constexpr u64 infinite = finite ? O.max_code : INFS ? O.max_code + 1 : O.nan_code;
    constexpr bool infinite_is_nan = infinite == O.nan_code;
    constexpr u64 positive = replaces_overflows(SATURATION) || R.to_largest(false) ? O.max_code : infinite;
    constexpr u64 negative = replaces_overflows(SATURATION) || R.to_largest(true) ? O.max_code : infinite;
    const auto with_sign = [](u64 code, bool special) { return special && infinite_is_nan ? code : code | O.sign_code; };
    const U plus_over = all<U>(u64(positive)), plus_inf = all<U>(u64(infinite));
    const U minus_over = all<U>(with_sign(negative, negative == infinite)), minus_inf = all<U>(with_sign(infinite, true));
    run_chunks(call, [&](i64 at, i64 end) {
        const Machine machine(FE_TOWARDZERO);
        for (; at < end; at += lanes) {
            const int there = end - at < lanes ? int(end - at) : lanes;
            F value{};
            U random{};
            if (there == lanes) {
                for (int lane = 0; lane < lanes; ++lane) value[lane] = double(x[at + lane]);
                if (R.mode == SR) random = load<U>(call.random + at);
            } else {
                for (int lane = 0; lane < there; ++lane) {
                    value[lane] = double(x[at + lane]);
                    if (R.mode == SR) random[lane] = u64(call.random[at + lane]);
                }
            }
            const F scaled = value * down;
            U word = (U)scaled | ((U)(scaled * up != value) & 1);
            const U minus = W::below_zero(word);
            word += increment<64, R.mode>(word, all<U>(low), word >> drop & 1, random << (drop > R.bits ? drop - R.bits : 0));
            const U magnitude = (word & W::magnitude) >> drop;
            U code = magnitude | (minus & O.sign_code);
            if (!SIGNED_ZERO) code = W::select((I)magnitude == 0, U{}, code);
            const U over = (plus_over & ~minus) | (minus_over & minus), inf = (plus_inf & ~minus) | (minus_inf & minus);
            const U given = (U)value & W::magnitude;
            code = W::select((I)magnitude > (I)all<U>(u64(O.max_code)), over, code);
            code = W::select((I)given == (I)all<U>(u64(W::infinity)), inf, code);
            code = W::select((I)given > (I)all<U>(u64(W::infinity)), all<U>(u64(O.nan_code)), code);
            if (there == lanes)
                std::memcpy(call.out + at, &code, sizeof code);
            else
                for (int lane = 0; lane < there; ++lane) call.out[at + lane] = i64(code[lane]);
        }
    });
}

}  // namespace halfulp
