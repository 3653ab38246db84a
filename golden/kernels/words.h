// Random words of one rounder in sequence: given, from a hardware source, or from a counter.
#pragma once
#include "call.h"

namespace halfulp {

struct NoWords {
    void begin(const Call&, i64, i64, i64) {}
    u64 next() { return 0; }
};

// SUM: words of the sum; otherwise words of the product.
template <bool SUM>
struct GivenWords {
    const i64* at;
    i64 step;
    void begin(const Call& call, i64 batch, i64 i, i64 j) {
        const View& view = SUM ? call.sum_words : call.product_words;
        at = view.at(batch, i, j);
        step = view.step;
    }
    u64 next() {
        const u64 word = u64(*at);
        at += step;
        return word;
    }
};

// Fibonacci LFSR: the word shifts left, and the parity of the places in TAPS becomes its lowest bit.
template <bool SUM, int WIDTH, u64 TAPS, int BITS>
struct LfsrWords {
    u64 state;
    void begin(const Call& call, i64 batch, i64 i, i64 j) {
        state = u64((SUM ? call.sum_states : call.product_states)[call.element(batch, i, j)]);
    }
    u64 next() {
        const u64 word = state & ones(BITS);
        state = ((state << 1) | u64(__builtin_parityll(state & TAPS))) & ones(WIDTH);
        return word;
    }
};

// The words of an LFSR for one period, then their complements for one; aligned to the first discarded bits.
template <bool SUM, int WIDTH, u64 TAPS, int BITS>
struct PlateauWords {
    u64 state, turned;
    void begin(const Call& call, i64 batch, i64 i, i64 j) {
        state = u64((SUM ? call.sum_states : call.product_states)[call.element(batch, i, j)]);
        turned = state >> WIDTH & 1;
        state &= ones(WIDTH);
    }
    u64 next() {
        const u64 word = (turned ? ~state & ones(WIDTH) : state) << (BITS - WIDTH);
        state = ((state << 1) | u64(__builtin_parityll(state & TAPS))) & ones(WIDTH);
        turned ^= state == 1;
        return word;
    }
};

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).
inline void philox(const u32 counter[4], u64 key, u32 out[4]) {
    u32 c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    u32 k0 = u32(key), k1 = u32(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = u64(0xD2511F53u) * c0, p1 = u64(0xCD9E8D57u) * c2;
        const u32 n0 = u32(p1 >> 32) ^ c1 ^ k0, n2 = u32(p0 >> 32) ^ c3 ^ k1;
        c1 = u32(p1), c3 = u32(p0), c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// A block of the counter gives 8 words of up to 16 bits, low half first, or 4 longer ones.
template <bool SUM, int BITS>
struct PhiloxWords {
    static constexpr int per_block = BITS <= 16 ? 8 : 4;
    u64 key, element, step;
    u32 block[4];
    void begin(const Call& call, i64 batch, i64 i, i64 j) {
        key = call.key;
        element = u64(call.element(batch, i, j));
        step = u64(call.first_step);
        if (step % per_block) refill();
    }
    void refill() {
        const u32 counter[4] = {u32(step / per_block), u32(element), u32(element >> 32), SUM ? 0u : 1u};
        philox(counter, key, block);
    }
    u64 next() {
        const int place = int(step % per_block);
        if (place == 0) refill();
        ++step;
        const u32 word = per_block == 8 ? block[place >> 1] >> (place & 1) * 16 : block[place];
        return word & ones(BITS);
    }
};

}  // namespace halfulp
