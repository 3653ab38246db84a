// Multiply-accumulate steps in binary32 or binary64 lanes; sums are numbers of the result format times a power of two.
//
// float_plan.py chooses the power of two and proves that the steps are exact:
//  - Float results with subnormals are scaled so that their smallest normal number is that of the lane. Then the last
//    place of the result is the same bit of the lane's word for every exponent, and rounding truncates the word there.
//  - Posit results are scaled so that the word, after its sign, holds the regime as a number, then the exponent and
//    fraction of the posit. The length of the regime gives the bit at which rounding truncates the word.
#pragma once
#include <cmath>
#include <limits>

#include "blocks.h"

namespace halfulp {

enum Overflow { TO_INF, TO_NAN, TO_LARGEST };

template <int BITS>
struct Word {
    using L = Lanes<BITS>;
    using F = typename L::F;
    using I = typename L::I;
    using U = typename L::U;
    using T = typename L::Unsigned;
    static constexpr T sign = T(1) << (BITS - 1), magnitude = sign - 1;
    static constexpr T infinity = T(2 * L::bias + 1) << L::mantissa, nan = infinity | T(1) << (L::mantissa - 1);

    static U below_zero(U word) { return (U)((I)word >> (BITS - 1)); }
    static U select(I condition, U x, U y) { return (U)(condition ? (I)x : (I)y); }
};

// Rounding increment of all lanes: the number to add to a word before the bits of the mask `low` are cleared. The lowest
// bit of `last` is the last remaining bit. `random` is a random word, whose first bit is at the first bit of `low`.
template <int BITS, Mode MODE>
inline typename Word<BITS>::U increment(typename Word<BITS>::U word, typename Word<BITS>::U low,
                                        typename Word<BITS>::U last, typename Word<BITS>::U random) {
    using W = Word<BITS>;
    const Mode mode = MODE;  // compilers check the cases of a variable only
    switch (mode) {
        case RN: return (low >> 1) + last;
        case RA: return (low >> 1) + 1;
        case RH: return low >> 1;
        case RHU: return (low >> 1) + 1 + W::below_zero(word);
        case RHD: return (low >> 1) - W::below_zero(word);
        case RU: return low & ~W::below_zero(word);
        case RD: return low & W::below_zero(word);
        case RO: return low & (last - 1);
        case SR: return random;
        case RZ: case EXACT: return typename W::U{};
    }
    __builtin_unreachable();
}

// Rounds words to floats with MAN mantissa bits. LARGEST is the word of the largest finite number, or 0 if overflow of the
// lane is overflow of the format. FLUSH is the word of the smallest normal number, or 0 if the format has subnormals.
// INFINITE is the result of infinite words.
template <int BITS, int MAN, Mode MODE, int N, u64 LARGEST, int POSITIVE, int NEGATIVE, int INFINITE, u64 FLUSH, bool SIGNED_ZERO>
struct FloatRounder {
    using W = Word<BITS>;
    using U = typename W::U;
    using I = typename W::I;
    using T = typename W::T;
    static constexpr int drop = Lanes<BITS>::mantissa - MAN;
    static constexpr T low = (T(1) << drop) - 1;
    static constexpr bool CHECKS = LARGEST != 0;

    template <bool CHECKED>
    static U round(U word, U random) {
        if (drop > 0) {
            word += increment<BITS, MODE>(word, all<U>(T(low)), word >> drop & 1, random << (drop > N ? drop - N : 0));
            word &= ~low;
        }
        if (FLUSH) word = W::select((I)(word & W::magnitude) < (I)all<U>(T(FLUSH)), word & W::sign, word);
        if (!SIGNED_ZERO) word = W::select((I)(word & W::magnitude) == 0, U{}, word);
        if (!CHECKED || !LARGEST) return word;
        const U magnitude = word & W::magnitude;
        const I over = (I)magnitude > (I)all<U>(T(LARGEST));
        U instead;
        if (POSITIVE == TO_INF && NEGATIVE == TO_INF) {
            // The larger of the word and infinity, so that NaN stays NaN.
            instead = W::select((I)magnitude < (I)all<U>(T(W::infinity)), all<U>(T(W::infinity)), magnitude);
        } else if (POSITIVE == TO_NAN && NEGATIVE == TO_NAN) {
            instead = all<U>(T(W::nan));
        } else {
            const U positive = all<U>(word_of(POSITIVE)), negative = all<U>(word_of(NEGATIVE)), minus = W::below_zero(word);
            const U finite = POSITIVE == NEGATIVE ? positive : (positive & ~minus) | (negative & minus);
            const U special = INFINITE == TO_NAN ? all<U>(T(W::nan)) : magnitude;
            const T end = INFINITE == TO_LARGEST ? T(W::infinity + 1) : T(W::infinity);
            instead = W::select((I)magnitude < (I)all<U>(end), finite, special);
        }
        return W::select(over, instead | (word & W::sign), word);
    }

