// Driver of a Verilated model: applies vectors, streams or a memory, and samples the outputs.
//
// It is compiled with the model and with ports.inc, which sim/driver.py generates for each design. ports.inc defines
//   CLOCK, RESET, RESET_ON, SELECT       signals, and the level of RESET that resets; SELECT chooses a mutant
//   INPUTS, OUTPUTS                      number of plain inputs and outputs
//   SOURCES, SINKS                       number of streams into the design and out of it
//   READS, WRITES, BEAT, INTERRUPT       number of AXI4 ports, bytes of a beat, and a signal
// and, in terms of the design's ports, the functions whose declarations are below. Features that a design lacks are
// undefined or 0.

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vtop.h"
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

// Verilator's runtime requires this function; the driver has no time.
double sc_time_stamp() { return 0; }

namespace {

// Plain input; element i is data[i * stride], so a stride of 0 repeats one value.
struct Lane {
    const std::uint64_t* data;
    std::uint64_t stride;
    std::uint64_t at(std::uint64_t i) const { return data[i * stride]; }
};

// Signals of a stream; a payload is a sequence of 32-bit words, the lowest first.
struct Stream {
    CData *valid, *ready;
    void* payload;
    unsigned bytes, bits;

    unsigned words() const { return (bits + 31) / 32; }
    void put(const std::uint32_t* word) const { std::memcpy(payload, word, bytes); }
    void get(std::uint32_t* word) const { std::memcpy(word, payload, bytes); }
};

// Sets the constant inputs.
inline void idle(Vtop& top);
// Drive the plain inputs with vector i, and store the plain outputs as result i.
inline void drive(Vtop& top, const Lane* in, std::uint64_t i);
inline void sample(Vtop& top, std::uint64_t* const* out, std::uint64_t i);
// Streams into the design, and out of it.
inline std::vector<Stream> sources(Vtop& top);
inline std::vector<Stream> sinks(Vtop& top);

}  // namespace

#include "memory.h"

namespace {

#include "ports.inc"

struct Model {
    VerilatedContext context;
    Vtop top{&context, ""};
    std::vector<Stream> in = sources(top), out = sinks(top);
#if READS + WRITES
    Host host{host_port(top)};
    Memory memory{read_ports(top), write_ports(top), BEAT};
#endif

    // First half of a clock cycle, in which outputs follow inputs, and the edge that ends it.
    void settle() {
#ifdef CLOCK
        top.CLOCK = 0;
#endif
        top.eval();
    }
    void rise() {
#ifdef CLOCK
        top.CLOCK = 1;
        top.eval();
#endif
    }
    void cycle() {
#if READS + WRITES
        memory.offer();
        settle();
        memory.take();
#else
        settle();
#endif
        rise();
    }

    void select(std::uint64_t mutant) {
#ifdef SELECT
        top.SELECT = mutant;
#endif
    }
};

Model& model_of(void* handle) { return *static_cast<Model*>(handle); }

// Payload of an input stream without an offer: the complement of the next payload.
std::vector<std::uint32_t> noise(const Stream& stream, const std::uint32_t* word) {
    std::vector<std::uint32_t> result(stream.words());
    for (unsigned i = 0; i < result.size(); ++i) result[i] = word ? ~word[i] : ~0u;
    if (stream.bits % 32) result.back() &= (1u << stream.bits % 32) - 1;
    return result;
}

// Transfers of a stream. In cycle i a payload may be offered or accepted if go[i % period] is set; an offered payload
// holds until its transfer.
struct Traffic {
    std::uint32_t* data;
    std::uint64_t count;
    const std::uint8_t* go;
    std::uint64_t period;
    std::uint64_t done;
    std::uint64_t faults;  // of an output stream: payloads that changed or were withdrawn before their transfer
    std::uint64_t last;    // number of cycles up to and including the last transfer
};

template <bool beside>
void run(Model& model, std::uint64_t n, const Lane* in, std::uint64_t* const* out, std::uint64_t latency,
         std::uint64_t initiation) {
    const std::uint64_t cycles = beside ? n : n ? (n - 1) * initiation + latency : 0;
    for (std::uint64_t cycle = 0, next = 0, done = 0; cycle < cycles; ++cycle) {
        if (next < n && cycle == next * initiation) drive(model.top, in, next++);
        model.settle();
        if (beside) sample(model.top, out, done++);
        model.rise();
        if (!beside && cycle + 1 == done * initiation + latency) sample(model.top, out, done++);
    }
}

}  // namespace

