// Conversion of real numbers to blocks with shared scales, in binary64 lanes.
//
// The processor rounds toward zero. Numbers are divided by the scale of their block, and if bits are discarded, the last bit
// is set (rounding to odd); that rounds to every format of an element as the exact quotient does.
#pragma once
#include "floats.h"
#include "scale.h"

namespace halfulp {

// Numbers of shape (outer, length, inner). Blocks run along the second dimension; the last one of a line may be shorter.
struct Quantization {
    i64 outer, length, inner, threads;
    const void* x;      // binary32 or binary64
    const i64* random;  // random words, or null
    void *elements, *scales;
    double tensor;  // positive number of binary32: the scale of all numbers
};

enum Rule { RULE_FLOOR, RULE_CEIL, RULE_EVEN, RULE_NEAREST };

using Lane = Word<64>;
constexpr int LANES = Lanes<64>::count;

// Quotient of positive numbers, rounded to odd; the processor rounds toward zero.
inline double odd_quotient(double x, double y) {
    const double quotient = x / y;
    return number_of(word_of(quotient) | u64(__builtin_fma(-quotient, y, x) != 0));
}

inline Raw raw_of(double positive) {
    const u64 word = word_of(positive), hidden = u64(1) << 52;
    return {(word & (hidden - 1)) | hidden, int(word >> 52) - 1023 - 52, false, false, false, false};
}

// Rounds lanes to codes; larger numbers than those of the format saturate. `sticky` has ones in the last bit of lanes that
// were truncated.
template <const Float& O, const Rounding& R, bool SIGNED_ZERO>
struct FloatElements {
    static constexpr int drop = 52 - O.man;
    const double smallest = std::ldexp(1.0, O.emin), limit = std::ldexp(2.0, O.emax);

    Lane::U operator()(Lane::F x, Lane::U sticky, Lane::U random) const {
        const Lane::U word = (Lane::U)x, given = word & Lane::magnitude;
        const Lane::U most = all<Lane::U>(word_of(limit)), least = all<Lane::U>(word_of(smallest));
        const Lane::F size = (Lane::F)Lane::select((Lane::I)given > (Lane::I)most, most, given);
        // Subnormal numbers are added to the smallest normal one: then the same bits are discarded as of others.
        const Lane::U below = (Lane::U)((Lane::I)given < (Lane::I)least);
        const Lane::F more = (Lane::F)(least & below), placed = size + more;
        Lane::U bits = (Lane::U)placed | (differs<64>((placed - more) - size) & 1) | sticky;
        bits += increment<64, R.mode>(word, all<Lane::U>((u64(1) << drop) - 1), bits >> drop & 1, random << (drop - R.bits));
        Lane::U code = ((bits - least) >> drop) + (all<Lane::U>(u64(1) << O.man) & ~below);
        code = Lane::select((Lane::I)code > (Lane::I)all<Lane::U>(u64(O.max_code)), all<Lane::U>(u64(O.max_code)), code);
        const Lane::U sign = Lane::below_zero(word) & O.sign_code;
        return code | (SIGNED_ZERO ? sign : sign & (Lane::U)((Lane::I)code > 0));
    }
};

template <const Fixed& O, const Rounding& R, bool SIGNED_ZERO>
struct FixedElements {
    // All sums with the offset have its exponent; their truncations are floors.
    static constexpr int place = O.int_bits + 2, drop = 52 - place - O.frac_bits;
    const double limit = std::ldexp(1.0, O.int_bits), offset = std::ldexp(1.5, place);

