"""Casts of policies: rounding modes, sources and input formats."""

import pytest
import torch

from halfulp import golden
from halfulp.golden import nn
from halfulp.golden.nn.draw import states
from halfulp.hdl.formats.rounding import MODES


def test_casts_accept_all_rounding_modes():
    assert [str(nn.Cast.parse(f"e5m2.{mode}")) for mode in MODES] == [f"e5m2.{mode}" for mode in MODES]


@pytest.mark.parametrize("source", ["lfsr24", "lfsr3", "plateau3"])
def test_cast_with_source_gives_bits_of_rounding_unit(source):
    cast = nn.Cast.parse(f"int4.sr3@{source}")
    assert str(cast) == f"int4.sr3@{source}"
    values = golden.decode(torch.randint(256, (3, 50)), "fxp4.4")
    state = states(9, cast.source, (), values.device)
    random = golden.random.words(source, values.numel(), int(state), bits=3).reshape(values.shape)
    wanted = golden.sru(golden.encode(values, "fxp4.4"), a="fxp4.4", o="int4", rounding="sr3", random=random)
    assert torch.equal(cast.codes(values, cast.fmt, 9), wanted)


def test_cast_rounds_to_input_format_of_rounding_unit_first():
    """Tiny negative values are zeros of the input, so that no random word rounds them down."""
    cast, direct = (nn.Cast.parse(text) for text in ("fxp8.8 > int8.sr3@plateau3", "int8.sr3@plateau3"))
    assert str(cast) == "fxp8.8>int8.sr3@plateau3"
    assert nn.Cast.parse(str(cast)) == cast
    values = torch.full((200,), -1e-6)
    assert cast.real(values, 3).count_nonzero() == 0
    assert direct.real(values, 3).count_nonzero() > 0
    x = torch.randn(500)
    inputs = golden.decode(golden.encode(x, "fxp8.8"), "fxp8.8")
    assert torch.equal(cast.codes(x, cast.fmt, 3), direct.codes(inputs, direct.fmt, 3))
    assert cast.target is None


@pytest.mark.parametrize("text", ["fxp8.8>rn", "fxp4.8>int8.rn", "int8>fxp4.4.rn", ">int8.rn"])
def test_cast_rejects_unsuitable_input_format(text):
    with pytest.raises(ValueError, match="invalid cast"):
        nn.Cast.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bf16.rm", r"unknown rounding mode 'rm'; the modes are rn, ra"),
        ("fxp4.4.rm@lfsr8", "unknown rounding mode 'rm'"),
        ("bf16.rn.satt", "unknown rounding mode 'rn.satt'"),
        ("bf16.port", "rounding port is not possible for a cast; choose one mode"),
        ("bf17.rn", "unknown format 'bf17'"),
    ],
)
def test_cast_names_the_part_that_is_wrong(text, message):
    with pytest.raises(ValueError, match=message):
        nn.Cast.parse(text)


def test_cast_takes_modes_by_their_names_in_ieee_754():
    assert str(nn.Cast.parse("bf16.rne")) == "bf16.rn"
    assert str(nn.Cast.parse("rtz.sat")) == "rz.sat"


@pytest.mark.parametrize("text", ["e5m2.rn@lfsr8", "e5m2.sr10@lfsr8", "e5m2.sr3@plateau8", "e5m2.sr3@xorshift8"])
def test_cast_rejects_unsuitable_source(text):
    with pytest.raises(ValueError, match=r"source|words"):
        nn.Cast.parse(text)