extern "C" {

void* halfulp_new() {
    auto model = std::make_unique<Model>();
    idle(model->top);
    model->settle();
    return model.release();
}

void halfulp_free(void* handle) {
    model_of(handle).top.final();
    delete &model_of(handle);
}

// Holds reset for two cycles; transfers in progress are dropped.
void halfulp_reset(void* handle) {
#ifdef RESET
    Model& model = model_of(handle);
    for (const Stream& stream : model.in) *stream.valid = 0, stream.put(noise(stream, nullptr).data());
    for (const Stream& stream : model.out) *stream.ready = 0;
#if READS + WRITES
    model.memory.forget();
#endif
    model.top.RESET = RESET_ON;
    for (unsigned i = 0; i < 2; ++i) model.cycle();
    model.top.RESET = !RESET_ON;
#endif
}

// Selects a mutant.
void halfulp_select(void* handle, std::uint64_t mutant) { model_of(handle).select(mutant); }

// Drives n vectors, one in `initiation` clock cycles, and stores the n results; result i appears `latency` edges after
// vector i, or in the same cycle if the latency is 0.
void halfulp_run(void* handle, std::uint64_t n, const Lane* in, std::uint64_t* const* out, std::uint64_t latency,
                 std::uint64_t initiation) {
    (latency ? run<false> : run<true>)(model_of(handle), n, in, out, latency, initiation);
}

// Drives n cycles, and returns the first in which a checked output is wrong, or n. Outputs are sampled before the edge
// if `before` is set, else after it.
std::uint64_t halfulp_compare(void* handle, std::uint64_t n, const Lane* in, const std::uint64_t* const* expected,
                              const std::uint8_t* look, bool before) {
    Model& model = model_of(handle);
    std::array<std::uint64_t, OUTPUTS> seen;
    std::array<std::uint64_t*, OUTPUTS> places;
    for (unsigned k = 0; k < OUTPUTS; ++k) places[k] = &seen[k];
    for (std::uint64_t i = 0; i < n; ++i) {
        drive(model.top, in, i);
        model.settle();
        if (before) sample(model.top, places.data(), 0);
        model.rise();
        if (!before) sample(model.top, places.data(), 0);
        if (!look[i]) continue;
        for (unsigned k = 0; k < OUTPUTS; ++k)
            if (seen[k] != expected[k][i]) return i;
    }
    return n;
}

// Drives n cycles with a mutant for each, and stores the outputs. They are sampled before the edge if `before` is set,
// else after it, when the mutant is already that of the next cycle.
void halfulp_record(void* handle, std::uint64_t n, const Lane* in, std::uint64_t* const* out, const Lane* mutants,
                    bool before) {
    Model& model = model_of(handle);
    for (std::uint64_t i = 0; i < n; ++i) {
        model.select(mutants->at(i));
        drive(model.top, in, i);
        model.settle();
        if (before) sample(model.top, out, i);
        model.rise();
        if (before) continue;
#ifdef CLOCK
        model.select(mutants->at(i + 1 < n ? i + 1 : i));
        model.top.eval();
#endif
        sample(model.top, out, i);
    }
}

// Runs streams until all payloads are transferred, for at most `limit` cycles, and then for `more` cycles. Payloads of
// the design are stored, or, if `compared` is set, compared with the given ones; then the run ends at the first fault
// or wrong payload.
void halfulp_streams(void* handle, Traffic* in, Traffic* out, std::uint64_t limit, std::uint64_t more, bool compared) {
    Model& model = model_of(handle);
    const auto &sources = model.in, &sinks = model.out;
    std::vector<bool> offers(sources.size()), waits(sinks.size());
    std::vector<std::vector<std::uint32_t>> waiting, shown;
    for (const Stream& stream : sinks) waiting.emplace_back(stream.words()), shown.emplace_back(stream.words());
    auto all_done = [&] {
        bool done = true;
        for (unsigned i = 0; i < sources.size(); ++i) done = done && in[i].done == in[i].count;
        for (unsigned i = 0; i < sinks.size(); ++i) done = done && out[i].done >= out[i].count;
        return done;
    };
    for (std::uint64_t cycle = 0; cycle < limit; ++cycle) {
        if (all_done() && more-- == 0) break;
        for (unsigned i = 0; i < sources.size(); ++i) {
            const Traffic& t = in[i];
            const bool left = t.done < t.count;
            const std::uint32_t* word = left ? t.data + t.done * sources[i].words() : nullptr;
            offers[i] = left && (offers[i] || t.go[cycle % t.period]);
            *sources[i].valid = offers[i];
            sources[i].put(offers[i] ? word : noise(sources[i], word).data());
        }
        for (unsigned i = 0; i < sinks.size(); ++i) *sinks[i].ready = out[i].go[cycle % out[i].period];
        model.settle();
        for (unsigned i = 0; i < sources.size(); ++i) {
            if (!offers[i] || !*sources[i].ready) continue;
            ++in[i].done;
            in[i].last = cycle + 1;
            offers[i] = false;
        }
        for (unsigned i = 0; i < sinks.size(); ++i) {
            Traffic& t = out[i];
            const unsigned words = sinks[i].words();
            const bool valid = *sinks[i].valid;
            if (valid) sinks[i].get(shown[i].data());
            t.faults += waits[i] && (!valid || shown[i] != waiting[i]);
            waits[i] = valid && !*sinks[i].ready;
            waiting[i] = shown[i];
            if (valid && !waits[i]) {
                std::uint32_t* place = t.done < t.count ? t.data + t.done * words : nullptr;
                if (compared) t.faults += !place || std::memcmp(place, shown[i].data(), 4 * words) != 0;
                else if (place) std::memcpy(place, shown[i].data(), 4 * words);
                ++t.done;
                t.last = cycle + 1;
            }
            if (compared && t.faults) return;
        }
        model.rise();
    }
}

#if READS + WRITES
// Attaches a memory; no transfer may be in progress.
void halfulp_memory(void* handle, const Behaviour* behaviour) { model_of(handle).memory.attach(*behaviour); }

// Returns the number of AXI4 violations since the model was created.
std::uint64_t halfulp_faults(void* handle) { return model_of(handle).memory.faults; }

// Writes a register; returns true if the write is acknowledged.
bool halfulp_put(void* handle, std::uint64_t address, std::uint64_t word) {
    Model& model = model_of(handle);
    return model.host.put(address, word, [&] { model.top.eval(); }, [&] { model.cycle(); });
}

// Reads a register; returns NOTHING if there is no response.
std::uint64_t halfulp_get(void* handle, std::uint64_t address) {
    Model& model = model_of(handle);
    return model.host.get(address, [&] { model.top.eval(); }, [&] { model.cycle(); });
}

// Runs until the interrupt, for at most `limit` cycles; returns true if the interrupt came.
bool halfulp_wait(void* handle, std::uint64_t limit) {
    Model& model = model_of(handle);
    for (; limit && !model.top.INTERRUPT; --limit) model.cycle();
    return model.top.INTERRUPT;
}
#endif

#if VM_COVERAGE
// Writes the counts of executed lines and toggled bits since the model was made.
void halfulp_coverage(void* handle, const char* path) { model_of(handle).context.coveragep()->write(path); }
#endif
}
