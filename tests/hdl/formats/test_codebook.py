"""Codebooks with the values of built-in formats match these formats, and codebooks of users work in all backends."""

import doctest
import itertools
import math
import os
import pickle
import re
import subprocess
import sys
import tomllib
from fractions import Fraction

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import NAMED, Codebook, Rounding, parse
from halfulp.hdl.formats import codebook as module
from halfulp.hdl.formats.rounding import MODES
from halfulp.hdl.specs import MacSpec
from halfulp.sim import listing
from halfulp.units import Mul
from tests.agreement.test_exhaustive import mismatches
from tests.kernel_products import compare
from tests.settings import ROOT

NEXT = {"e4m3fn": 480, "e5m2": 65536}
"""Magnitude of the next number beyond the largest one."""


def as_codebook(name):
    """Return a codebook with the values of a built-in format."""
    fmt = parse(name)
    values = [-0.0 if value == 0 and fmt.negative(code) else value for code, value in enumerate(fmt.values)]
    overflow = "nan" if name == "e4m3fn" else "infinity" if name == "e5m2" else "end"
    return Codebook.register(
        f"as_{name}".replace(".", "_"),
        values,
        order="two's complement" if name.startswith("fxp") else "sign-magnitude",
        overflow=overflow,
        threshold=NEXT.get(name),
        nan=-0.0 if name == "e2m1fn" else 0.0,
    )


BUILT_IN = ("e2m1fn", "e4m3fn", "fxp4.4")


@pytest.fixture(scope="module", params=BUILT_IN)
def pair(request):
    return parse(request.param), as_codebook(request.param)


@pytest.mark.sampled(3)
def test_codebook_encodes_like_built_in_format(pair):
    fmt, book = pair
    numbers = [value for value in fmt.values if isinstance(value, Fraction)]
    near = {number * Fraction(step, 16) for number in numbers for step in (0, 1, 7, 8, 9, 15, 16, 17, 18, 24, 40)}
    numbers = sorted(set(numbers))
    near |= {low + (high - low) * Fraction(step, 8) for low, high in itertools.pairwise(numbers) for step in range(9)}
    for mode in (*MODES, "sr3"):
        for number, word, saturate in itertools.product(near, (0, 3, 7) if mode == "sr3" else (0,), (False, True)):
            expected = fmt.encode(number, mode, word, saturate)
            assert book.encode(number, mode, word, saturate) == expected, f"{number} {mode} {word}"
    for number in (math.inf, -math.inf, math.nan, -0.0):
        assert book.encode(number) == fmt.encode(number) or (fmt.width == 8 and number != number)


@pytest.mark.parametrize("mode", [*MODES, "sr3"])
def test_conversion_to_codebook_matches_built_in_format(pair, mode):
    rounding = Rounding.parse(mode)
    wide = torch.arange(1 << 16)
    words = torch.from_numpy(np.random.default_rng(3).integers(0, 8, 1 << 16)) if rounding.bits else None
    for other in ("fp16", "posit16", "fxp8.8"):
        results = [golden.convert(wide, a=other, o=one, rounding=rounding, random=words) for one in pair]
        assert torch.equal(*results), other


@pytest.mark.sampled(3, 3)
@pytest.mark.slow
@pytest.mark.parametrize("text", ["nf4", *BUILT_IN])
def test_conversion_of_codebooks_matches_golden(text):
    source = text if text == "nf4" else str(as_codebook(text))
    checks, failed = mismatches("convert", source, [None, "e5m2", "fxp3.3", "posit6"], ("rn", "rh", "rd", "ro", "sr3"))
    assert not failed
    assert checks


