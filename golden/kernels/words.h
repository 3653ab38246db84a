// Sources of random words of a rounder: given words, LFSRs, and Philox. lanes.h has them for vectors.
#pragma once
#include "call.h"

namespace halfulp {

struct NoWords {};

// Given words: of the sum if SUM, else of the product.
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

// Fibonacci LFSR: the state shifts left, and the parity of the bits in TAPS becomes its lowest bit. An INVERTING source
// gives the states of an LFSR for one period, then their complements for one. A word is a `placed` part of the state.
template <bool INVERTING, bool SUM, int WIDTH, u64 TAPS, int DROPPED, int TAKEN, bool REPEATED, int BITS>
struct RegisterWords {};

// The word of a state: its TAKEN bits above the DROPPED lowest become the upper bits of the word; below them are zeros, or
// the same bits again. MASK has TAKEN ones.
template <class U, class T>
inline U placed(U state, T mask, int dropped, int taken, bool repeated, int bits) {
    const U low = state >> dropped & mask;
    U word = low << (bits - taken);
    if (repeated)
        for (int up = bits - 2 * taken; up > -taken; up -= taken) word |= up < 0 ? low >> -up : low << up;
    return word;
}

// Words of a Philox block: 8 of up to 16 bits (the low half of each 32 bits first), or 4 wider ones.
constexpr int words_per_block(i64 bits) { return bits <= 16 ? 8 : 4; }

template <bool SUM, int BITS>
struct PhiloxWords {};

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

enum SourceKind { NONE, GIVEN, REGISTER, INVERTING, PHILOX };

// A source as run-time parameter. Words have `bits` bits, states `width`; see `placed` for the others.
struct Source {
    i64 kind, sum, bits, width, dropped, taken, repeated;
    u64 taps;
};

// Random words of one element, from a source that is a run-time parameter.
struct Words {
    const Source source;
    GivenWords<true> given{};
    u64 state = 0, inverted = 0, key = 0, element = 0, step = 0;
    u32 block[4] = {};

    void begin(const Call& call, i64 batch, i64 i, i64 j) {
        if (source.kind == GIVEN) {
            const View& view = source.sum ? call.sum_words : call.product_words;
            given = {view.at(batch, i, j), view.step};
        } else if (source.kind == PHILOX) {
            key = call.key;
            element = u64(call.element(batch, i, j));
            step = u64(call.first_step);
            refill();
        } else if (source.kind != NONE) {
            state = u64((source.sum ? call.sum_states : call.product_states)[call.element(batch, i, j)]);
            inverted = source.kind == INVERTING ? state >> source.width & 1 : 0;
            state &= ones(int(source.width));
        }
    }

    u64 next() {
        if (source.kind == NONE) return 0;
        if (source.kind == GIVEN) return given.next();
        if (source.kind == PHILOX) {
            const int count = words_per_block(source.bits), place = int(step % u64(count));
            if (place == 0) refill();
            ++step;
            const u32 word = count == 8 ? block[place >> 1] >> (place & 1) * 16 : block[place];
            return word & ones(int(source.bits));
        }
        const u64 all = ones(int(source.width)), word = inverted ? ~state & all : state;
        state = ((state << 1) | u64(__builtin_parityll(state & source.taps))) & all;
        inverted ^= source.kind == INVERTING && state == 1;
        const int taken = int(source.taken);
        return placed(word, ones(taken), int(source.dropped), taken, source.repeated != 0, int(source.bits));
    }

private:
    void refill() {
        const u32 number = u32(step / u64(words_per_block(source.bits)));
        const u32 counter[4] = {number, u32(element), u32(element >> 32), source.sum ? 0u : 1u};
        philox(counter, key, block);
    }
};

}  // namespace halfulp
