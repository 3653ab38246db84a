// Memory at the AXI4 ports of a Verilated model, which also checks the model against the rules of AXI4, and host at its
// AXI4-Lite port.

namespace {

struct Request {
    CData *valid, *ready;
    QData* addr;
    CData *len, *size, *burst;

    std::vector<std::uint64_t> shown() const { return {*addr, *len, *size, *burst}; }
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

constexpr std::uint64_t PAGE = 4096, NOTHING = ~0ull;
constexpr unsigned PATIENCE = 1000;  // maximum number of cycles of a register access
constexpr unsigned OKAY = 0, DECERR = 3, INCREMENTING = 1;

// Content and behaviour of the memory.
struct Behaviour {
    std::uint8_t* data;
    std::uint64_t base, bytes;
    std::uint64_t read, write;  // cycles from an address to the first beat, and from the last beat to the response
    std::uint64_t stall;        // number of cycles in 256 in which a channel stalls
    std::uint64_t seed;
};

struct Burst {
    std::uint64_t address, beats, ready_at;
    unsigned resp;
};

struct Beat {
    std::vector<EData> data;
    std::uint64_t strobe;
    bool last;
};

// Payload that waits on a channel of the model and must not change.
struct Waiting {
    bool waits = false;
    std::vector<std::uint64_t> shown;

    // Returns true if the payload changed.
    bool changed(bool valid, bool ready, std::vector<std::uint64_t> now) {
        const bool wrong = waits && (!valid || now != shown);
        waits = valid && !ready;
        shown = std::move(now);
        return wrong;
    }
};

struct Reading {
    ReadPort port;
    std::deque<Burst> bursts{};
    bool offers = false;
    Waiting ar{};
};

struct Writing {
    WritePort port;
    std::deque<Burst> bursts{};
    std::deque<Beat> beats{};
    std::deque<Burst> answers{};
    unsigned resp = OKAY;
    bool offers = false;
    Waiting aw{}, w{};
};

class Memory {
  public:
    std::uint64_t faults = 0;

    Memory(const std::vector<ReadPort>& reads, const std::vector<WritePort>& writes, unsigned beat) : beat(beat) {
        for (const ReadPort& port : reads) reading.push_back({port});
        for (const WritePort& port : writes) writing.push_back({port});
    }

    void attach(const Behaviour& given) {
        behaviour = given;
        dice = given.seed | 1;
    }

    // Drops all transfers in progress.
    void forget() {
        for (Reading& r : reading) r = {r.port};
        for (Writing& w : writing) w = {w.port};
    }

    // Drives the outputs of the memory for a cycle.
    void offer() {
        for (Reading& r : reading) {
            *r.port.ar.ready = !stalls();
            const bool there = !r.bursts.empty() && r.bursts.front().ready_at <= cycle;
            r.offers = there && (r.offers || !stalls());
            *r.port.valid = r.offers;
            const std::uint8_t* data = r.offers ? at(r.bursts.front().address) : nullptr;
            if (data) std::memcpy(r.port.data, data, beat);
            // A conspicuous pattern if there is no data.
            if (!data) std::memset(r.port.data, 0xA5, beat);
            *r.port.resp = r.offers && !data ? DECERR : OKAY;
            *r.port.last = r.offers && r.bursts.front().beats == 1;
        }
        for (Writing& w : writing) {
            *w.port.aw.ready = !stalls();
            *w.port.ready = !stalls();
            const bool there = !w.answers.empty() && w.answers.front().ready_at <= cycle;
            w.offers = there && (w.offers || !stalls());
            *w.port.bvalid = w.offers;
            *w.port.bresp = w.offers ? w.answers.front().resp : OKAY;
        }
    }