@pytest.mark.sampled(3, 3)
@pytest.mark.slow
@pytest.mark.parametrize("source", ["fxp4.4", "e4m3", "posit8"])
def test_conversion_to_codebooks_matches_golden(source):
    targets = ["nf4", *(str(as_codebook(name)) for name in ("e2m1fn", "fxp2.2", "e4m3fn"))]
    checks, failed = mismatches("convert", source, targets, ("rn", "ra", "ru", "ro", "sr3"))
    assert not failed
    assert checks


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["nf4*nf4+fp32.rn", "codebook:as_e4m3fn*codebook:as_e4m3fn+codebook:as_e4m3fn.sr3", "nf4*e4m3=nf4.rh+fp16.rz"],
)
def test_codebook_kernels_match_tensors(text):
    as_codebook("e4m3fn")
    assert compare(text, 10**4)[-1] > 0


def test_nf4_has_published_values():
    nf4 = NAMED["nf4"]
    assert nf4.width == 4
    assert (nf4.decode(0), nf4.decode(7), nf4.decode(15)) == (-1, 0, 1)
    assert float(nf4.decode(8)) == 0.07958029955625534
    assert all(np.float32(float(value)) == value for value in nf4.values)
    assert str(nf4) == "nf4"
    assert parse("nf4") is parse(str(nf4))
    # Ties between two neighbours go to the even code.
    assert [nf4.encode((nf4.decode(code) + nf4.decode(code + 1)) / 2) for code in range(15)] == [
        code + code % 2 for code in range(15)
    ]


@pytest.mark.slow
def test_user_codebook_works_in_every_backend():
    """Ten lines of Python add a format to RTL, golden model, kernels and the command line."""
    powers = [0.0, *(2.0**exponent for exponent in range(-3, 4))]
    log4 = Codebook.register("log4", [*powers, -0.0, *(-power for power in powers[1:])], nan=-0.0)
    assert parse("codebook:log4") == log4
    checks, failed = mismatches("mul", str(log4), modes=("rn", "sr3"))
    assert checks
    assert not failed
    assert compare("codebook:log4*codebook:log4+codebook:log4.ru", 10**4)[-1] > 0
    code = golden.mul(torch.tensor([3]), torch.tensor([5]), a=log4, b=log4, o=log4)
    assert int(code) == exact.mul(3, 5, a=log4, b=log4, o=log4)
    program = "from halfulp.hdl.formats import parse; print(parse('codebook:log4').decode(9))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "-1/8"
    function = Codebook.register("squares", lambda code: math.copysign(code**2, 1), width=3)
    assert [int(value) for value in function.values] == [0, 1, 4, 9, 16, 25, 36, 49]


def test_edited_codebook_gives_another_module_name(monkeypatch):
    names = []
    for largest in (4, 8, 4):
        monkeypatch.delitem(module._KNOWN, "edited", raising=False)
        fmt = Codebook.register("edited", [0, 1, 2, largest])
        names.append(Mul(a=fmt, b=fmt, o=fmt).name)
    assert names[0] == names[2] != names[1]
    assert all(name.startswith("mul_codebook_edited_") for name in names)


def test_codebook_examples_run():
    assert doctest.testmod(module).failed == 0


def test_codebook_loads_from_data_file(tmp_path, monkeypatch):
    (tmp_path / "trits.toml").write_text('values = [0, 1.5, -0.0, -1.5]\nnan = "-0.0"\n')
    monkeypatch.setenv(module.FOLDERS, str(tmp_path))
    fmt = parse("codebook:trits")
    assert [fmt.text(code) for code in range(4)] == ["0", "1.5", "-0", "-1.5"]
    (tmp_path / "odd.toml").write_text("values = [0, 1]\nscale = 3\n")
    with pytest.raises(ValueError, match="scale"):
        parse("codebook:odd")
    with pytest.raises(ValueError, match="unknown codebook:nothing"):
        parse("codebook:nothing")


