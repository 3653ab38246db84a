"""C++ models of units: results against the golden model, and the units without a model."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from halfulp.golden.kernels.model import Model, source
from halfulp.sim.bench import operations
from halfulp.sim.reference import reference
from halfulp.units.catalogue import component

# All inputs of toys, or steps from reset, of each family, rounding, kind of sum and kind of source.
TEXTS = (
    *(
        "mul e2m1fn*e2m1fn=e3m2",
        "mul e3m2*e3m2.ra",
        "mul e4m3fn*e4m3fn.satfinite",
        "mul nf4*nf4=fp16",
        "mul e2m3*e2m3.port",
    ),
    *("add e2m1+e3m2.rd", "add posit6+takum6=bf16", "add int4+int5=int4-wrap", "fma e2m1fn*e2m1fn+e3m2.rhu"),
    *("convert e5m2>e3m2fn.sr3", "convert e8m0fnu>e4m3", "convert e5m2>e8m0fnu.ru", "convert bf16>fxp4.4.ro"),
    *("dot2 e2m1fn*e2m1fn=e3m2", "dot3 e2m1fn*e2m1fn+e3m2.rd", "dot2 e2m1*e2m1=e3m2.rd order=sequential"),
    *("dot3 posit6*takum6+bf16", "dot4 fxp2.2*fxp2.2=fxp4.4.sat", "sparsedot4 e2m1fn*e2m1fn=fp32", "join bf16x2>fp32"),
    *("blockdot4 block(e5m2,8,e8m0fnu,floor)*block(e5m2,8,e8m0fnu,floor)=fp32.rd", "blockmac nvfp4*nvfp4+fp32"),
    *("mac e2m1fn*e2m1fn+e3m2.sr3@lfsr8", "mac e2m1fn*e2m1fn=e3m2.rz+e3m2", "dotmac2 e2m1fn*e2m1fn+e3m2.rd"),
    *("mac e5m2*e5m2=e5m2.sr4+e6m5.sr10@lfsr16:5", "accumulate e5m2+fp16.sr6@plateau6", "partmac bf16x2*bf16x2+fp32"),
    *("sru fxp4.4>fxp2.2.sr2@plateau2 lanes=2", "fma fp64*fp64+fp64", "dot2 fp64*fp64=fp64.ru"),
)

REFUSED = (
    ("div e5m2/e5m2", "not the function div"),
    ("compare e5m2,e5m2", "not the function compare"),
    ("mul e5m2*e5m2 flags", "no exception flags; omit flags"),
    ("mul bf16x2*bf16x2", "no format bf16x2"),
    ("lerp e3m2,e3m2,e3m2", "not an exact sum"),
    ("mac posit8*posit8+exact=posit16", "not an exact sum"),
    ("mac e5m2*e5m2+e6m5 interleave=2", "interleave=2"),
    ("dot4 e4m3fn*e4m3fn+fp32 order=aligned25.trunc", "not aligned ones"),
)


@pytest.fixture(scope="module")
def models() -> list[Model]:
    return [Model(f"unit{place}_model", component(text).spec) for place, text in enumerate(TEXTS)]


def compiled(text: str, folder: Path) -> ctypes.CDLL:
    """Compile a text alone in a folder, with all warnings."""
    (folder / "model.cpp").write_text(text)
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "model.cpp", "-o", "model.so"], cwd=folder, check=True, timeout=300)
    return ctypes.CDLL(str(folder / "model.so"))


@pytest.fixture(scope="module")
def library(models: list[Model], tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(source(models), tmp_path_factory.mktemp("models"))


def differences(library: ctypes.CDLL, model: Model, text: str, count: int = 1 << 12) -> tuple[int, int]:
    """Return the number of vectors, and of those whose results differ from the golden model."""
    unit = component(text)
    codes = operations(unit, count)
    expected = reference(unit, codes, chained=unit.stateful)
    length = len(next(iter(expected.values())))
    word = ctypes.c_uint64
    state, results = [word(99) for _ in model.state], [word() for _ in model.outputs]
    if state:
        getattr(library, f"{model.name}_reset")(*map(ctypes.byref, state))
    function = getattr(library, model.name)
    function.argtypes = [word] * len(model.inputs) + [ctypes.POINTER(word)] * (len(state) + len(results))
    wrong = 0
    columns = zip(*(np.broadcast_to(codes[name], length).tolist() for name in model.inputs), strict=True)
    for row, *answers in zip(columns, *(expected[name].tolist() for name in model.outputs), strict=True):
        function(*row, *map(ctypes.byref, state), *map(ctypes.byref, results))
        wrong += [result.value for result in results] != answers
    return length, wrong


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", range(len(TEXTS)), ids=TEXTS)
def test_model_gives_results_of_golden_model(models: list[Model], library: ctypes.CDLL, place: int) -> None:
    length, wrong = differences(library, models[place], TEXTS[place])
    assert length >= 256
    assert wrong == 0


def test_comparison_detects_another_rounding(tmp_path: Path) -> None:
    model = Model("unit_model", component(TEXTS[0]).spec)
    text = source([model])
    assert text.count("Rounding{RN,") == 1
    _, wrong = differences(compiled(text.replace("Rounding{RN,", "Rounding{RA,"), tmp_path), model, TEXTS[0])
    assert wrong


@pytest.mark.skipif(shutil.which("clang++") is None, reason="Clang is not installed")
def test_model_compiles_in_clang(models: list[Model], tmp_path: Path) -> None:
    (tmp_path / "model.cpp").write_text(source(models))
    subprocess.run(["clang++", "-std=c++17", "-fsyntax-only", "model.cpp"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_units_without_model_are_named(text: str, reason: str) -> None:
    spec = component(text).spec
    with pytest.raises(ValueError, match=reason) as caught:
        Model("unit_model", spec)
    assert str(caught.value).startswith(f"{spec.text} has no C++ model: it")