    static constexpr T word_of(int overflow) {
        return overflow == TO_INF ? W::infinity : overflow == TO_NAN ? W::nan : T(LARGEST);
    }
};

// Rounds words to posits; the exponent field of a word is the number's exponent plus (BIAS << ES).
template <int BITS, int WIDTH, int ES, Mode MODE, int N, int BIAS, Saturation SATURATION>
struct PositRounder {
    using W = Word<BITS>;
    using U = typename W::U;
    using I = typename W::I;
    using T = typename W::T;
    static constexpr bool CHECKS = false;
    static constexpr int tail = Lanes<BITS>::mantissa + ES, max_scale = (WIDTH - 2) << ES;
    static constexpr int least = tail + 2 - (WIDTH - 1);  // places truncated with the shortest regime
    static constexpr T smallest = T((BIAS << ES) - max_scale) << Lanes<BITS>::mantissa;
    static constexpr T largest = T((BIAS << ES) + max_scale) << Lanes<BITS>::mantissa;

    template <bool CHECKED>
    static U round(U word, U random) {
        using V = typename Lanes<BITS>::Integer;
        const U magnitude = word & W::magnitude;
        U x = W::select((I)magnitude < (I)all<U>(smallest), all<U>(smallest), magnitude);
        x = W::select((I)x > (I)all<U>(largest), all<U>(largest), x);
        const I k = (I)(x >> tail) - V(BIAS);
        const I longer = k > ~k ? k : ~k;
        I drop = longer + V(least);
        drop = drop > V(tail) ? all<I>(V(tail)) : drop;
        const U low = (all<U>(T(1)) << (U)drop) - 1;
        x += increment<BITS, MODE>(word, low, x >> (U)drop & 1, MODE == SR ? random << (U)(drop - V(N)) : random);
        x = (x & ~low) | (word & W::sign);
        x = W::select((I)magnitude == 0, U{}, x);
        constexpr T nan = W::infinity + replaces_infinities(SATURATION);  // first word whose result is NaN
        return W::select((I)magnitude >= (I)all<U>(nan), all<U>(T(W::nan)), x);
    }
};

// No rounding: the format holds every result of the lane.
template <int BITS>
struct NoRounder {
    static constexpr bool CHECKS = false;
    template <bool CHECKED>
    static typename Word<BITS>::U round(typename Word<BITS>::U word, typename Word<BITS>::U) {
        return word;
    }
};

// Rounds words to the numbers of a table. Magnitudes whose words have the same bits from SHIFT on share an entry: their number
// changes at most once, at the entry's boundary, and `values` has the words below it and from it on. Magnitudes outside of
// the table have its first or last entry; the entries of negative numbers follow. `specials` are the words of infinity,
// -infinity, 0 and -0; with ZERO, the first entry does not hold zero.
template <int BITS, int SHIFT, i64 FIRST, i64 COUNT, bool ZERO, const auto& BOUNDARIES, const auto& VALUES, const auto& SPECIALS>
struct TableRounder {
    using W = Word<BITS>;
    using U = typename W::U;
    using I = typename W::I;
    using T = typename W::T;
    static constexpr bool CHECKS = false;