@pytest.mark.parametrize(
    ("name", "text", "keyword"),
    [
        ("bad1", "values = [0, 1", "invalid TOML"),
        ("bad2", b"values = [0, 1] # \xff", "not encoded in UTF-8"),
        ("bad10", "values = " + "[" * 5000, "nested more than 50 levels deep"),
        ("bad11", "values" + ".a" * 5000 + " = 1", "nested more than 50 levels deep"),
        ("bad3", 'values = ["x", 1]', "'x' is not a number"),
        ("bad4", "values = 3", "list of numbers"),
        ("bad5", "nan = 0", "no values"),
        ("bad6", "values = [1, 2]", "has no zero"),
        ("bad7", "values = [0, 1, 1, 2]", "a value twice"),
        ("bad8", "values = [0, true]", "not bool"),
        ("bad9", 'values = [0, 1, 2, inf]\noverflow = "infinity"\nthreshold = "10/3"', "10/3"),
        ("Bad", "values = [0, 1]", "invalid codebook name 'Bad'"),
    ],
)
def test_codebook_file_error_names_file_and_cause(tmp_path, monkeypatch, name, text, keyword):
    path = tmp_path / f"{name}.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setenv(module.FOLDERS, str(tmp_path))
    with pytest.raises(ValueError, match=keyword) as caught:
        Codebook.load(path)
    assert re.match(rf"{path}[: ]", str(caught.value))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=keyword):
        parse(f"codebook:{name}")


