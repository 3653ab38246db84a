// The compiled loop for streams: a Verilated model whose streams are fed from arrays and taken into arrays.
//
// The file is compiled together with the model and with ports.inc, which is generated for each design and defines
//   INPUTS, OUTPUTS, WIDTHS     how many streams there are, and the widths of their payloads, inputs first
//   put(top, i, valid, words), taken(top, i)     of an input: offer a payload, and whether it is accepted
//   take(top, i, ready), offered(top, i), get(top, i, words)     of an output

#include <cstdint>
#include <memory>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

// Verilator's runtime asks for a time; nothing here has one.
double sc_time_stamp() { return 0; }

namespace {

#include "ports.inc"

// One stream and what goes through it. A payload is `words` words of 32 bits. In cycle i it may begin to be offered, or
// be taken, where go[i % period] is set; what is offered stays so until it is taken.
struct Traffic {
    std::uint32_t* data;
    std::uint64_t count;
    const std::uint8_t* go;
    std::uint64_t period;
    std::uint64_t done;
    std::uint64_t faults;  // of an output: payloads that changed, or were withdrawn, while they waited
    std::uint64_t last;    // cycles up to the last transfer, that one counted
};

struct Model {
    VerilatedContext context;
    Vtop top{&context, ""};
};

unsigned words(unsigned stream) { return (WIDTHS[stream] + 31) / 32; }

void edge(Vtop& top) {
    top.clk = 1;
    top.eval();
    top.clk = 0;
    top.eval();
}

// What an input shows while it offers nothing: the complement of what comes next.
std::vector<std::uint32_t> noise(unsigned stream, const std::uint32_t* word) {
    std::vector<std::uint32_t> result(words(stream));
    for (unsigned i = 0; i < result.size(); ++i) result[i] = word ? ~word[i] : ~0u;
    if (WIDTHS[stream] % 32) result.back() &= (1u << WIDTHS[stream] % 32) - 1;
    return result;
}

}  // namespace

extern "C" {

void* halfulp_new() {
    auto model = std::make_unique<Model>();
    model->top.clk = 0;
    model->top.rst = 0;
    model->top.eval();
    return model.release();
}

void halfulp_free(void* handle) {
    auto* model = static_cast<Model*>(handle);
    model->top.final();
    delete model;
}

void halfulp_reset(void* handle) {
    Vtop& top = static_cast<Model*>(handle)->top;
    for (unsigned i = 0; i < INPUTS; ++i) put(top, i, false, noise(i, nullptr).data());
    for (unsigned i = 0; i < OUTPUTS; ++i) take(top, i, false);
    top.rst = 1;
    top.eval();
    edge(top);
    edge(top);
    top.rst = 0;
    top.eval();
}

// Runs until all has gone through, but no longer than `limit` cycles, and then `more` ones.
void halfulp_streams(void* handle, Traffic* in, Traffic* out, std::uint64_t limit, std::uint64_t more) {
    Vtop& top = static_cast<Model*>(handle)->top;
    bool offers[INPUTS] = {}, waits[OUTPUTS] = {};
    std::vector<std::uint32_t> waiting[OUTPUTS], shown[OUTPUTS];
    for (unsigned i = 0; i < OUTPUTS; ++i) waiting[i].resize(words(INPUTS + i)), shown[i] = waiting[i];
    auto all_done = [&] {
        bool done = true;
        for (unsigned i = 0; i < INPUTS; ++i) done = done && in[i].done == in[i].count;
        for (unsigned i = 0; i < OUTPUTS; ++i) done = done && out[i].done >= out[i].count;
        return done;
    };
    for (std::uint64_t cycle = 0; cycle < limit; ++cycle) {
        if (all_done() && more-- == 0) break;
        for (unsigned i = 0; i < INPUTS; ++i) {
            Traffic& t = in[i];
            const bool left = t.done < t.count;
            const std::uint32_t* word = left ? t.data + t.done * words(i) : nullptr;
            offers[i] = left && (offers[i] || t.go[cycle % t.period]);
            put(top, i, offers[i], offers[i] ? word : noise(i, word).data());
        }
        for (unsigned i = 0; i < OUTPUTS; ++i) take(top, i, out[i].go[cycle % out[i].period]);
        top.eval();
        for (unsigned i = 0; i < INPUTS; ++i) {
            if (!offers[i] || !taken(top, i)) continue;
            ++in[i].done;
            in[i].last = cycle + 1;
            offers[i] = false;
        }
        for (unsigned i = 0; i < OUTPUTS; ++i) {
            Traffic& t = out[i];
            const bool valid = offered(top, i);
            if (valid) get(top, i, shown[i].data());
            t.faults += waits[i] && (!valid || shown[i] != waiting[i]);
            waits[i] = valid && !t.go[cycle % t.period];
            waiting[i] = shown[i];
            if (!valid || waits[i]) continue;
            if (t.done < t.count)
                for (unsigned part = 0; part < words(INPUTS + i); ++part)
                    t.data[t.done * words(INPUTS + i) + part] = shown[i][part];
            ++t.done;
            t.last = cycle + 1;
        }
        edge(top);
    }
}
}
