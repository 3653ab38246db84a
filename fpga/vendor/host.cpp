// Matrix product on a card through XRT, without Python: c = a b.
//
//   host XCLBIN A B C N K M [DEVICE]
//
// A, B and C are files of N x K, K x M and N x M entries, row by row, without gaps; an entry has the bytes of tile.h, least
// significant first. The cores share the rows of the product in whole tiles, and random sources start from their seeds.
// Exit code: 0 success, 2 the request is wrong, 3 the card or a file fails.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include "tile.h"

using Bytes = std::vector<std::uint8_t>;

struct WrongRequest : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Rows of entries, each padded with zeros to whole beats of the memory.
struct Image {
    std::size_t rows, used, stride;

    Image(std::size_t rows, std::size_t columns, std::size_t entry)
        : rows(rows), used(columns * entry), stride((used + tile::BEAT - 1) / tile::BEAT * tile::BEAT) {}

    std::size_t size() const { return rows * stride; }

    Bytes padded(const std::uint8_t* entries) const {
        Bytes image(size());
        for (std::size_t row = 0; row < rows; ++row) std::copy_n(entries + row * used, used, image.data() + row * stride);
        return image;
    }

    void unpad(const Bytes& image, std::uint8_t* entries) const {
        for (std::size_t row = 0; row < rows; ++row) std::copy_n(image.data() + row * stride, used, entries + row * used);
    }
};

class Card {
public:
    Card(const std::string& xclbin, unsigned index) : device(index) {
        const auto uuid = device.load_xclbin(xclbin);
        for (unsigned core = 1; core <= tile::CORES; ++core) {
            // XRT expects the name of an instance in braces.
            const std::string name = std::string(tile::KERNEL) + ":{" + tile::KERNEL + "_" + std::to_string(core) + "}";
            kernels.emplace_back(device, uuid, name, xrt::kernel::cu_access_mode::exclusive);
        }
    }

    // Product of an n x k and a k x m matrix of entries.
    Bytes product(const Bytes& a, const Bytes& b, std::uint32_t n, std::uint32_t k, std::uint32_t m) {
        Bytes c(std::size_t(n) * m * tile::C_BYTES);
        const Image right(k, m, tile::B_BYTES);
        const Bytes right_image = right.padded(b.data());
        const std::size_t tiles = (std::size_t(n) + tile::ROWS - 1) / tile::ROWS;
        const std::size_t share = (tiles + tile::CORES - 1) / tile::CORES * tile::ROWS;
        std::vector<Part> parts;
        for (std::size_t first = 0; first < n; first += share) {
            const std::uint32_t rows = std::uint32_t(std::min(share, n - first));
            const Image left(rows, k, tile::A_BYTES), result(rows, m, tile::C_BYTES);
            xrt::kernel& kernel = kernels[parts.size()];
            xrt::bo left_buffer = filled(kernel, 3, left.padded(a.data() + first * left.used));
            xrt::bo right_buffer = filled(kernel, 4, right_image);
            xrt::bo buffer(device, result.size(), kernel.group_id(5));
            // The arguments of kernel.xml, in order.
            xrt::run run = kernel(rows, k, m, left_buffer, right_buffer, buffer, std::uint32_t(left.stride),
                                  std::uint32_t(right.stride), std::uint32_t(result.stride), std::uint32_t(0));
            parts.push_back({run, left_buffer, right_buffer, buffer, result, first});
        }
        for (std::size_t core = 0; core < parts.size(); ++core) finish(parts[core], core + 1, c);
        return c;
    }

private:
    struct Part {
        xrt::run run;
        xrt::bo left, right, buffer;  // in use until the end of the run
        Image result;
        std::size_t first;
    };

    xrt::bo filled(xrt::kernel& kernel, int argument, const Bytes& image) {
        xrt::bo buffer(device, image.size(), kernel.group_id(argument));
        buffer.write(image.data(), image.size(), 0);
        buffer.sync(XCL_BO_SYNC_BO_TO_DEVICE, image.size(), 0);
        return buffer;
    }

    static void finish(Part& part, std::size_t core, Bytes& c) {
        if (part.run.wait(std::chrono::milliseconds(tile::PATIENCE)) != ERT_CMD_STATE_COMPLETED)
            throw std::runtime_error("core " + std::to_string(core) + " did not finish");
        Bytes image(part.result.size());
        part.buffer.sync(XCL_BO_SYNC_BO_FROM_DEVICE, image.size(), 0);
        part.buffer.read(image.data(), image.size(), 0);
        part.result.unpad(image, c.data() + part.first * part.result.used);
    }

    xrt::device device;
    std::vector<xrt::kernel> kernels;
};

Bytes read(const std::string& path, std::size_t rows, std::size_t columns, std::size_t entry) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) throw WrongRequest("cannot read " + path);
    const std::size_t length = std::size_t(file.tellg()), expected = rows * columns * entry;
    if (length != expected)
        throw WrongRequest(path + " has " + std::to_string(length) + " bytes; expected " + std::to_string(rows) + " x " +
                           std::to_string(columns) + " entries of " + std::to_string(entry) + " bytes, " +
                           std::to_string(expected) + " in all");
    Bytes bytes(length);
    file.seekg(0);
    if (!file.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(length))) throw WrongRequest("cannot read " + path);
    return bytes;
}

std::uint32_t number(const std::string& text, const std::string& name, unsigned long least) {
    // The bytes of a row are an argument of 32 bits.
    constexpr unsigned long most = 1ul << 24;
    const bool digits = !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
    const unsigned long value = digits ? std::stoul(text) : 0;
    if (!digits || value < least || value > most)
        throw WrongRequest(name + " is '" + text + "'; expected a number from " + std::to_string(least) + " to " +
                           std::to_string(most));
    return std::uint32_t(value);
}

int main(int count, char** words) {
    try {
        if (count < 8 || count > 9) throw WrongRequest("expected XCLBIN A B C N K M [DEVICE]");
        const std::uint32_t n = number(words[5], "N", 1), k = number(words[6], "K", 1), m = number(words[7], "M", 1);
        const unsigned index = count > 8 ? number(words[8], "DEVICE", 0) : 0;
        const Bytes a = read(words[2], n, k, tile::A_BYTES), b = read(words[3], k, m, tile::B_BYTES);
        const Bytes c = Card(words[1], index).product(a, b, n, k, m);
        std::ofstream file(words[4], std::ios::binary);
        file.write(reinterpret_cast<const char*>(c.data()), std::streamsize(c.size())).flush();
        if (!file) throw std::runtime_error(std::string("cannot write ") + words[4]);
        std::cout << n << " x " << k << " x " << m << ": " << words[4] << " has " << c.size() << " bytes\n";
        return 0;
    } catch (const WrongRequest& error) {
        std::cerr << "host: " << error.what() << "\n";
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "host: " << error.what() << "\n";
        return 3;
    }
}