    Lane::U operator()(Lane::F x, Lane::U sticky, Lane::U random) const {
        const Lane::U word = (Lane::U)x, given = word & Lane::magnitude, most = all<Lane::U>(word_of(limit));
        const Lane::U size = Lane::select((Lane::I)given > (Lane::I)most, most, given), minus = Lane::below_zero(word);
        const Lane::F shift = all<Lane::F>(offset);
        // A negative number that was truncated is less than its truncation.
        const Lane::F value = (Lane::F)((size + (sticky & minus)) | (word & Lane::sign)), placed = value + shift;
        const Lane::U low = all<Lane::U>((u64(1) << drop) - 1);
        Lane::U bits = (Lane::U)placed | (differs<64>((placed - shift) - value) & 1) | sticky;
        bits += increment_of_floor<R.mode>(minus, low, bits >> drop & 1, random << (drop - R.bits));
        Lane::I integer = (Lane::I)((bits >> drop) - (all<Lane::U>(word_of(offset)) >> drop));
        const Lane::I largest = all<Lane::I>(i64(O.largest)), lowest = all<Lane::I>(-i64(O.lowest));
        integer = integer > largest ? largest : integer;
        integer = integer < lowest ? lowest : integer;
        return (Lane::U)integer & ones(O.width);
    }
};

// S has the members element and scale, formats; Elements, a type that rounds lanes to codes; Element and Scale_, types of
// codes; LENGTH, RULE, EMAX, PRECISION and LARGEST of the block's elements; and the codes of the scale of zeros, of the
// smallest scale, and of element and scale of a block with NaN or infinity.
template <class S, class IN>
struct Quantizer {
    static constexpr i64 ROOM = (S::LENGTH + LANES - 1) / LANES * LANES, TILE = 16, GROUPS = 1 + 4096 / S::LENGTH;
    static constexpr bool DRAWS = S::rounding.mode == SR;

    struct Buffer {
        alignas(64) double x[ROOM];
        alignas(64) u64 random[DRAWS ? ROOM : 1], codes[ROOM];
    };

    const Quantization& call;
    const typename S::Elements round{};

    // Larger and smaller numbers of binary64 have the same elements and scales as these.
    static double read(IN x) {
        if constexpr (std::is_same_v<IN, double>) {
            const double size = std::fabs(x);
            if (size > 0x1p700 && size < std::numeric_limits<double>::infinity()) return std::copysign(0x1p700, x);
            if (size < 0x1p-700 && size > 0) return std::copysign(0x1p-700, x);
        }
        return double(x);
    }

    u64 scale_of(double most) const {
        if (most == 0) return S::ZERO_SCALE;
        Raw wanted{1, 0, false, false, false, false};
        if constexpr (S::RULE == RULE_NEAREST) {
            wanted = raw_of(odd_quotient(most, S::LARGEST * call.tensor));
        } else {
            const u64 word = word_of(call.tensor == 1 ? most : odd_quotient(most, call.tensor));
            const u64 significand = word & ones(52);
            wanted.exponent = int(word >> 52) - 1023 - S::EMAX;
            // Rounding carries into the next power of two if all bits of the precision and the next bit are ones.
            if constexpr (S::RULE == RULE_EVEN) wanted.exponent += significand >> (52 - S::PRECISION) == ones(S::PRECISION);
            if constexpr (S::RULE == RULE_CEIL) wanted.exponent += significand > (word_of(S::LARGEST) & ones(52));
        }
        const u64 code = S::scale.pack(wanted, {RN, 0, 1}, Saturation::SAT, 0);
        return code ? code : S::SMALLEST_SCALE;
    }