    template <bool CHECKED>
    static U round(U word, U) {
        using V = typename Lanes<BITS>::Integer;
        const U magnitude = word & W::magnitude, minus = W::below_zero(word), infinity = all<U>(T(W::infinity));
        I place = (I)(magnitude >> SHIFT) - V(FIRST);
        place = place < 0 ? I{} : place;
        place = place >= V(COUNT) ? all<I>(V(COUNT - 1)) : place;
        place += (I)minus & V(COUNT);
        const I from_boundary = (I)magnitude >= (I)gathered<U>(BOUNDARIES, place);
        U value = gathered<U>(VALUES, place + place - from_boundary);
        const auto signed_special = [&](int index) {
            return (all<U>(T(SPECIALS[index])) & ~minus) | (all<U>(T(SPECIALS[index + 1])) & minus);
        };
        if (ZERO) value = W::select((I)magnitude == 0, signed_special(2), value);
        const U special = W::select((I)magnitude > (I)infinity, all<U>(T(W::nan)), signed_special(0));
        return W::select((I)magnitude >= (I)infinity, special, value);
    }
};

// Mask of the lanes whose number is neither zero nor NaN.
template <int BITS>
inline typename Word<BITS>::U differs(typename Word<BITS>::F x) {
    return (typename Word<BITS>::U)((x < 0) | (x > 0));
}

// Sum rounded to odd: truncated to the lane's precision, with the last bit set if that is inexact. The error of a sum is a
// number of the lane (Knuth, TAOCP 2, 4.2.2; Moller, BIT 5, 1965). If its sign differs from that of the sum, the sum was
// rounded away from zero, and the word less 1 is its truncation (Boldo and Melquiond, IEEE TC 57(4), 2008).
template <int BITS>
inline typename Word<BITS>::U odd_sum(typename Word<BITS>::F x, typename Word<BITS>::F y) {
    using W = Word<BITS>;
    using U = typename W::U;
    const typename W::F sum = x + y, y_there = sum - x, error = (x - (sum - y_there)) + (y - y_there);
    const U inexact = differs<BITS>(error), word = (U)sum;
    return (word + (W::below_zero(word ^ (U)error) & inexact)) | (inexact & 1);
}

// True if the magnitudes of codes are bits of lane words: the format has subnormals, and its lowest exponent is scaled to
// that of the lane.
template <const auto& FORMAT, int LOWEST>
constexpr bool is_word() {
    if constexpr (FORMAT.has_subnormals)
        return FORMAT.emin == LOWEST;
    else
        return false;
}

// True if codes are the leading bits of lane words: the format also has the exponent bits of the lane, and infinity and NaN
// at the largest exponent.
template <const auto& FORMAT, int LANE, int LOWEST>
constexpr bool begins_word() {
    if constexpr (is_word<FORMAT, LOWEST>())
        return FORMAT.width - FORMAT.man == LANE - Lanes<LANE>::mantissa && FORMAT.specials == IEEE;
    else
        return false;
}

// S has the members a, b, o; A_SCALE, B_SCALE, O_SCALE and RESCALE (exponents of powers of two), FACTOR (2^RESCALE); ODD;
// ROUNDS_TWICE; FENV; the rounders RoundWord and ProductWord; ROUNDS_PRODUCT; and for accepts(): NEEDS_GRID, NEEDS_TOP, LOWEST_PLACE, TOP,
// GROWS, PRECISION, STEP, PRODUCT_STEP, LIMIT and PRODUCT_LIMIT.
template <class S, int LANE>
struct FloatSteps : S {
    static constexpr int BITS = LANE, FENV = S::FENV;
    static constexpr bool IS_WORD = is_word<S::o, 1 - Lanes<LANE>::bias - S::O_SCALE>();
    static constexpr bool TWICE = S::ROUNDS_TWICE && HAS_FLAGS, CHECKS = S::RoundWord::CHECKS || S::ProductWord::CHECKS;
    using W = Word<LANE>;
    using L = Lanes<LANE>;
    using V = typename L::F;
    using U = typename L::U;
    using Scalar = typename L::Scalar;

    // Largest and smallest magnitudes and lowest place of operands; words without sign have the order of magnitudes.
    struct Extremes {
        using T = typename L::Unsigned;
        T most = 0, most_finite = 0, least = W::infinity;  // least: word of the smallest that is not zero
        int lowest_place = std::numeric_limits<int>::max() / 4;
        void see(Scalar value) {
            T word;
            std::memcpy(&word, &value, sizeof word);
            word &= W::magnitude;
            const T finite = word < W::infinity ? word : 0;
            most = word > most ? word : most;
            most_finite = finite > most_finite ? finite : most_finite;
            if (TWICE) least = word - 1 < least - 1 ? word : least;
            if (S::NEEDS_GRID && finite) {
                const int field = int(word >> L::mantissa);
                const int zeros = __builtin_ctzll(u64(word) | u64(1) << L::mantissa);
                const int place = (field ? field : 1) - L::bias - L::mantissa + zeros;
                if (place < lowest_place) lowest_place = place;
            }
        }
        void join(const Extremes& other) {
            if (other.most > most) most = other.most;
            if (other.most_finite > most_finite) most_finite = other.most_finite;
            if (other.least < least) least = other.least;
            if (other.lowest_place < lowest_place) lowest_place = other.lowest_place;
        }
        bool special() const { return most >= W::infinity; }
        double largest() const { return number(most_finite); }
        double smallest() const { return number(least); }