    // Accepts the transfers of a cycle, before its edge.
    void take() {
        for (Reading& r : reading) {
            const Request& ar = r.port.ar;
            fault(r.ar.changed(*ar.valid, *ar.ready, ar.shown()));
            if (r.offers && *r.port.ready) {
                Burst& burst = r.bursts.front();
                burst.address += beat;
                r.offers = false;
                if (--burst.beats == 0) r.bursts.pop_front();
            }
            if (*ar.valid && *ar.ready) r.bursts.push_back(taken(ar, behaviour.read));
        }
        for (Writing& w : writing) {
            const WritePort& port = w.port;
            fault(w.aw.changed(*port.aw.valid, *port.aw.ready, port.aw.shown()));
            std::vector<std::uint64_t> shown(port.data, port.data + beat / 4);
            shown.push_back(*port.strb), shown.push_back(*port.last);
            fault(w.w.changed(*port.valid, *port.ready, std::move(shown)));
            if (w.offers && *port.bready) w.answers.pop_front(), w.offers = false;
            if (*port.aw.valid && *port.aw.ready) w.bursts.push_back(taken(port.aw, 0));
            if (*port.valid && *port.ready)
                w.beats.push_back({{port.data, port.data + beat / 4}, *port.strb, bool(*port.last)});
            while (!w.bursts.empty() && !w.beats.empty()) store(w);
        }
        ++cycle;
    }

  private:
    unsigned beat;
    std::vector<Reading> reading;
    std::vector<Writing> writing;
    Behaviour behaviour{};
    std::uint64_t cycle = 0, dice = 1;

    std::uint8_t* at(std::uint64_t address) const {
        const bool inside = address >= behaviour.base && address - behaviour.base <= behaviour.bytes - beat;
        return behaviour.bytes >= beat && inside ? behaviour.data + (address - behaviour.base) : nullptr;
    }

    // xorshift64 (Marsaglia 2003).
    bool stalls() {
        if (!behaviour.stall) return false;
        dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
        return (dice >> 32 & 255) < behaviour.stall;
    }

    void fault(bool wrong) { faults += wrong; }

    // Accepts a burst request.
    Burst taken(const Request& request, std::uint64_t latency) {
        const std::uint64_t address = *request.addr, beats = *request.len + 1ull;
        fault(1u << *request.size != beat || *request.burst != INCREMENTING || address % beat != 0);
        fault(address / PAGE != (address + beats * beat - 1) / PAGE);
        return {address, beats, cycle + latency, OKAY};
    }

    // Writes the first waiting beat.
    void store(Writing& w) {
        Burst& burst = w.bursts.front();
        const Beat& wanted = w.beats.front();
        std::uint8_t* data = at(burst.address);
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(wanted.data.data());
        for (unsigned byte = 0; data && byte < beat; ++byte)
            if (wanted.strobe >> byte & 1) data[byte] = bytes[byte];
        if (!data) w.resp = DECERR;
        fault(wanted.last != (burst.beats == 1));
        burst.address += beat;
        if (--burst.beats == 0) {
            w.answers.push_back({0, 0, cycle + behaviour.write, w.resp});
            w.bursts.pop_front();
            w.resp = OKAY;
        }
        w.beats.pop_front();
    }
};

// Host that reads and writes registers; `look` evaluates the outputs, and `cycle` runs a clock cycle.
struct Host {
    HostPort port;

    template <class Look, class Cycle>
    bool put(std::uint64_t address, std::uint64_t word, Look look, Cycle cycle) {
        *port.awaddr = address;
        *port.wdata = word;
        *port.wstrb = 15;
        *port.awvalid = *port.wvalid = *port.bready = 1;
        bool answered = false;
        for (unsigned cycles = 0; cycles < PATIENCE && !answered; ++cycles) {
            look();
            const bool address_goes = *port.awvalid && *port.awready, word_goes = *port.wvalid && *port.wready;
            answered = *port.bvalid;
            cycle();
            if (address_goes) *port.awvalid = 0;
            if (word_goes) *port.wvalid = 0;
        }
        *port.awvalid = *port.wvalid = *port.bready = 0;
        return answered;
    }

    template <class Look, class Cycle>
    std::uint64_t get(std::uint64_t address, Look look, Cycle cycle) {
        *port.araddr = address;
        *port.arvalid = *port.rready = 1;
        std::uint64_t word = NOTHING;
        for (unsigned cycles = 0; cycles < PATIENCE && word == NOTHING; ++cycles) {
            look();
            const bool goes = *port.arvalid && *port.arready;
            if (*port.rvalid) word = *port.rdata;
            cycle();
            if (goes) *port.arvalid = 0;
        }
        *port.arvalid = *port.rready = 0;
        return word;
    }
};

}  // namespace