    // Computes the codes of a block; returns that of the scale.
    u64 block(Buffer& buffer) const {
        Lane::U most{};
        for (i64 at = 0; at < ROOM; at += LANES) {
            const Lane::U size = load<Lane::U>(buffer.x + at) & Lane::magnitude;
            most = Lane::select((Lane::I)size > (Lane::I)most, size, most);
        }
        u64 top = 0;
        for (int lane = 0; lane < LANES; ++lane) top = most[lane] > top ? most[lane] : top;
        if (top >= Lane::infinity) {
            for (i64 at = 0; at < ROOM; ++at) buffer.codes[at] = S::NAN_ELEMENT;
            return S::NAN_SCALE;
        }
        const u64 code = scale_of(number_of(top));
        const Raw raw = S::scale.unpack(code);
        const double scale = std::ldexp(double(u64(raw.significand)), raw.exponent) * call.tensor;
        const bool power = !(word_of(scale) & ones(52));
        const Lane::F factor = all<Lane::F>(power ? 1 / scale : scale);
        if (power)
            for (i64 at = 0; at < ROOM; at += LANES) {
                const Lane::U random = DRAWS ? load<Lane::U>(buffer.random + at) : Lane::U{};
                const Lane::U codes = round(load<Lane::F>(buffer.x + at) * factor, Lane::U{}, random);
                std::memcpy(buffer.codes + at, &codes, sizeof codes);
            }
        else
            for (i64 at = 0; at < ROOM; at += LANES) {
                const Lane::U random = DRAWS ? load<Lane::U>(buffer.random + at) : Lane::U{};
                const Lane::F x = load<Lane::F>(buffer.x + at), quotient = x / factor;
                Lane::F rest{};
                for (int lane = 0; lane < LANES; ++lane) rest[lane] = __builtin_fma(-quotient[lane], factor[lane], x[lane]);
                const Lane::U codes = round(quotient, differs<64>(rest) & 1, random);
                std::memcpy(buffer.codes + at, &codes, sizeof codes);
            }
        return code;
    }

    void run() const {
        const i64 blocks = (call.length + S::LENGTH - 1) / S::LENGTH, tiles = (call.inner + TILE - 1) / TILE;
        const i64 groups = call.outer * blocks * tiles;
        run_parallel((groups + GROUPS - 1) / GROUPS, call.threads, [&](i64 task) {
            const Machine machine(FE_TOWARDZERO);
            std::vector<Buffer> buffers(size_t(call.inner == 1 ? 1 : TILE));
            for (i64 group = task * GROUPS; group < std::min((task + 1) * GROUPS, groups); ++group) {
                const i64 tile = group % tiles, index = group / tiles, first = index % blocks * S::LENGTH;
                const i64 column = tile * TILE, wide = std::min(TILE, call.inner - column);
                const i64 count = std::min(i64(S::LENGTH), call.length - first);
                const i64 from = (index / blocks * call.length + first) * call.inner + column;
                one_tile(buffers.data(), from, count, wide, index * call.inner + column);
            }
        });
    }

    // Blocks of `wide` neighbouring columns, whose rows are apart by `inner`.
    void one_tile(Buffer* buffers, i64 from, i64 count, i64 wide, i64 to) const {
        const IN* x = static_cast<const IN*>(call.x) + from;
        auto* elements = static_cast<typename S::Element*>(call.elements) + from;
        auto* scales = static_cast<typename S::ScaleCode*>(call.scales) + to;
        if (call.inner == 1) {
            Buffer& buffer = buffers[0];
            for (i64 at = 0; at < count; ++at) buffer.x[at] = read(x[at]);
            for (i64 at = count; at < ROOM; ++at) buffer.x[at] = 0;
            if (DRAWS) std::memcpy(buffer.random, call.random + from, size_t(count) * sizeof(u64));
            scales[0] = typename S::ScaleCode(block(buffer));
            for (i64 at = 0; at < count; ++at) elements[at] = typename S::Element(buffer.codes[at]);
            return;
        }
        for (i64 at = 0; at < count; ++at)
            for (i64 column = 0; column < wide; ++column) {
                buffers[column].x[at] = read(x[at * call.inner + column]);
                if (DRAWS) buffers[column].random[at] = u64(call.random[from + at * call.inner + column]);
            }
        for (i64 column = 0; column < wide; ++column) {
            for (i64 at = count; at < ROOM; ++at) buffers[column].x[at] = 0;
            scales[column] = typename S::ScaleCode(block(buffers[column]));
        }
        for (i64 at = 0; at < count; ++at)
            for (i64 column = 0; column < wide; ++column)
                elements[at * call.inner + column] = typename S::Element(buffers[column].codes[at]);
    }
};

}  // namespace halfulp