    private:
        static double number(T word) {
            Scalar value;
            std::memcpy(&value, &word, sizeof value);
            return double(value);
        }
    };

    static Verdict accepts(const Extremes& a, const Extremes& b, const Extremes& start, i64 k) {
        const double of_a = a.largest(), of_b = b.largest(), of_start = start.largest();
        if (S::NEEDS_GRID && a.lowest_place + b.lowest_place < S::LOWEST_PLACE) return REFUSED;
        if (S::NEEDS_TOP && of_a > 0 && of_b > 0 &&
            std::ilogb(of_a) + std::ilogb(of_b) + 2 > S::TOP)
            return REFUSED;
        if (a.special() || b.special() || start.special()) return CHECKED;
        // Bounds in long double, whose range is wide enough. Rounding at most doubles a product, or adds its quantum.
        const long double product = 2 * (long double)of_a * of_b + S::PRODUCT_STEP;
        if (S::ROUNDS_PRODUCT && product > S::PRODUCT_LIMIT) return CHECKED;
        const long double term = std::ldexp(product, S::RESCALE);
        // The rounding of each step adds less than one last place of the sum.
        long double most = (of_start + k * (term + S::STEP)) *
                           std::pow(1 + std::ldexp((long double)1, 1 - S::PRECISION), (long double)k);
        if (!S::GROWS) {
            // With rounding to nearest or to zero, a term below a quarter of the last place does not change the sum.
            long double limit = std::ldexp(term, S::PRECISION + 3);
            if (of_start > limit) limit = of_start;
            if (limit < most) most = limit;
        }
        return most < S::LIMIT ? UNCHECKED : CHECKED;
    }

    // Chooses exponents of factors of the operands for step_twice(): magnitudes of products are below 2^(emin + precision)
    // of the lane, magnitudes of sums are not larger than before, and no operand leaves the normal range.
    static bool scales(const Extremes& a, const Extremes& b, int& of_a, int& of_b) {
        of_a = of_b = 0;
        if (!a.most || !b.most) return true;
        constexpr int emin = 1 - L::bias, top = L::bias;
        const int most_a = std::ilogb(a.largest()), most_b = std::ilogb(b.largest());
        const int least_a = std::ilogb(a.smallest()), least_b = std::ilogb(b.smallest());
        int total = emin + L::mantissa + 1 - (most_a + most_b + 2);
        if (total > 0) total = 0;
        const int low_a = std::max(emin - least_a, total - (top - most_b));
        const int high_a = std::min(top - most_a, total - (emin - least_b));
        of_a = low_a > 0 ? low_a : high_a < 0 ? high_a : 0;
        of_b = total - of_a;
        return low_a <= high_a && total >= emin && std::abs(of_a) <= -emin && std::abs(of_b) <= -emin;
    }

    template <const auto& FORMAT>
    static Scalar scalar(u64 code, int scale) {
        const Raw x = FORMAT.unpack(code);
        const double sign = x.sign ? -1.0 : 1.0;
        if (x.nan) return std::numeric_limits<Scalar>::quiet_NaN();
        if (x.inf) return Scalar(sign * std::numeric_limits<double>::infinity());
        // Exact: the significand has at most 53 bits, and float_plan.py has checked the range.
        return Scalar(std::ldexp(sign * double(u64(x.significand)), x.exponent + scale));
    }

    // Function from codes to scalars: a shift if codes are leading bits of words, a table for up to 16 bits, else `scalar`.
    // NaN becomes the canonical quiet NaN, because a rounding increment could carry into the sign of another NaN.
    template <const auto& FORMAT, int SCALE>
    static auto decoder() {
        if constexpr (begins_word<FORMAT, LANE, 1 - L::bias - SCALE>()) {
            return [](u64 code) {
                auto word = typename L::Unsigned(typename L::Unsigned(code) << (LANE - FORMAT.width));
                word = (word & W::magnitude) > W::infinity ? W::nan : word;
                Scalar value;
                std::memcpy(&value, &word, sizeof value);
                return value;
            };
        } else if constexpr (FORMAT.width <= 16) {
            static const std::vector<Scalar> made = [] {
                std::vector<Scalar> table(size_t(1) << FORMAT.width);
                for (size_t index = 0; index < table.size(); ++index) table[index] = scalar<FORMAT>(index, SCALE);
                return table;
            }();
            return [table = made.data()](u64 code) { return table[code & ones(FORMAT.width)]; };
        } else {
            return [](u64 code) { return scalar<FORMAT>(code, SCALE); };
        }
    }

