// Unsigned powers of two; the stages are those of golden/scale.py.
#pragma once
#include "number.h"

namespace halfulp {

struct Scale {
    int width;
    static constexpr bool has_subnormals = false;
    int bias = (1 << (width - 1)) - 1;
    u64 nan_code = ones(width), max_code = nan_code - 1;

    Raw unpack(u64 code) const {
        code &= ones(width);
        return {1, int(code) - bias, false, code == nan_code, false, false};
    }

    u64 pack(const Raw& x, const Rounding& rounding, Saturation saturation, u64 random) const {
        if (x.inf && !x.nan && !x.sign && replaces_infinities(saturation)) return max_code;
        if (x.nan || x.inf || x.sign || !x.significand) return nan_code;
        const int below = length_of(x.significand) - 1;
        bool sticky = x.sticky;
        const u64 seen = rounding.seen(x.significand, below, sticky);
        const int code = x.exponent + below + bias + int(rounding.up(false, 1, seen, sticky, random));
        if (code > int(max_code)) return replaces_overflows(saturation) || rounding.to_largest(false) ? max_code : nan_code;
        return code < 0 ? 0 : u64(code);
    }
};

}  // namespace halfulp
