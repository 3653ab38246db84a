// Software in place of XRT: buffers, whose contents reach the device and the host only by sync.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "xrt_device.h"

enum xclBOSyncDirection { XCL_BO_SYNC_BO_TO_DEVICE, XCL_BO_SYNC_BO_FROM_DEVICE };

namespace xrt {

class bo {
public:
    struct Memory {
        std::vector<std::uint8_t> host, device;
        int bank;
    };
    std::shared_ptr<Memory> memory;

    bo(const device&, std::size_t size, int bank)
        : memory(new Memory{std::vector<std::uint8_t>(size, 0xA5), std::vector<std::uint8_t>(size, 0x5A), bank}) {}

    void write(const void* from, std::size_t size, std::size_t at) { std::memcpy(place(memory->host, size, at), from, size); }
    void read(void* to, std::size_t size, std::size_t at) { std::memcpy(to, place(memory->host, size, at), size); }
    void sync(xclBOSyncDirection way, std::size_t size, std::size_t at) {
        auto& from = way == XCL_BO_SYNC_BO_TO_DEVICE ? memory->host : memory->device;
        auto& to = way == XCL_BO_SYNC_BO_TO_DEVICE ? memory->device : memory->host;
        std::memcpy(place(to, size, at), place(from, size, at), size);
    }

private:
    static std::uint8_t* place(std::vector<std::uint8_t>& bytes, std::size_t size, std::size_t at) {
        if (at + size > bytes.size()) throw std::out_of_range("beyond a buffer");
        return bytes.data() + at;
    }
};

}  // namespace xrt
