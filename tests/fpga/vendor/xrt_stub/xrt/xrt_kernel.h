// Software in place of XRT: a kernel that computes a product by the C++ model of its multiply-accumulate.
#pragma once
#include <chrono>
#include <cstdlib>
#include <set>

#include "xrt_bo.h"

#include "../../tile.h"

extern "C" void unit_model(unsigned long long a, unsigned long long b, unsigned long long c, unsigned long long load,
                           unsigned long long clear, unsigned long long* sum, unsigned long long* o);

enum ert_cmd_state { ERT_CMD_STATE_COMPLETED = 4, ERT_CMD_STATE_TIMEOUT = 12 };

namespace xrt {

class run {
public:
    ert_cmd_state wait(const std::chrono::milliseconds& timeout) {
        return timeout.count() > 0 && !std::getenv("STUCK") ? ERT_CMD_STATE_COMPLETED : ERT_CMD_STATE_TIMEOUT;
    }
};

class kernel {
public:
    enum class cu_access_mode { exclusive, shared };

    kernel(const device&, const uuid&, const std::string& name, cu_access_mode) : name(name) {
        static std::set<std::string> opened;
        if (!opened.insert(name).second) throw std::runtime_error("opened twice: " + name);
        const std::string known = std::string(tile::KERNEL) + ":{" + tile::KERNEL + "_" + std::to_string(opened.size()) + "}";
        if (name != known) throw std::runtime_error("no kernel " + name);
    }

    int group_id(int argument) const { return argument; }

    run operator()(std::uint32_t n, std::uint32_t k, std::uint32_t m, bo a, bo b, bo c, std::uint32_t a_stride,
                   std::uint32_t b_stride, std::uint32_t c_stride, std::uint32_t flags) {
        if (flags || a.memory->bank != 3 || b.memory->bank != 4 || c.memory->bank != 5) throw std::runtime_error("wrong call");
        if ((a_stride | b_stride | c_stride) % tile::BEAT) throw std::runtime_error("a row that is no whole beats");
        std::printf("%s: %u rows\n", name.c_str(), n);
        for (std::uint32_t i = 0; i < n; ++i)
            for (std::uint32_t j = 0; j < m; ++j) {
                unsigned long long sum = 0, o = 0;
                for (std::uint32_t at = 0; at < k; ++at)
                    unit_model(code(a, i * a_stride, at, tile::A_BYTES), code(b, at * b_stride, j, tile::B_BYTES), 0, 0,
                               at == 0, &sum, &o);
                std::memcpy(&c.memory->device.at(i * c_stride + j * tile::C_BYTES), &o, tile::C_BYTES);
            }
        return {};
    }

private:
    static unsigned long long code(const bo& from, std::size_t row, std::size_t column, std::size_t bytes) {
        unsigned long long value = 0;
        std::memcpy(&value, &from.memory->device.at(row + column * bytes), bytes);
        return value;
    }

    std::string name;
};

}  // namespace xrt
