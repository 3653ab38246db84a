// Vectors as wide as the processor's widest registers, and random words for their lanes.
#pragma once
#include <algorithm>
#include <cstring>
#include <utility>

#include "words.h"
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace halfulp {

#if defined(HALFULP_SCALAR)
constexpr int BYTES = 8;
#elif defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
constexpr int BYTES = 64;
#elif defined(__AVX2__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif


typedef float VectorF32 __attribute__((vector_size(BYTES)));
typedef double VectorF64 __attribute__((vector_size(BYTES)));
typedef std::int32_t VectorI32 __attribute__((vector_size(BYTES)));
typedef std::int64_t VectorI64 __attribute__((vector_size(BYTES)));
typedef std::uint32_t VectorU32 __attribute__((vector_size(BYTES)));
typedef std::uint64_t VectorU64 __attribute__((vector_size(BYTES)));
typedef std::int16_t VectorI16 __attribute__((vector_size(BYTES)));

// Lanes of 32 and of 64 bits.
template <int BITS>
struct Lanes;
template <>
struct Lanes<32> {
    using F = VectorF32;
    using I = VectorI32;
    using U = VectorU32;
    using Scalar = float;
    using Integer = std::int32_t;
    using Unsigned = u32;
    static constexpr int count = BYTES / 4, mantissa = 23, bias = 127;
};
template <>
struct Lanes<64> {
    using F = VectorF64;
    using I = VectorI64;
    using U = VectorU64;
    using Scalar = double;
    using Integer = std::int64_t;
    using Unsigned = u64;
    static constexpr int count = BYTES / 8, mantissa = 52, bias = 1023;
};

// The same value in all lanes, as bits: adding -0 to a vector of zeros would lose its sign.
template <class V, class S>
inline V all(S value) {
    using U = typename Lanes<8 * sizeof(S)>::U;
    typename Lanes<8 * sizeof(S)>::Unsigned word;
    std::memcpy(&word, &value, sizeof word);
    return (V)(U{} + word);
}

// Rounding increment of floors, such as integers in two's complement; `minus` is -1 in lanes of negative numbers.
template <Mode MODE, class U>
inline U increment_of_floor(U minus, U low, U last, U random) {
    const Mode mode = MODE;  // compilers check the cases of a variable only
    switch (mode) {
        case RN: return (low >> 1) + last;
        case RA: return (low >> 1) + 1 + minus;
        case RH: return (low >> 1) - minus;
        case RHU: return (low >> 1) + 1;
        case RHD: return low >> 1;
        case RZ: return low & minus;
        case RU: return low;
        case RO: return low & (last - 1);
        case SR: return random;
        case RD: case EXACT: return U{};
    }
    __builtin_unreachable();
}

template <class V>
inline V load(const void* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// Elements of a table at the places in the lanes of a vector.
template <class U, class I, class T>
inline U gathered(const T* table, I place) {
    static_assert(sizeof(T) == sizeof(place[0]), "an element must fill a lane");
    constexpr bool narrow = sizeof(T) == 4;
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
    if constexpr (narrow)
        return (U)_mm512_i32gather_epi32((__m512i)place, table, 4);
    else
        return (U)_mm512_i64gather_epi64((__m512i)place, table, 8);
#elif defined(__AVX2__)
    if constexpr (narrow)
        return (U)_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), (__m256i)place, 4);
    else
        return (U)_mm256_i64gather_epi64(reinterpret_cast<const long long*>(table), (__m256i)place, 8);
#else
    U found{};
    for (unsigned lane = 0; lane < sizeof(U) / sizeof(T); ++lane) found[lane] = table[place[lane]];
    return found;
#endif
}

// Vector of alternating lanes of the lower or upper halves of two vectors.
template <class V, int... PLACE>
inline V interleaved(V x, V y, int half, std::integer_sequence<int, PLACE...>) {
    constexpr int count = sizeof...(PLACE);
    return half ? __builtin_shufflevector(x, y, (PLACE % 2 * count + count / 2 + PLACE / 2)...)
                : __builtin_shufflevector(x, y, (PLACE % 2 * count + PLACE / 2)...);
}

// Sum of numbers of binary32, rounded to nearest, ties to even, without the last `drop` bits, as both numbers are before.
// The processor rounds to nearest, too: if 2(24 - drop) + 2 <= 24, two roundings of a sum give its nearest number
// (Figueroa, SIGNUM Newsletter 30(3), 1995).
inline VectorF32 rounded_sum(VectorF32 x, VectorF32 y, int drop) {
    const u32 low = (u32(1) << drop) - 1;
    const auto rounded = [&](VectorF32 number) {
        const VectorU32 word = (VectorU32)number;
        return (word + (low >> 1) + (word >> drop & 1)) & ~low;
    };
    const VectorF32 total = (VectorF32)rounded(x) + (VectorF32)rounded(y);
    const VectorU32 invalid = (VectorU32)(x != x) | (VectorU32)(y != y) | (VectorU32)(total != total);
    return (VectorF32)((invalid & 0x7FC00000u) | (rounded(total) & ~invalid));
}