def test_documented_codebook_file_loads(tmp_path):
    page = (ROOT / "docs" / "formats.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "example.toml").write_text(block)
    assert set(tomllib.loads(block)) == {"values", "order", "overflow", "nan"}
    assert Codebook.load(tmp_path / "example.toml").width == 2


def test_list_formats_includes_codebooks_of_data_files(tmp_path, monkeypatch):
    (tmp_path / "listed.toml").write_text('values = [0, 1.5, -0.0, -1.5]\nnan = "-0.0"\n')
    (tmp_path / "broken.toml").write_text("values = [0, 1")
    monkeypatch.setenv(module.FOLDERS, os.pathsep.join([str(tmp_path), str(tmp_path / "missing")]))
    rows = {line.split(maxsplit=1)[0]: line for line in listing.formats() if line.strip()}
    assert re.search(r"sign-magnitude.* 2 +1\.5  1\.5$", rows["codebook:listed"])
    assert "invalid TOML" in rows["codebook:broken"]


def test_register_needs_a_width_with_functions_only():
    with pytest.raises(TypeError, match="width"):
        Codebook.register("fn", lambda code: code)
    with pytest.raises(TypeError, match="width"):
        Codebook.register("fn", [0, 1], width=1)
    with pytest.raises(ValueError, match="width"):
        Codebook.register("fn", lambda code: code, width=40)


@pytest.mark.parametrize(
    ("given", "error", "keyword"),
    [
        ({"values": [0, 1, 2]}, ValueError, "power of two"),
        ({"values": [1, 2]}, ValueError, "zero"),
        ({"values": [0, 2, 2, 1]}, ValueError, "twice"),
        ({"values": [0, 2, 1, 3]}, ValueError, "parity"),
        ({"values": [0, Fraction(1, 3)]}, ValueError, "power of two"),
        ({"values": [0, "1"], "order": "odd"}, ValueError, "sign-magnitude"),
        ({"values": [0, 1], "overflow": "nan", "threshold": 3}, ValueError, "not among"),
        ({"values": [0, 1], "threshold": 3}, ValueError, "threshold"),
        ({"values": [0, 1], "nan": 5}, ValueError, "(?i)nan"),
        ({"values": [0.0, -0.0], "order": "two's complement"}, ValueError, "-0"),
        ({"values": [0, None]}, TypeError, "number"),
        ({"values": [0, 1], "name": "Big"}, ValueError, "name"),
        ({"values": [0, 1, 2, math.inf], "overflow": "infinity", "threshold": Fraction(10, 3)}, ValueError, "10/3"),
        ({"values": [0, 1, 2, math.inf], "overflow": "infinity", "threshold": math.inf}, ValueError, "finite"),
        ({"values": [0, 1, 2, math.inf], "overflow": "infinity", "threshold": math.nan}, ValueError, "finite"),
        ({"values": [0, 1, 2, math.inf], "overflow": "infinity", "threshold": "high"}, ValueError, "not a number"),
        ({"values": [0.0, 1.0, -0.0, -0.0]}, ValueError, "twice"),
        ({"values": [0.0, 1.0, math.inf, math.inf]}, ValueError, "twice"),
        ({"values": [0, 1, 2, math.nan], "nan": 12345}, ValueError, "(?i)nan"),
        ({"values": [0.0, -0.0]}, ValueError, "only zero"),
        ({"values": [0.0, math.nan]}, ValueError, "only zero"),
        ({"values": [0.0, math.inf]}, ValueError, "only zero"),
        ({"values": 3}, TypeError, "list of numbers"),
        ({"values": "0123"}, TypeError, "list of numbers"),
        ({"values": [0, "x"]}, ValueError, "'x' is not a number"),
        ({"name": "nf4", "values": [0, 1]}, ValueError, "built-in"),
    ],
)
def test_codebook_rejects_bad_parameters(given, error, keyword):
    with pytest.raises(error, match=keyword):
        Codebook(**{"name": "bad", **given})


def test_codebook_rejects_other_values_under_a_known_name(tmp_path, monkeypatch):
    Codebook.register("taken", [0, 1])
    assert Codebook.register("taken", (0.0, 1.0)) == parse("codebook:taken")
    for make in (Codebook.register, Codebook):
        with pytest.raises(ValueError, match="registered"):
            make("taken", [0, 3])
        with pytest.raises(ValueError, match="built-in"):
            make("nf4", [0, 3])
    assert parse("codebook:taken").values == (0, 1)
    (tmp_path / "nf4.toml").write_text("values = [0, 3]\n")
    with pytest.raises(ValueError, match="built-in"):
        Codebook.load(tmp_path / "nf4.toml")
    # A new process parses nf4 by its long text and reads no file of that name.
    program = "from halfulp.hdl.formats.codebook import Codebook; print(Codebook.from_text('codebook:nf4').width)"
    monkeypatch.setenv(module.FOLDERS, str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "4"


def test_codebook_with_several_nan_codes_uses_first():
    fmt = Codebook("nans", [0, 1, math.nan, math.nan])
    assert fmt.encode(math.nan) == 2


def test_pickled_codebook_has_hash_of_reading_process(tmp_path):
    values = [0.0, 1.0, -0.0, -1.0]
    fmt = Codebook("pickled", values, nan=-0.0)
    assert {fmt: 1}[Codebook("pickled", values, nan=-0.0)]
    assert fmt.smallest == 1
    (tmp_path / "fmt").write_bytes(pickle.dumps(fmt))
    program = f"""if True:
        import pathlib, pickle
        from halfulp.hdl.formats import Codebook
        read = pickle.loads(pathlib.Path({str(tmp_path / "fmt")!r}).read_bytes())
        made = Codebook("pickled", {values}, nan=-0.0)
        assert read == made and hash(read) == hash(made) and read in {{made}} and read.smallest == 1"""
    for seed in ("1", "2"):
        subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, check=True)


def test_rtl_rejects_wide_codebooks():
    fmt = Codebook.register("wide", Fraction, width=9)
    x = torch.arange(512)
    found = golden.mul(x, x.flip(0), a=fmt, b=fmt, o=fmt)
    assert torch.equal(found, (x * x.flip(0)).clamp(max=511))
    with pytest.raises(ValueError, match="at most 8"):
        mismatches("add", str(fmt), modes=("rn",))


def test_codebook_without_zero_at_code_0_is_no_accumulator():
    assert parse("nf4").decode(0) == -1
    for text in ("nf4*nf4+nf4.rn", "nf4*nf4+exact=nf4.rn"):
        with pytest.raises(ValueError, match="code 0"):
            MacSpec.parse(text)
    assert MacSpec.parse("nf4*nf4+exact=fp32.rn").o == parse("fp32")


def test_codebook_symmetry_requires_opposites_and_parities():
    assert as_codebook("e2m1fn").is_symmetric
    assert not as_codebook("fxp4.4").is_symmetric
    assert not parse("nf4").is_symmetric
    with pytest.raises(ValueError, match="opposite"):
        parse("nf4").negated(8)
    assert parse("nf4").negated(15) == 0
