// The compiled loop for cores with ports to memory: a Verilated model, the memory behind its AXI4 ports, and the host at
// its AXI4-Lite port.
//
// The file is compiled together with the model and with ports.inc, which is generated for each design and defines
//   READS, WRITES, BEAT     how many ports read and write, and how many bytes a beat has
//   set_clock(top, level), set_reset(top, on), interrupt(top)
//   read_port(top, i), write_port(top, i), host_port(top)     where their signals are, as told below

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "Vtop.h"
#include "verilated.h"

// Verilator's runtime asks for a time; nothing here has one.
double sc_time_stamp() { return 0; }

namespace {

struct Request {
    CData *valid, *ready;
    QData* addr;
    CData *len, *size, *burst;
};

struct ReadPort {
    Request ar;
    CData *valid, *ready;
    EData* data;
    CData *resp, *last;
};

struct WritePort {
    Request aw;
    CData *valid, *ready;
    EData* data;
    QData* strb;
    CData* last;
    CData *bvalid, *bready, *bresp;
};

struct HostPort {
    CData *awvalid, *awready;
    SData* awaddr;
    CData *wvalid, *wready;
    IData* wdata;
    CData *wstrb, *bvalid, *bready, *arvalid, *arready;
    SData* araddr;
    CData *rvalid, *rready;
    IData* rdata;
};

#include "ports.inc"

constexpr std::uint64_t PAGE = 4096, NOTHING = ~0ull;
constexpr unsigned PATIENCE = 1000;  // cycles that an access to a register may take
constexpr unsigned OKAY = 0, DECERR = 3, INCREMENTING = 1, WORDS = BEAT / 4;

// A memory of so many bytes from an address on, and how it behaves.
struct Memory {
    std::uint8_t* data;
    std::uint64_t base, bytes;
    std::uint64_t read, write;  // cycles from an address to the first beat, and from the last beat to the answer
    std::uint64_t stall;        // of 256 cycles, in how many a channel waits
    std::uint64_t seed;

    std::uint8_t* at(std::uint64_t address) const {
        const bool inside = address >= base && address - base <= bytes - BEAT;
        return bytes >= BEAT && inside ? data + (address - base) : nullptr;
    }
};

struct Burst {
    std::uint64_t address, beats, ready_at;
    unsigned resp;
};

struct Beat {
    std::uint32_t data[WORDS];
    std::uint64_t strobe;
    bool last;
};

// What waits on a channel of the core, which has to stay as it is.
struct Waiting {
    bool waits = false;
    std::vector<std::uint64_t> shown;

    // Whether it is not what it was.
    bool changed(bool valid, bool ready, std::vector<std::uint64_t> now) {
        const bool wrong = waits && (!valid || now != shown);
        waits = valid && !ready;
        shown = std::move(now);
        return wrong;
    }
};

struct Reading {
    std::deque<Burst> bursts;
    bool offers = false;
    Waiting ar;
};

struct Writing {
    std::deque<Burst> bursts;
    std::deque<Beat> beats;
    std::deque<Burst> answers;
    unsigned resp = OKAY;
    bool offers = false;
    Waiting aw, w;
};

struct Model {
    VerilatedContext context;
    Vtop top{&context, ""};
    Memory memory{};
    std::vector<Reading> reading = std::vector<Reading>(READS);
    std::vector<Writing> writing = std::vector<Writing>(WRITES);
    std::uint64_t cycle = 0, faults = 0, dice = 1;

    // xorshift64 (Marsaglia 2003).
    bool stalls() {
        if (!memory.stall) return false;
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        return (dice >> 32 & 255) < memory.stall;
    }

    void fault(bool wrong) { faults += wrong; }

    // A burst that was asked for, judged by the rules of AXI4.
    Burst taken(const Request& request, std::uint64_t latency) {
        const std::uint64_t address = *request.addr, beats = *request.len + 1ull;
        fault(1u << *request.size != BEAT || *request.burst != INCREMENTING || address % BEAT != 0);
        fault(address / PAGE != (address + beats * BEAT - 1) / PAGE);
        return {address, beats, cycle + latency, OKAY};
    }

    std::vector<std::uint64_t> shown(const Request& request) {
        return {*request.addr, *request.len, *request.size, *request.burst};
    }

