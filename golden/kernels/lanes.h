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

// Parity of the bits of TAPS in the lowest bit; the other bits are undefined.
template <u64 TAPS, class U>
inline U parity_of_taps(U state) {
    constexpr int place = __builtin_ctzll(TAPS);
    if constexpr (TAPS == u64(1) << place)
        return state >> place;
    else
        return (state >> place) ^ parity_of_taps<TAPS & (TAPS - 1)>(state);
}

template <bool PLATEAU, bool SUM, int WIDTH, u64 TAPS, int WORD, int BITS>
struct LaneWords<RegisterWords<PLATEAU, SUM, WIDTH, TAPS, WORD>, BITS> {
    static_assert(WIDTH <= BITS, "a state must fit into a lane");
    static constexpr int count = Lanes<BITS>::count;
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
        for (int step = 0; step < steps; ++step, words += stride) {
            if constexpr (PLATEAU) {
                *words = (state ^ inverted) << (WORD - WIDTH);
                state = (state + state + (parity_of_taps<TAPS>(state) & 1)) & T(ones(WIDTH));
                inverted ^= (U)(state == 1) & T(ones(WIDTH));
            } else {
                *words = state & T(ones(WORD));
                // Bits above WIDTH have no effect.
                state = state + state + (parity_of_taps<TAPS>(state) & 1);
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

// High and low halves of the products of 32-bit numbers with a factor; in 64-bit lanes the upper halves are zero.
inline void product_halves(VectorU32 x, u32 factor, VectorU32& high, VectorU32& low) {
    constexpr u64 lower = 0xFFFFFFFFu;
    const VectorU64 even = times((VectorU64)x, factor), odd = times((VectorU64)x >> 32, factor);
    high = (VectorU32)((even >> 32) | (odd & ~lower));
    low = (VectorU32)((even & lower) | (odd << 32));
}

inline void product_halves(VectorU64 x, u32 factor, VectorU64& high, VectorU64& low) {
    const VectorU64 product = times(x, factor);
    high = product >> 32;
    low = product & 0xFFFFFFFFu;
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
    void fill_block(u64 block, U out[4]) const {
        U c0 = all<U>(T(u32(block))), c1 = low, c2 = high, c3 = all<U>(T(SUM ? 0 : 1));
        u32 k0 = u32(key), k1 = u32(key >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) {
            U high0, low0, high1, low1;
            product_halves(c0, 0xD2511F53u, high0, low0);
            product_halves(c2, 0xCD9E8D57u, high1, low1);
            c0 = high1 ^ c1 ^ T(k0);
            c2 = high0 ^ c3 ^ T(k1);
            c1 = low1;
            c3 = low0;
            k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
        }
        out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
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
