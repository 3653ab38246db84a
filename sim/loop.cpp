// The compiled loop: a Verilated model fed from arrays and sampled into arrays.
//
// The file is compiled together with the model and with ports.inc, which is generated for each design and defines
//   CLOCKED        1 if the design has registers
//   idle(top)      puts clock enable and reset to rest
//   drive(top, in, i), sample(top, out, i)
// in terms of the design's ports, in the order of the unit's inputs and outputs.

#include <cstdint>
#include <memory>

#include "Vtop.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

// Verilator's runtime asks for a time; nothing here has one.
double sc_time_stamp() { return 0; }

namespace {

// One input: element i is data[i * stride], so that a stride of 0 repeats one value.
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

#if CLOCKED
void edge(Vtop& top) {
    top.clk = 0;
    top.eval();
    top.clk = 1;
    top.eval();
}
#endif

}  // namespace

extern "C" {

void* halfulp_new() {
    auto model = std::make_unique<Model>();
    idle(model->top);
    model->top.eval();
    return model.release();
}

void halfulp_free(void* handle) {
    auto* model = static_cast<Model*>(handle);
    model->top.final();
    delete model;
}

void halfulp_reset(void* handle) {
#if CLOCKED
    Vtop& top = static_cast<Model*>(handle)->top;
    top.rst = 1;
    edge(top);
    edge(top);
    top.rst = 0;
#endif
}

// Feeds n vectors, one a clock cycle, and stores the n results; result i appears latency edges after vector i, or where
// the latency is 0 beside it, before the edge.
void halfulp_run(void* handle, std::uint64_t n, const Lane* in, std::uint64_t* const* out, std::uint64_t latency) {
    Vtop& top = static_cast<Model*>(handle)->top;
#if CLOCKED
    for (std::uint64_t i = 0; latency == 0 && i < n; ++i) {
        drive(top, in, i);
        top.eval();
        sample(top, out, i);
        edge(top);
    }
    for (std::uint64_t i = 0; latency > 0 && i < n + latency - 1; ++i) {
        if (i < n) drive(top, in, i);
        edge(top);
        if (i + 1 >= latency) sample(top, out, i + 1 - latency);
    }
#else
    (void)latency;
    for (std::uint64_t i = 0; i < n; ++i) {
        drive(top, in, i);
        top.eval();
        sample(top, out, i);
    }
#endif
}

#if VM_COVERAGE
// Writes how often each line was executed and each bit toggled since the model was made.
void halfulp_coverage(void* handle, const char* path) { static_cast<Model*>(handle)->context.coveragep()->write(path); }
#endif
}