// Returns true if a comparison holds in some lane.
template <class Mask>
inline bool any_lane(Mask holds) {
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
    return _mm512_movepi32_mask((__m512i)holds) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)holds) != 0;
#else
    const VectorI64 words = (VectorI64)holds;
    return (words[0] | words[BYTES / 8 - 1]) != 0;
#endif
}

// Transposes a square of numbers by perfect shuffles (Stone, IEEE Transactions on Computers C-20(2), 1971).
template <class V, int COUNT>
inline void transpose(V (&square)[COUNT]) {
    const std::make_integer_sequence<int, COUNT> places{};
    for (int times = 1; times < COUNT; times *= 2) {
        V next[COUNT];
        for (int index = 0; index < COUNT; ++index)
            next[index] = interleaved(square[index / 2], square[index / 2 + COUNT / 2], index % 2, places);
        for (int index = 0; index < COUNT; ++index) square[index] = next[index];
    }
}

// Number of steps whose random words a block computes at once.
constexpr int STEPS = 32;

// Random words of `count` neighbouring elements for the next steps. This general version, for given words, takes them one
// by one.
template <class Source, int BITS>
struct LaneWords {
    static constexpr int count = Lanes<BITS>::count;
    using U = typename Lanes<BITS>::U;
    Source sources[count];
    void begin(const Call& call, i64 batch, i64 i, i64 j, int there) {
        for (int lane = 0; lane < there; ++lane) sources[lane].begin(call, batch, i, j + lane);
        for (int lane = there; lane < count; ++lane) sources[lane] = sources[0];
    }
    void fill(U* words, int steps, int stride) {
        for (int step = 0; step < steps; ++step, words += stride) {
            U word;
            for (int lane = 0; lane < count; ++lane) word[lane] = typename Lanes<BITS>::Unsigned(sources[lane].next());
            *words = word;
        }
    }
};

template <int BITS>
struct LaneWords<NoWords, BITS> {
    void begin(const Call&, i64, i64, i64, int) {}
    void fill(typename Lanes<BITS>::U*, int, int) {}
};

// The next GROUP bits of an LFSR, of which the last is the lowest; the bits above are undefined.
template <u64 TAPS, int GROUP, class U>
inline U next_bits(U state) {
    constexpr int place = __builtin_ctzll(TAPS);
    const U bits = state >> (place - (GROUP - 1));
    if constexpr (TAPS == u64(1) << place)
        return bits;
    else
        return bits ^ next_bits<TAPS & (TAPS - 1), GROUP>(state);
}

template <bool INVERTING, bool SUM, int WIDTH, u64 TAPS, int DROPPED, int TAKEN, bool REPEATED, int WORD, int BITS>
struct LaneWords<RegisterWords<INVERTING, SUM, WIDTH, TAPS, DROPPED, TAKEN, REPEATED, WORD>, BITS> {
    static_assert(WIDTH <= BITS, "a state must fit into a lane");
    static constexpr int count = Lanes<BITS>::count;
    // Steps that one operation on a state makes: none depends on a bit that another one of them shifts in.
    static constexpr int lowest = __builtin_ctzll(TAPS), spare = BITS - WIDTH;
    static constexpr int GROUP = lowest >= 3 && spare >= 4 ? 4 : lowest >= 1 && spare >= 2 ? 2 : 1;
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Unsigned;
    U state, inverted;
    static U word(U state) { return placed(state, T(ones(TAKEN)), DROPPED, TAKEN, REPEATED, WORD); }
    void begin(const Call& call, i64 batch, i64 i, i64 j, int there) {
        const i64* states = (SUM ? call.sum_states : call.product_states) + call.element(batch, i, j);
        for (int lane = 0; lane < count; ++lane) {
            const u64 given = u64(states[lane < there ? lane * call.across : 0]);
            state[lane] = T(given & ones(WIDTH));
            if constexpr (INVERTING) inverted[lane] = given >> WIDTH & 1 ? T(ones(WIDTH)) : 0;
        }
    }
    void fill(U* words, int steps, int stride) {
        if constexpr (INVERTING) {
            for (int step = 0; step < steps; ++step, words += stride) {
                *words = word(state ^ inverted);
                state = (state + state + (next_bits<TAPS, 1>(state) & 1)) & T(ones(WIDTH));
                inverted ^= (U)(state == 1) & T(ones(WIDTH));
            }
        } else {
            // Bits above WIDTH have no effect.
            for (int step = 0; step < steps; step += GROUP) {
                const int made = steps - step < GROUP ? steps - step : GROUP;
                const U all_steps = state << GROUP | (next_bits<TAPS, GROUP>(state) & T(ones(GROUP)));
                if (made == GROUP)
#pragma GCC unroll 4
                    for (int at = 0; at < GROUP; ++at, words += stride) *words = word(all_steps >> (GROUP - at));
                else
                    for (int at = 0; at < made; ++at, words += stride) *words = word(all_steps >> (GROUP - at));
                state = all_steps >> (GROUP - made);
            }
        }
    }
};

