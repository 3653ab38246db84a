// Arguments of element-wise conversions between formats.
#pragma once
#include "call.h"

namespace halfulp {

struct Elements {
    i64 count, threads;
    const void* x;      // codes as int64, or numbers in binary32 or binary64
    const i64* random;  // random words, or null
    i64* out;
};

constexpr i64 CHUNK = 1 << 14;

template <class Work>
void run_chunks(const Elements& call, const Work& work) {
    run_parallel((call.count + CHUNK - 1) / CHUNK, call.threads, [&](i64 chunk) {
        const i64 end = (chunk + 1) * CHUNK;
        work(chunk * CHUNK, end < call.count ? end : call.count);
    });
}

}  // namespace halfulp
