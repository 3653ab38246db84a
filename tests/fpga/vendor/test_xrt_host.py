"""Host program in C++: products by a software model in place of XRT, and refused requests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from halfulp import golden
from halfulp.boards.catalogue import BOARDS
from halfulp.fpga.kernel.host import Tile
from halfulp.fpga.kernel.layout import ARGUMENTS, element_bytes
from halfulp.fpga.vendor.xrt import host_cpp, makefile, tile_h
from halfulp.golden.kernels.model import Model, source
from halfulp.hdl.specs import MacSpec, Tiling

STUB = Path(__file__).with_name("xrt_stub")
SPEC = MacSpec.parse("e4m3fn*e5m2+fp16.rz")
TILING = Tiling(2, 3, 4)
CORES = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program by the Makefile of the kernel, with the software model in place of XRT."""
    made: Path = tmp_path_factory.mktemp("host")
    shutil.copytree(STUB, made / "stub")
    (made / "host.cpp").write_text(host_cpp())
    (made / "tile.h").write_text(tile_h("gemm", CORES, SPEC, TILING))
    (made / "model.cpp").write_text(source([Model("unit_model", SPEC)]))
    (made / "Makefile").write_text(makefile("gemm", BOARDS["u55c"], "gemm.v"))
    flags = ["XRT_CFLAGS=-Istub -Wall -Wextra -Werror", "XRT_LIBS=model.cpp"]
    subprocess.run(["make", "host", *flags], cwd=made, check=True, timeout=300)
    return made


def run(folder: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    command = [str(folder / "host"), *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | more, timeout=100)


def write(path: Path, codes: torch.Tensor, width: int) -> None:
    """Write codes without gaps."""
    path.write_bytes(codes.numpy().astype(f"<u{element_bytes(width)}").tobytes())


@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (25, 7, 40), (16, 33, 5), (17, 3, 65)])
def test_host_gives_products_of_golden_model(folder: Path, n: int, k: int, m: int) -> None:
    random = torch.Generator().manual_seed(n)
    a, b = (torch.randint(256, shape, generator=random) for shape in ((n, k), (k, m)))
    write(folder / "a", a, 8)
    write(folder / "b", b, 8)
    answer = run(folder, "gemm.xclbin", "a", "b", "c", n, k, m)
    assert (answer.returncode, answer.stderr) == (0, "")
    expected = golden.gemm(a, b, SPEC)
    assert (folder / "c").read_bytes() == expected.numpy().astype("<u2").tobytes()
    # The cores take the rows that the host in Python gives them.
    shares = Tile("gemm", CORES, str(SPEC), TILING).shares(n, CORES)
    assert answer.stdout.splitlines()[:-1] == [
        f"gemm:{{gemm_{core}}}: {rows.stop - rows.start} rows" for core, rows in enumerate(shares, 1)
    ]


def test_call_has_arguments_of_kernel() -> None:
    names = ["n", "k", "m", "a", "b", "c", "a_stride", "b_stride", "c_stride", "flags"]
    assert [argument.name for argument in ARGUMENTS] == names


@pytest.mark.parametrize(
    ("words", "more", "code", "sentence"),
    [
        (("gemm.xclbin", "a", "b"), {}, 2, "expected XCLBIN A B C N K M [DEVICE]"),
        (("gemm.xclbin", "a", "b", "c", 0, 2, 2), {}, 2, "N is '0'; expected a number from 1 to 16777216"),
        (("gemm.xclbin", "a", "b", "c", 2, "-1", 2), {}, 2, "K is '-1'"),
        (("gemm.xclbin", "a", "b", "c", 2, 2, 2, "first"), {}, 2, "DEVICE is 'first'; expected a number from 0"),
        (("gemm.xclbin", "a", "b", "c", 3, 2, 2), {}, 2, "a has 4 bytes; expected 3 x 2 entries of 1 bytes, 6 in all"),
        (("gemm.xclbin", "none", "b", "c", 2, 2, 2), {}, 2, "cannot read none"),
        (("other.xclbin", "a", "b", "c", 2, 2, 2), {}, 3, "cannot load other.xclbin"),
        (("gemm.xclbin", "a", "b", "none/c", 2, 2, 2), {}, 3, "cannot write none/c"),
        (("gemm.xclbin", "a", "b", "c", 2, 2, 2, 1), {}, 3, "no card 1"),
        (("gemm.xclbin", "a", "b", "c", 2, 2, 2), {"STUCK": "1"}, 3, "core 1 did not finish"),
    ],
)
def test_host_refuses(folder: Path, words: tuple[object, ...], more: dict[str, str], code: int, sentence: str) -> None:
    for name in ("a", "b"):
        (folder / name).write_bytes(bytes(4))
    answer = run(folder, *words, **more)
    assert answer.returncode == code
    assert answer.stderr.startswith(f"host: {sentence}")