// Products of the low halves of 64-bit lanes with a 32-bit factor.
inline VectorU64 times(VectorU64 x, u32 factor) {
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
    return (VectorU64)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
    return (VectorU64)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(factor));
#else
    return (x & 0xFFFFFFFFu) * u64(factor);
#endif
}

inline VectorU64 exclusive_or(VectorU64 x, VectorU64 y, u64 z) {
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
    return (VectorU64)_mm512_ternarylogic_epi64((__m512i)x, (__m512i)y, _mm512_set1_epi64(i64(z)), 0x96);
#else
    return x ^ y ^ z;
#endif
}

// The low halves of 64-bit lanes at even and at odd places.
inline VectorU32 merged(VectorU64 even, VectorU64 odd) {
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
    return (VectorU32)_mm512_mask_shuffle_epi32((__m512i)even, 0xAAAA, (__m512i)odd, _MM_PERM_CCAA);
#else
    return (VectorU32)((even & 0xFFFFFFFFu) | (odd << 32));
#endif
}

// Philox4x32-10 (see words.h) in the low halves of 64-bit lanes; the upper halves are undefined, and products do not depend
// on them. Lanes of 32 bits are in two vectors, of those at even and at odd places. Of the first two rounds, one product
// depends on the element only, the others on the block only.
template <bool SUM, int WORD, int BITS>
struct LaneWords<PhiloxWords<SUM, WORD>, BITS> {
    static constexpr int count = Lanes<BITS>::count, per_block = words_per_block(WORD), parts = 64 / BITS;
    static constexpr u32 FIRST = 0xD2511F53u, SECOND = 0xCD9E8D57u;
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Unsigned;
    u64 key, step;
    VectorU64 of_high[parts], of_low[parts];  // products of the first and second round

    void begin(const Call& call, i64 batch, i64 i, i64 j, int) {
        const i64 element = call.element(batch, i, j);
        key = call.key;
        step = u64(call.first_step);
        for (int lane = 0; lane < count; ++lane) {
            const u64 number = u64(element + lane * call.across), high = SECOND * (number >> 32);
            of_high[lane % parts][lane / parts] = high;
            of_low[lane % parts][lane / parts] = u64(FIRST) * u32(u32(high >> 32) ^ u32(number) ^ u32(key));
        }
    }

    void fill_block(u32 block, const u32 (&keys)[10][2], U (&out)[4]) const {
        const u64 first = u64(FIRST) * block, second = u64(SECOND) * u32((first >> 32) ^ (SUM ? 0 : 1) ^ keys[0][1]);
        VectorU64 c[4][parts];
#pragma GCC unroll 2
        for (int part = 0; part < parts; ++part) {
            c[0][part] = of_high[part] ^ u64(u32(second >> 32) ^ keys[1][0]);
            c[1][part] = all<VectorU64>(second);
            c[2][part] = of_low[part] >> 32 ^ u64(u32(first) ^ keys[1][1]);
            c[3][part] = of_low[part];
#pragma GCC unroll 8
            for (int round = 2; round < 10; ++round) {
                const VectorU64 p0 = times(c[0][part], FIRST), p1 = times(c[2][part], SECOND);
                c[0][part] = exclusive_or(p1 >> 32, c[1][part], keys[round][0]);
                c[2][part] = exclusive_or(p0 >> 32, c[3][part], keys[round][1]);
                c[1][part] = p1, c[3][part] = p0;
            }
        }
#pragma GCC unroll 4
        for (int index = 0; index < 4; ++index)
            if constexpr (parts == 2)
                out[index] = merged(c[index][0], c[index][1]);
            else
                out[index] = c[index][0];
    }

    void fill(U* words, int steps, int stride) {
        u32 keys[10][2];
        for (u32 round = 0; round < 10; ++round)
            keys[round][0] = u32(key) + round * 0x9E3779B9u, keys[round][1] = u32(key >> 32) + round * 0xBB67AE85u;
        for (int at = 0; at < steps;) {
            U block[4];
            fill_block(u32(step / per_block), keys, block);
            const int first = int(step % per_block), end = std::min(per_block, first + steps - at);
            const auto put = [&](int place) {
                words[i64(at + place - first) * stride] =
                    (per_block == 8 ? block[place >> 1] >> (place & 1) * 16 : block[place]) & T(ones(WORD));
            };
            if (end - first == per_block)
#pragma GCC unroll 8
                for (int place = 0; place < per_block; ++place) put(place);
            else
                for (int place = first; place < end; ++place) put(place);
            at += end - first, step += u64(end - first);
        }
    }
};

}  // namespace halfulp
