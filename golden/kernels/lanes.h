// Vectors of lanes, and random words for them: as many lanes as the machine's widest registers hold.
#pragma once
#include <cstring>

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

// One value in all lanes, as it is: to add it to zero would take the sign from -0.
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

// Steps for which the words of a block are made at once.
constexpr int STEPS = 32;

// Words of the sources of `count` neighbouring elements, for the next steps.
template <class Source, int BITS>
struct LaneWords {
    // One by one, for what has no faster way: given words.
    static constexpr int count = Lanes<BITS>::count;
    using U = typename Lanes<BITS>::U;
    Source sources[count];
    void begin(const Call& call, i64 batch, i64 i, i64 j, i64 element, int there) {
        for (int lane = 0; lane < there; ++lane) sources[lane].begin(call, batch, i, j + lane, element + lane);
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
    void begin(const Call&, i64, i64, i64, i64, int) {}
    void fill(typename Lanes<BITS>::U*, int, int) {}
};

template <class U, u64 TAPS>
inline U parity_of_taps(U state) {
    // The bit that comes in, at place 0, and anything above.
    U parity{};
    for (int place = 0; place < 64; ++place)
        if (TAPS >> place & 1) parity ^= state >> place;
    return parity & 1;
}

template <bool SUM, int WIDTH, u64 TAPS, int WORD, int BITS>
struct LaneWords<LfsrWords<SUM, WIDTH, TAPS, WORD>, BITS> {
    static_assert(WIDTH <= BITS, "a state has a lane's bits at most");
    static constexpr int count = Lanes<BITS>::count;
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Unsigned;
    U state;
    void begin(const Call& call, i64, i64, i64, i64 element, int there) {
        const i64* states = (SUM ? call.sum_states : call.product_states) + element;
        for (int lane = 0; lane < count; ++lane) state[lane] = T(states[lane < there ? lane : 0]);
    }
    void fill(U* words, int steps, int stride) {
        // What is above the word has left it, and harms nothing.
        for (int step = 0; step < steps; ++step, words += stride) {
            *words = state & T(ones(WORD));
            state = state + state + parity_of_taps<U, TAPS>(state);
        }
    }
};

template <bool SUM, int WIDTH, u64 TAPS, int WORD, int BITS>
struct LaneWords<PlateauWords<SUM, WIDTH, TAPS, WORD>, BITS> {
    static constexpr int count = Lanes<BITS>::count;
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Unsigned;
    U state, turned;
    void begin(const Call& call, i64, i64, i64, i64 element, int there) {
        const i64* states = (SUM ? call.sum_states : call.product_states) + element;
        for (int lane = 0; lane < count; ++lane) {
            const u64 given = u64(states[lane < there ? lane : 0]);
            state[lane] = T(given & ones(WIDTH));
            turned[lane] = given >> WIDTH & 1 ? T(ones(WIDTH)) : 0;
        }
    }
    void fill(U* words, int steps, int stride) {
        for (int step = 0; step < steps; ++step, words += stride) {
            *words = (state ^ turned) << (WORD - WIDTH);
            state = (state + state + parity_of_taps<U, TAPS>(state)) & T(ones(WIDTH));
            turned ^= (U)(state == 1) & T(ones(WIDTH));
        }
    }
};

template <bool SUM, int WORD, int BITS>
struct LaneWords<PhiloxWords<SUM, WORD>, BITS> {
    using Source = PhiloxWords<SUM, WORD>;
    static constexpr int count = Lanes<BITS>::count, per_block = Source::per_block;
    static constexpr int wide = BYTES / 8;  // products of 32 bits in a register
    using U = typename Lanes<BITS>::U;
    using T = typename Lanes<BITS>::Unsigned;
    u64 key, step, element;
    void begin(const Call& call, i64, i64, i64, i64 index, int) {
        key = call.key;
        step = u64(call.first_step);
        element = u64(index);
    }
    // Blocks of the counter for all lanes: out[place][lane].
    void blocks(u64 block, u32 (*out)[count]) const {
        for (int lane = 0; lane < count; lane += wide) {
            VectorU64 index;
            for (int at = 0; at < wide; ++at) index[at] = element + u64(lane + at);
            const VectorU64 low = all<VectorU64>(u64(0xFFFFFFFFu));
            VectorU64 c0 = all<VectorU64>(u64(u32(block))), c1 = index & low, c2 = index >> 32;
            VectorU64 c3 = all<VectorU64>(u64(SUM ? 0 : 1));
            u32 k0 = u32(key), k1 = u32(key >> 32);
            for (int round = 0; round < 10; ++round) {
                const VectorU64 p0 = times(c0, 0xD2511F53u), p1 = times(c2, 0xCD9E8D57u);
                c0 = (p1 >> 32) ^ c1 ^ u64(k0);
                c2 = (p0 >> 32) ^ c3 ^ u64(k1);
                // Only the low halves count; where a high half matters it is shifted down.
                c1 = p1 & low;
                c3 = p0 & low;
                k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
            }
            for (int at = 0; at < wide; ++at) {
                out[0][lane + at] = u32(c0[at]);
                out[1][lane + at] = u32(c1[at]);
                out[2][lane + at] = u32(c2[at]);
                out[3][lane + at] = u32(c3[at]);
            }
        }
    }
    static VectorU64 times(VectorU64 x, u32 factor) {
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
        return (VectorU64)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
        return (VectorU64)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(factor));
#else
        return (x & 0xFFFFFFFFu) * u64(factor);
#endif
    }
    void fill(U* words, int steps, int stride) {
        alignas(64) u32 block[4][count];
        bool made = false;
        for (int at = 0; at < steps; ++at, ++step, words += stride) {
            const int place = int(step % per_block);
            if (place == 0 || !made) blocks(step / per_block, block), made = true;
            const u32* from = per_block == 8 ? block[place >> 1] : block[place];
            const int down = per_block == 8 ? (place & 1) * 16 : 0;
            U word;
            for (int lane = 0; lane < count; ++lane) word[lane] = T(from[lane] >> down & u32(ones(WORD)));
            *words = word;
        }
    }
};

}  // namespace halfulp
