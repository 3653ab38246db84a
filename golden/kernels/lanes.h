// Vectors as wide as the processor's widest registers, and random words for their lanes.
#pragma once
#include <cstring>
#include <utility>

#include "words.h"
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace halfulp {

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
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

template <class V>
inline V load(const void* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// Vector of alternating lanes of the lower or upper halves of two vectors.
template <class V, int... PLACE>
inline V interleaved(V x, V y, int half, std::integer_sequence<int, PLACE...>) {
    constexpr int count = sizeof...(PLACE);
    return half ? __builtin_shufflevector(x, y, (PLACE % 2 * count + count / 2 + PLACE / 2)...)
                : __builtin_shufflevector(x, y, (PLACE % 2 * count + PLACE / 2)...);
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

template <bool PLATEAU, bool SUM, int WIDTH, u64 TAPS, int WORD, int BITS>
struct LaneWords<RegisterWords<PLATEAU, SUM, WIDTH, TAPS, WORD>, BITS> {
    static_assert(WIDTH <= BITS, "a state must fit into a lane");
    static constexpr int count = Lanes<BITS>::count;
    // Steps that one operation on a state makes: none depends on a bit that another one of them shifts in.
    static constexpr int lowest = __builtin_ctzll(TAPS), spare = BITS - WIDTH;
    static constexpr int GROUP = lowest >= 3 && spare >= 4 ? 4 : lowest >= 1 && spare >= 2 ? 2 : 1;
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Unsigned;
    U state, inverted;
    void begin(const Call& call, i64 batch, i64 i, i64 j, int there) {
        const i64* states = (SUM ? call.sum_states : call.product_states) + call.element(batch, i, j);
        for (int lane = 0; lane < count; ++lane) {
            const u64 given = u64(states[lane < there ? lane * call.across : 0]);
            state[lane] = T(given & ones(WIDTH));
            if constexpr (PLATEAU) inverted[lane] = given >> WIDTH & 1 ? T(ones(WIDTH)) : 0;
        }
    }
    void fill(U* words, int steps, int stride) {
        if constexpr (PLATEAU) {
            for (int step = 0; step < steps; ++step, words += stride) {
                *words = (state ^ inverted) << (WORD - WIDTH);
                state = (state + state + (next_bits<TAPS, 1>(state) & 1)) & T(ones(WIDTH));
                inverted ^= (U)(state == 1) & T(ones(WIDTH));
            }
        } else {
            // Bits above WIDTH have no effect.
            for (int step = 0; step < steps; step += GROUP) {
                const int made = steps - step < GROUP ? steps - step : GROUP;
                const U all_steps = state << GROUP | (next_bits<TAPS, GROUP>(state) & T(ones(GROUP)));
                if (made == GROUP)
                    for (int at = 0; at < GROUP; ++at, words += stride) *words = all_steps >> (GROUP - at) & T(ones(WORD));
                else
                    for (int at = 0; at < made; ++at, words += stride) *words = all_steps >> (GROUP - at) & T(ones(WORD));
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

// Philox4x32-10 in the low halves of 64-bit lanes; the upper halves are undefined, and products do not depend on them.
inline void philox(VectorU64 (&c)[4], u64 key) {
    u32 k0 = u32(key), k1 = u32(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const VectorU64 p0 = times(c[0], 0xD2511F53u), p1 = times(c[2], 0xCD9E8D57u);
        c[0] = (p1 >> 32) ^ c[1] ^ u64(k0);
        c[2] = (p0 >> 32) ^ c[3] ^ u64(k1);
        c[1] = p1, c[3] = p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

// Philox in lanes of 32 bits: those at even and at odd places separately.
inline void philox(VectorU32 (&c)[4], u64 key) {
    VectorU64 even[4], odd[4];
    for (int index = 0; index < 4; ++index) even[index] = (VectorU64)c[index], odd[index] = (VectorU64)c[index] >> 32;
    philox(even, key);
    philox(odd, key);
    for (int index = 0; index < 4; ++index) c[index] = (VectorU32)((even[index] & 0xFFFFFFFFu) | (odd[index] << 32));
}

template <bool SUM, int WORD, int BITS>
struct LaneWords<PhiloxWords<SUM, WORD>, BITS> {
    static constexpr int count = Lanes<BITS>::count, per_block = words_per_block(WORD);
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Unsigned;
    u64 key, step;
    U low, high;  // halves of the elements' numbers
    void begin(const Call& call, i64 batch, i64 i, i64 j, int) {
        const i64 element = call.element(batch, i, j);
        key = call.key;
        step = u64(call.first_step);
        for (int lane = 0; lane < count; ++lane) {
            low[lane] = T(u32(u64(element + lane * call.across)));
            high[lane] = T(u64(element + lane * call.across) >> 32);
        }
    }
    void fill_block(u64 block, U (&out)[4]) const {
        out[0] = all<U>(T(u32(block))), out[1] = low, out[2] = high, out[3] = all<U>(T(SUM ? 0 : 1));
        philox(out, key);
        if (BITS == 64)
            for (int index = 0; index < 4; ++index) out[index] &= T(0xFFFFFFFFu);
    }
    void fill(U* words, int steps, int stride) {
        U block[4]{};
        bool made = false;
        for (int at = 0; at < steps; ++at, ++step, words += stride) {
            const int place = int(step % per_block);
            if (place == 0 || !made) fill_block(step / per_block, block), made = true;
            *words = (per_block == 8 ? block[place >> 1] >> (place & 1) * 16 : block[place]) & T(ones(WORD));
        }
    }
};

}  // namespace halfulp
