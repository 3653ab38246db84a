// The compiled loop of a netlist with changes: like loop.cpp, but every input is fed, clock enable, reset and the choice
// of the change among them, and a run ends at the first result that is not the expected one.
//
// Compiled together with the model and with ports.inc, which defines
//   CLOCKED        1 if the design has registers
//   INPUTS, OUTPUTS
//   drive(top, in, i), sample(top, out)
//   STREAM         1 for a stream wrapper; then also offer(top, in, i), levels(top, valid, ready), is_valid(top),
//                  is_ready(top)
// in terms of the design's ports.

#include <cstdint>
#include <memory>

#include "Vtop.h"
#include "verilated.h"

double sc_time_stamp() { return 0; }

namespace {

struct Lane {
    const std::uint64_t* data;
    std::uint64_t stride;
    std::uint64_t at(std::uint64_t i) const { return data[i * stride]; }
};

#include "ports.inc"

struct Model {
    VerilatedContext context;
    Vtop top{&context, ""};
};

void edge(Vtop& top) {
#if CLOCKED
    top.clk = 0;
    top.eval();
    top.clk = 1;
#endif
    top.eval();
}

}  // namespace

extern "C" {

void* halfulp_new() {
    auto model = std::make_unique<Model>();
    model->top.eval();
    return model.release();
}

void halfulp_free(void* handle) {
    auto* model = static_cast<Model*>(handle);
    model->top.final();
    delete model;
}

// Feeds n cycles under one change, and returns the first in which an output that is looked at is not as expected, or n.
// Before the edge where before is set, else after it.
std::uint64_t halfulp_compare(void* handle, std::uint64_t n, const Lane* in, const std::uint64_t* const* out,
                              const std::uint8_t* look, std::uint64_t before, std::uint64_t change) {
    Vtop& top = static_cast<Model*>(handle)->top;
    std::uint64_t seen[OUTPUTS];
    top.mutant = change;
    for (std::uint64_t i = 0; i < n; ++i) {
        drive(top, in, i);
        if (before) {
            top.eval();
            sample(top, seen);
            edge(top);
        } else {
            edge(top);
            sample(top, seen);
        }
        if (!look[i]) continue;
        for (unsigned k = 0; k < OUTPUTS; ++k)
            if (seen[k] != out[k][i]) return i;
    }
    return n;
}

// Feeds n cycles with a change for each, and stores the outputs of each: before the edge where before is set, else after
// it, when the change is that of the next cycle.
void halfulp_record(void* handle, std::uint64_t n, const Lane* in, std::uint64_t* const* out, const Lane* change,
                    std::uint64_t before) {
    Vtop& top = static_cast<Model*>(handle)->top;
    std::uint64_t seen[OUTPUTS];
    for (std::uint64_t i = 0; i < n; ++i) {
        top.mutant = change->at(i);
        drive(top, in, i);
        if (before) {
            top.eval();
            sample(top, seen);
        }
        edge(top);
        if (!before) {
#if CLOCKED
            top.mutant = change->at(i + 1 < n ? i + 1 : i);
            top.eval();
#endif
            sample(top, seen);
        }
        for (unsigned k = 0; k < OUTPUTS; ++k) out[k][i] = seen[k];
    }
}

#if STREAM
// Runs a stream wrapper under one change: what is offered stays until it is taken, results are taken now and then, and
// every one is compared. Returns how many results were right before something was not; count if all were.
std::uint64_t halfulp_stream(void* handle, std::uint64_t count, const Lane* in, const std::uint64_t* const* out,
                             const std::uint8_t* offers, const std::uint8_t* takes, const Lane* noise,
                             std::uint64_t cycles, std::uint64_t change) {
    Vtop& top = static_cast<Model*>(handle)->top;
    std::uint64_t seen[OUTPUTS], held[OUTPUTS];
    std::uint64_t sent = 0, received = 0, quiet = 0;
    bool offered = false, waits = false;
    top.mutant = change;
    levels(top, false, false);
    top.rst = 1;
    edge(top);
    edge(top);
    top.rst = 0;
    for (std::uint64_t i = 0; received < count || quiet < 16; ++i) {
        offered = offered || (sent < count && offers[i % cycles]);
        const bool takes_now = takes[i % cycles];
        if (offered) offer(top, in, sent); else offer(top, noise, i % cycles);
        levels(top, offered, takes_now);
        top.clk = 0;
        top.eval();
        const bool valid = is_valid(top);
        sample(top, seen);
        if (waits && !valid) return received;
        if (waits)
            for (unsigned k = 0; k < OUTPUTS; ++k)
                if (seen[k] != held[k]) return received;
        waits = valid && !takes_now;
        for (unsigned k = 0; k < OUTPUTS; ++k) held[k] = seen[k];
        ++quiet;
        if (valid && takes_now) {
            quiet = 0;
            if (received == count) return 0;
            for (unsigned k = 0; k < OUTPUTS; ++k)
                if (seen[k] != out[k][received]) return received;
            ++received;
        }
        if (offered && is_ready(top)) {
            quiet = 0;
            offered = false;
            ++sent;
        }
        if (received > sent || quiet > 2000) return received - (received == count);
        top.clk = 1;
        top.eval();
    }
    return count;
}
#endif
}
