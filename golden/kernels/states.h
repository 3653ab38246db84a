// Advances the states of many sources by a number of steps, which is a linear map over GF(2).
#pragma once
#include "call.h"

namespace halfulp {

struct Jump {
    i64 count, threads, places;
    const i64 *states, *columns;  // columns: images of the states with a single one
    i64* out;
};

inline void jump(const Jump& call) {
    constexpr i64 CHUNK = 1 << 12;
    run_parallel((call.count + CHUNK - 1) / CHUNK, call.threads, [&](i64 chunk) {
        const i64 first = chunk * CHUNK, end = first + CHUNK < call.count ? first + CHUNK : call.count;
        for (i64 at = first; at < end; ++at) call.out[at] = 0;
        for (i64 place = 0; place < call.places; ++place) {
            const i64 column = call.columns[place];
            for (i64 at = first; at < end; ++at) call.out[at] ^= -(call.states[at] >> place & 1) & column;
        }
    });
}

}  // namespace halfulp
