// Any multiply-accumulate, one sum at a time in 128-bit integers, or in a register where the sum is exact.
//
// A description is a type with: A, B, O (formats), Product (from an exact product to the term that a step adds), Round (of the
// result), MODE, SATURATE, QUIRE_WIDTH and QUIRE_QUANTUM (0 where every step rounds), SumWords, ProductWords.
#pragma once
#include "words.h"

namespace halfulp {

// A two's-complement sum in units of 2^QUANTUM. A sum that overflows WIDTH bits stays infinite.
template <int WIDTH, int QUANTUM>
struct Register {
    static constexpr int limbs = WIDTH / 64 + 2;
    u64 limb[limbs];
    bool nan, inf, inf_sign;

    void place(const Raw& x) {
        for (u64& digits : limb) digits = 0;
        nan = inf = inf_sign = false;
        add(x, false);
    }

    void add(const Raw& x, bool guard = true) {
        nan |= x.nan || (inf && x.inf && inf_sign != x.sign);
        if (x.inf && !inf) inf = true, inf_sign = x.sign;
        if (nan || inf || !x.significand) return;
        int up = x.exponent - QUANTUM;
        u128 significand = x.significand;
        if (up < 0) {
            significand >>= -up;  // zeros, for every number is a multiple of the unit
            up = 0;
        }
        const int place = up % 64;
        u64 parts[3] = {u64(significand) << place, 0, 0};
        parts[1] = u64(significand >> 64) << place | (place ? u64(significand) >> (64 - place) : 0);
        parts[2] = place ? u64(significand >> 64) >> (64 - place) : 0;
        int index = up / 64;
        u64 carry = 0;
        for (int part = 0; index < limbs; ++part, ++index) {
            const u64 more = part < 3 ? parts[part] : 0;
            if (part >= 3 && !carry) break;
            const u64 before = limb[index];
            if (x.sign) {
                const u64 after = before - more, borrowed = before < more;
                limb[index] = after - carry;
                carry = borrowed | (after < carry);
            } else {
                const u64 after = before + more, carried = after < before;
                limb[index] = after + carry;
                carry = carried | (limb[index] < after);
            }
        }
        if (!guard) return;
        const u64 sign = negative() ? ~u64(0) : 0;
        constexpr int top = (WIDTH - 1) / 64, within = (WIDTH - 1) % 64;
        bool beyond = limb[top] >> within != sign >> within;
        for (int above = top + 1; above < limbs; ++above) beyond |= limb[above] != sign;
        if (beyond) inf = true, inf_sign = sign != 0;
    }

    bool negative() const { return limb[limbs - 1] >> 63; }

    Raw raw() const {
        if (nan || inf) return {1, 0, inf_sign, nan, inf, false};
        u64 magnitude[limbs];
        const bool sign = negative();
        u64 carry = sign;
        for (int index = 0; index < limbs; ++index) {
            magnitude[index] = (sign ? ~limb[index] : limb[index]) + carry;
            carry = carry && magnitude[index] == 0;
        }
        int top = limbs - 1;
        while (top && !magnitude[top]) --top;
        Raw x{0, QUANTUM, sign, false, false, false};
        // After the shift, the top two of three limbs hold at least WINDOW bits.
        x.significand = magnitude[top];
        x.exponent += 64 * top;
        int left = top;
        if (left) {
            x.significand = x.significand << 64 | magnitude[--left];
            x.exponent -= 64;
        }
        if (left) {
            const int room = 128 - length_of(x.significand);
            --left;
            if (room) {
                x.significand = x.significand << room | magnitude[left] >> (64 - room);
                x.exponent -= room;
                x.sticky = room < 64 && magnitude[left] << room != 0;
            } else {
                x.sticky = magnitude[left] != 0;
            }
        }
        while (left) x.sticky |= magnitude[--left] != 0;
        if (!x.significand) x.sign = false;
        return narrowed(x);
    }
};

template <class S>
inline u64 one_sum(const Raw* x, const Raw* y, u64 code, i64 k, typename S::SumWords& sum_words,
                   typename S::ProductWords& product_words) {
    if constexpr (S::QUIRE_WIDTH > 0) {
        if (!k) return code;
        Register<S::QUIRE_WIDTH, S::QUIRE_QUANTUM> held;
        held.place(S::O::unpack(code));
        u64 word = 0;
        for (i64 step = 0; step < k; ++step) {
            word = sum_words.next();
            held.add(S::Product::of(multiply(x[step], y[step]), product_words.next()));
        }
        return S::O::template pack<typename S::Round, S::SATURATE>(held.raw(), word);
    } else {
        for (i64 step = 0; step < k; ++step) {
            const Raw term = S::Product::of(multiply(x[step], y[step]), product_words.next());
            const Raw sum = add<S::MODE>(term, S::O::unpack(code));
            code = S::O::template pack<typename S::Round, S::SATURATE>(sum, sum_words.next());
        }
        return code;
    }
}

// 64-bit codes are passed as the int64 of the same bits.
template <class S>
void gemm_exact(const Call& call) {
    constexpr i64 COLUMNS = 64;
    const i64 panels = (call.m + COLUMNS - 1) / COLUMNS;
    std::vector<Raw> b(size_t(call.packs * call.m * call.k));
    deal(call.packs * panels, call.threads, [&](i64 task) {
        const i64 pack = task / panels, first = task % panels * COLUMNS;
        for (i64 j = first; j < call.m && j < first + COLUMNS; ++j) {
            Raw* column = b.data() + (pack * call.m + j) * call.k;
            for (i64 step = 0; step < call.k; ++step)
                column[step] = S::B::unpack(u64(*call.b.at(call.pack_batch[pack], step, j)));
        }
    });
    deal(call.batches * call.n * panels, call.threads, [&](i64 task) {
        const i64 row = task / panels, batch = row / call.n, i = row % call.n, first = task % panels * COLUMNS;
        std::vector<Raw> a(size_t(call.k));
        for (i64 step = 0; step < call.k; ++step) a[size_t(step)] = S::A::unpack(u64(*call.a.at(batch, i, step)));
        typename S::SumWords sum_words;
        typename S::ProductWords product_words;
        for (i64 j = first; j < call.m && j < first + COLUMNS; ++j) {
            sum_words.begin(call, batch, i, j);
            product_words.begin(call, batch, i, j);
            const u64 code = call.start.data ? u64(*call.start.at(batch, i, j)) : 0;
            const Raw* column = b.data() + (call.pack_of[batch] * call.m + j) * call.k;
            call.out[call.element(batch, i, j)] =
                i64(one_sum<S>(a.data(), column, code, call.k, sum_words, product_words));
        }
    });
}

}  // namespace halfulp