    // Functions from real numbers to scalars. They are rounded to nearest, ties to even, to a format with NaN and subnormals:
    // one whose codes are leading bits of binary32, or one whose numbers are normal in binary32, below 2^127.
    template <const auto& FORMAT>
    static constexpr bool is_narrow() {
        if constexpr (std::is_same_v<decltype(FORMAT), const Float&>)
            return FORMAT.has_subnormals && FORMAT.specials != FINITE && FORMAT.man > 0 && FORMAT.man < 23 &&
                   FORMAT.quantum >= -126 && FORMAT.quantum <= 104 && FORMAT.emax < 127;
        else
            return false;
    }
    template <const auto& FORMAT>
    static constexpr bool BEGINS = begins_word<FORMAT, 32, -126>();

    template <const auto& FORMAT>
    static constexpr bool READS = BEGINS<FORMAT> || is_narrow<FORMAT>();

    template <const auto& FORMAT, int SCALE>
    static Scalar rounded(float number) {
        u32 word;
        std::memcpy(&word, &number, sizeof word);
        if constexpr (READS<FORMAT>) {
            constexpr u32 low = (u32(1) << (23 - FORMAT.man)) - 1;
            u32 nearest = low ? (word + (low >> 1) + (word >> (23 - FORMAT.man) & 1)) & ~low : word;
            if constexpr (!BEGINS<FORMAT>) {
                constexpr u32 largest = u32(FORMAT.emax + 127) << 23 |
                                        u32(FORMAT.max_code & ones(FORMAT.man)) << (23 - FORMAT.man);
                constexpr u32 over = FORMAT.specials == IEEE || FORMAT.specials == UZ ? Word<32>::infinity : Word<32>::nan;
                // The last place of this power of two is that of the format's subnormal numbers.
                constexpr auto grid = float(power<FORMAT.quantum + 23>());
                const u32 sign = word & Word<32>::sign, size = nearest & Word<32>::magnitude;
                const float below = (std::fabs(number) + grid) - grid;
                u32 small;
                std::memcpy(&small, &below, sizeof small);
                u32 found = (word & Word<32>::magnitude) < u32(FORMAT.emin + 127) << 23 ? small : size;
                found = found > largest ? over : found;
                nearest = found | ((FORMAT.specials == FNUZ || FORMAT.specials == UZ) && !found ? 0 : sign);
            }
            word = (word & Word<32>::magnitude) > Word<32>::infinity ? Word<32>::nan : nearest;
        }
        std::memcpy(&number, &word, sizeof word);
        return SCALE ? Scalar(double(number) * power<SCALE>()) : Scalar(number);
    }

    template <int EXPONENT>
    static constexpr double power() {
        double found = 1;
        for (int step = 0; step < (EXPONENT < 0 ? -EXPONENT : EXPONENT); ++step) found *= EXPONENT < 0 ? 0.5 : 2;
        return found;
    }

    template <const auto& FORMAT, int SCALE>
    struct Decoder : decltype(decoder<FORMAT, SCALE>()) {
        Decoder() : decltype(decoder<FORMAT, SCALE>())(decoder<FORMAT, SCALE>()) {}
        using decltype(decoder<FORMAT, SCALE>())::operator();
        Scalar operator()(float number) const { return rounded<FORMAT, SCALE>(number); }
    };
    static auto decoder_a() { return Decoder<S::a, S::A_SCALE>(); }
    static auto decoder_b() { return Decoder<S::b, S::B_SCALE>(); }
    static auto decoder_start() { return Decoder<S::o, S::O_SCALE>(); }

    static bool takes_reals(const Call& call) {
        return (READS<S::a> || !call.a.real) && (READS<S::b> || !call.b.real) && (READS<S::o> || !call.start.real);
    }

