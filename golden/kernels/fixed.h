// Multiply-accumulate steps of fixed-point formats in integer lanes.
#pragma once
#include "blocks.h"

namespace halfulp {

// Rounds integers in units of 2^-DROP of the result's last place: adds the rounding increment and takes the floor.
template <int BITS, int DROP, Mode MODE, int N>
struct FixedRounder {
    using I = typename Lanes<BITS>::I;
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Integer;

    static I round(I x, U random) {
        if (DROP <= 0) return x << (DROP < 0 ? -DROP : 0);
        constexpr int drop = DROP > 0 ? DROP : 1;
        const U low = all<U>(T((T(1) << drop) - 1)), word = (U)x;
        // Random bits below the last discarded place meet zeros and cannot carry; they are dropped.
        const U own = drop < N ? random >> (drop < N ? N - drop : 0) : random << (drop < N ? 0 : drop - N);
        const U minus = (U)(x >> int(8 * sizeof(T) - 1));
        return (I)(word + increment_of_floor<MODE>(minus, low, word >> drop & 1, own)) >> drop;
    }
};

// Saturates to a range, which is symmetric if NARROW, or wraps to a narrower integer.
template <int BITS, int WIDTH, bool SIGNED, bool WRAPS, bool NARROW>
struct Range {
    using I = typename Lanes<BITS>::I;
    using T = typename Lanes<BITS>::Integer;
    static constexpr T largest = T((T(1) << (WIDTH - SIGNED)) - 1), lowest = SIGNED ? T(-largest - !NARROW) : T(0);
    static I limited(I x) {
        if (WRAPS) {
            constexpr int up = int(8 * sizeof(T)) - WIDTH;
            return SIGNED ? x << up >> up : x & largest;
        }
        x = x < lowest ? I{} + lowest : x;
        return x > largest ? I{} + largest : x;
    }
};

// S has the members a, b, o; TERM_UP and O_UP, the left shifts that align terms and sums; ROUNDS_PRODUCT, ProductRounder
// and ProductRange; SumRounder and SumRange.
template <class S, int LANE>
struct FixedSteps : S {
    static constexpr int BITS = LANE, FENV = FE_TONEAREST;
    static constexpr bool TWICE = false, CHECKS = false;
    using V = typename Lanes<LANE>::I;
    using U = typename Lanes<LANE>::U;
    using Scalar = typename Lanes<LANE>::Integer;

    struct Extremes {
        void see(Scalar) {}
        void join(const Extremes&) {}
    };
    static Verdict accepts(const Extremes&, const Extremes&, const Extremes&, i64) { return UNCHECKED; }

    template <const auto& FORMAT>
    static Scalar scalar(u64 code) {
        const Raw x = FORMAT.unpack(code);
        return Scalar(x.sign ? 0 - u64(x.significand) : u64(x.significand));
    }
    // Codes only; the overload for real numbers is never called.
    template <const auto& FORMAT>
    struct Decoder {
        Scalar operator()(u64 code) const { return scalar<FORMAT>(code); }
        Scalar operator()(float) const { return 0; }
    };
    static bool takes_reals(const Call& call) { return !(call.a.real | call.b.real | call.start.real | call.out.real); }
    static void write_reals(V, float*) {}
    static auto decoder_a() { return Decoder<S::a>(); }
    static auto decoder_b() { return Decoder<S::b>(); }
    static auto decoder_start() { return Decoder<S::o>(); }
    static u64 encode(Scalar value) { return u64(i64(value)) & ones(S::o.width); }
    static bool encode_all(V value, typename Lanes<BITS>::Unsigned* codes) {
        const auto code = (typename Lanes<BITS>::U)value & typename Lanes<BITS>::Unsigned(ones(S::o.width));
        std::memcpy(codes, &code, sizeof code);
        return true;
    }

    template <bool CHECK>
    static V step(V sum, V a, V b, U word, U product_word) {
        V term = a * b;
        if (S::ROUNDS_PRODUCT) term = S::ProductRange::limited(S::ProductRounder::round(term, product_word));
        return S::SumRange::limited(S::SumRounder::round((term << S::TERM_UP) + (sum << S::O_UP), word));
    }
};

}  // namespace halfulp