    void offer();
    void take();
    void step() {
        offer();
        top.eval();
        take();
        set_clock(top, true);
        top.eval();
        set_clock(top, false);
        top.eval();
        ++cycle;
    }
};

// What the memory shows in this cycle.
void Model::offer() {
    for (unsigned i = 0; i < READS; ++i) {
        const ReadPort port = read_port(top, i);
        Reading& r = reading[i];
        *port.ar.ready = !stalls();
        const bool there = !r.bursts.empty() && r.bursts.front().ready_at <= cycle;
        r.offers = there && (r.offers || !stalls());
        *port.valid = r.offers;
        const std::uint8_t* data = r.offers ? memory.at(r.bursts.front().address) : nullptr;
        if (data) std::memcpy(port.data, data, BEAT);
        // Where there is nothing to be read is what nobody should take for data.
        if (!data) std::memset(port.data, 0xA5, BEAT);
        *port.resp = r.offers && !data ? DECERR : OKAY;
        *port.last = r.offers && r.bursts.front().beats == 1;
    }
    for (unsigned i = 0; i < WRITES; ++i) {
        const WritePort port = write_port(top, i);
        Writing& w = writing[i];
        *port.aw.ready = !stalls();
        *port.ready = !stalls();
        const bool there = !w.answers.empty() && w.answers.front().ready_at <= cycle;
        w.offers = there && (w.offers || !stalls());
        *port.bvalid = w.offers;
        *port.bresp = w.offers ? w.answers.front().resp : OKAY;
    }
}

// What goes over the channels in it.
void Model::take() {
    for (unsigned i = 0; i < READS; ++i) {
        const ReadPort port = read_port(top, i);
        Reading& r = reading[i];
        fault(r.ar.changed(*port.ar.valid, *port.ar.ready, shown(port.ar)));
        if (r.offers && *port.ready) {
            Burst& burst = r.bursts.front();
            burst.address += BEAT;
            r.offers = false;
            if (--burst.beats == 0) r.bursts.pop_front();
        }
        if (*port.ar.valid && *port.ar.ready) r.bursts.push_back(taken(port.ar, memory.read));
    }
    for (unsigned i = 0; i < WRITES; ++i) {
        const WritePort port = write_port(top, i);
        Writing& w = writing[i];
        fault(w.aw.changed(*port.aw.valid, *port.aw.ready, shown(port.aw)));
        std::vector<std::uint64_t> beat(port.data, port.data + WORDS);
        beat.push_back(*port.strb), beat.push_back(*port.last);
        fault(w.w.changed(*port.valid, *port.ready, std::move(beat)));
        if (w.offers && *port.bready) w.answers.pop_front(), w.offers = false;
        if (*port.aw.valid && *port.aw.ready) w.bursts.push_back(taken(port.aw, 0));
        if (*port.valid && *port.ready) {
            w.beats.push_back({{}, *port.strb, bool(*port.last)});
            std::memcpy(w.beats.back().data, port.data, BEAT);
        }
        while (!w.bursts.empty() && !w.beats.empty()) {
            Burst& burst = w.bursts.front();
            const Beat& wanted = w.beats.front();
            std::uint8_t* data = memory.at(burst.address);
            const auto* bytes = reinterpret_cast<const std::uint8_t*>(wanted.data);
            for (unsigned byte = 0; data && byte < BEAT; ++byte)
                if (wanted.strobe >> byte & 1) data[byte] = bytes[byte];
            if (!data) w.resp = DECERR;
            fault(wanted.last != (burst.beats == 1));
            burst.address += BEAT;
            if (--burst.beats == 0) {
                w.answers.push_back({0, 0, cycle + memory.write, w.resp});
                w.bursts.pop_front();
                w.resp = OKAY;
            }
            w.beats.pop_front();
        }
    }
}

}  // namespace

extern "C" {

void* halfulp_new() {
    auto model = std::make_unique<Model>();
    set_clock(model->top, false);
    set_reset(model->top, true);
    model->top.eval();
    return model.release();
}

void halfulp_free(void* handle) {
    auto* model = static_cast<Model*>(handle);
    model->top.final();
    delete model;
}

// The memory from now on; nothing may be under way.
void halfulp_memory(void* handle, const Memory* memory) {
    auto* model = static_cast<Model*>(handle);
    model->memory = *memory;
    model->dice = memory->seed | 1;
}

// Holds reset for two cycles; what was under way is forgotten.
void halfulp_reset(void* handle) {
    auto* model = static_cast<Model*>(handle);
    model->reading.assign(READS, {});
    model->writing.assign(WRITES, {});
    set_reset(model->top, true);
    for (unsigned i = 0; i < 2; ++i) model->step();
    set_reset(model->top, false);
}

// Writes a register; whether that was answered.
bool halfulp_put(void* handle, std::uint64_t address, std::uint64_t word) {
    auto* model = static_cast<Model*>(handle);
    const HostPort port = host_port(model->top);
    *port.awaddr = address;
    *port.wdata = word;
    *port.wstrb = 15;
    *port.awvalid = *port.wvalid = *port.bready = 1;
    bool answered = false;
    for (unsigned cycle = 0; cycle < PATIENCE && !answered; ++cycle) {
        model->top.eval();
        const bool address_goes = *port.awvalid && *port.awready, word_goes = *port.wvalid && *port.wready;
        answered = *port.bvalid;
        model->step();
        if (address_goes) *port.awvalid = 0;
        if (word_goes) *port.wvalid = 0;
    }
    *port.awvalid = *port.wvalid = *port.bready = 0;
    return answered;
}

// Reads a register; what is no word where that was not answered.
std::uint64_t halfulp_get(void* handle, std::uint64_t address) {
    auto* model = static_cast<Model*>(handle);
    const HostPort port = host_port(model->top);
    *port.araddr = address;
    *port.arvalid = *port.rready = 1;
    std::uint64_t word = NOTHING;
    for (unsigned cycle = 0; cycle < PATIENCE && word == NOTHING; ++cycle) {
        model->top.eval();
        const bool goes = *port.arvalid && *port.arready;
        if (*port.rvalid) word = *port.rdata;
        model->step();
        if (goes) *port.arvalid = 0;
    }
    *port.arvalid = *port.rready = 0;
    return word;
}

// Runs until the interrupt comes, but no longer than `limit` cycles; whether it came.
bool halfulp_wait(void* handle, std::uint64_t limit) {
    auto* model = static_cast<Model*>(handle);
    for (; limit && !interrupt(model->top); --limit) model->step();
    return interrupt(model->top);
}

// Violations of the rules of AXI4 since the model was made.
std::uint64_t halfulp_faults(void* handle) { return static_cast<Model*>(handle)->faults; }
}