    // Finite sums are numbers of the format times a power of two; binary32 holds these numbers.
    static void write_reals(V sums, float* to) {
        const U magnitude = (U)sums & W::magnitude;
        const V numbers = sums * Scalar(power<-S::O_SCALE>());
        if constexpr (BITS == 32)
            std::memcpy(to, &numbers, sizeof numbers);
        else
            for (int lane = 0; lane < L::count; ++lane) to[lane] = float(numbers[lane]);
        if (!any_lane(magnitude >= W::infinity)) return;
        for (int lane = 0; lane < L::count; ++lane)
            if (magnitude[lane] >= W::infinity) to[lane] = float(scalar<S::o>(encode(sums[lane]), 0));
    }

    static u64 encode(Scalar value) {
        typename L::Unsigned word;
        std::memcpy(&word, &value, sizeof word);
        const auto magnitude = word & W::magnitude;
        if constexpr (IS_WORD) {
            // The truncated word is the code.
            if (magnitude < W::infinity)
                return u64(magnitude >> (L::mantissa - S::o.man)) | (word != magnitude ? S::o.sign_code : 0);
        }
        if constexpr (std::is_same_v<decltype(S::o), const Posit>) {
            // Exponent and fraction as a fixed-point number; above its `tail` bits is the value of the regime.
            constexpr int tail = L::mantissa + S::o.es;
            if constexpr (S::o.width + tail < 64) {
                if (!magnitude) return 0;
                if (magnitude > W::infinity) return S::o.nan_code;
                const i64 string = i64(u64(magnitude)) - (i64(L::bias + S::O_SCALE) << L::mantissa), k = string >> tail;
                const u64 regime = k < 0 ? 1 : (u64(4) << k) - 2;
                const u64 code = ((regime << tail) | (u64(string) & ones(tail))) >> ((k < 0 ? ~k : k) + tail + 3 - S::o.width);
                return (word != magnitude ? 0 - code : code) & ones(S::o.width);
            }
        }
        const int field = int(magnitude >> L::mantissa);
        u64 significand = magnitude & ((typename L::Unsigned(1) << L::mantissa) - 1);
        if (field) significand |= u64(1) << L::mantissa;
        const int exponent = (field ? field : 1) - L::bias - L::mantissa - S::O_SCALE;
        const Raw x{significand, exponent, word != magnitude, magnitude > W::infinity, magnitude == W::infinity, false};
        return S::o.pack(x, {RZ, 0, 0}, Saturation::SAT, 0);
    }

    // Encodes a vector at once; returns false if a lane needs encode().
    static bool encode_all(V value, typename L::Unsigned* codes) {
        if constexpr (IS_WORD) {
            const U word = (U)value, magnitude = word & W::magnitude;
            const U code = (magnitude >> (L::mantissa - S::o.man)) | (W::below_zero(word) & typename L::Unsigned(S::o.sign_code));
            typename L::Unsigned words[L::count];
            std::memcpy(words, &magnitude, sizeof words);
            std::memcpy(codes, &code, sizeof code);
            bool finite = true;
            for (const auto one : words) finite &= one < W::infinity;
            return finite;
        } else {
            return false;
        }
    }

    // Rounds a sum to nearest in the lane, then to nearest in the format, by an addition that shifts out the places below.
    // That is wrong only if a flag tells it, for operands with the factors of scales(); see float_plan.py.
    static V step_twice(V sum, V a, V b) {
        if constexpr (TWICE) {
            constexpr auto up = Scalar(u64(1) << (L::mantissa - S::o.man));
            const V total = a * b + sum, power = (V)((U)total & (W::sign | W::infinity));
            const V shifted = power * up + total;
            return shifted - power * up;
        }
        return sum;
    }

    template <bool CHECK>
    static V step(V sum, V a, V b, U word, U product_word) {
        if (S::ROUNDS_PRODUCT) {
            V product = (V)S::ProductWord::template round<CHECK>((U)(a * b), product_word);
            if (S::RESCALE) product *= Scalar(S::FACTOR);
            const U total = S::ODD ? odd_sum<LANE>(product, sum) : (U)(product + sum);
            return (V)S::RoundWord::template round<CHECK>(total, word);
        }
        const U total = S::ODD ? odd_sum<LANE>(a * b, sum) : (U)(a * b + sum);
        return (V)S::RoundWord::template round<CHECK>(total, word);
    }
};

}  // namespace halfulp
