"""Interface of formats, the same in every family, and the registry of families."""

import itertools

import pytest
import torch
from amaranth.hdl import Const, Module

from halfulp.golden import codec
from halfulp.golden.kernels import text as kernels
from halfulp.hdl import number as rtl
from halfulp.hdl.formats import (
    BLOCKS,
    FAMILIES,
    NAMED,
    POSIT8,
    RN,
    Format,
    Posit,
)
from halfulp.hdl.formats.base import floor_log2
from halfulp.hdl.formats.block import parse_operand
from tests.toy_formats import SMALL_FIXED, SMALL_POSITS, TOYS

PROTOCOL = [*TOYS, *(fmt for fmt in SMALL_POSITS if fmt.width <= 8), *(fmt for fmt in SMALL_FIXED if fmt.width <= 6)]


@pytest.mark.parametrize("fmt", PROTOCOL, ids=str)
def test_precision_at_matches_table(fmt):
    low, high = (floor_log2(number) for number in (fmt.smallest, fmt.largest))
    for scale in (*range(low - 2, high), high + 1, high + 2):
        assert fmt.precision_at(scale) == Format.precision_at(fmt, scale), scale
    # Above the last power of two there may be few numbers.
    assert fmt.precision_at(high) >= Format.precision_at(fmt, high) >= bool(fmt.largest)


@pytest.mark.parametrize("fmt", PROTOCOL, ids=str)
def test_rank_rises_with_the_number(fmt):
    ranked = sorted((fmt.rank(code), fmt.decode(code)) for code in range(1 << fmt.width) if fmt.rank(code) is not None)
    for (rank, number), (next_rank, next_number) in itertools.pairwise(ranked):
        assert (rank < next_rank) >= (number < next_number)
        assert (rank == next_rank) <= (number == next_number)
    assert all((fmt.rank(code) is None) == (value != value) for code, value in enumerate(fmt.values))


@pytest.mark.parametrize("fmt", PROTOCOL, ids=str)
def test_negated_changes_sign_if_number_has_opposite(fmt):
    for code, value in enumerate(fmt.values):
        if value != value:
            assert fmt.negated(code) == code
        elif -value in fmt.values:
            other = fmt.negated(code)
            assert fmt.decode(other) == -value
            assert fmt.negative(other) != fmt.negative(code) or (value == 0 and not fmt.has_negative_zero)
        else:
            with pytest.raises(ValueError, match="opposite"):
                fmt.negated(code)


def test_families_are_registered_with_names_and_syntax():
    for family in FAMILIES:
        assert family.family
        assert family.syntax
        for name, text in family.names.items():
            assert isinstance(parse_operand(text), family)
            assert (BLOCKS if family.shares_scale else NAMED)[name] == parse_operand(name)
            assert parse_operand(name).describe()


def test_family_without_accumulator_rejects_default():
    class Bare(Posit):
        default_accumulator = Format.default_accumulator

    for default in (Bare(8).default_accumulator, Bare(8).default_sum):
        with pytest.raises(TypeError, match="accumulator"):
            default()


def test_backends_reject_unregistered_family():
    class Other(Posit):
        pass

    fmt = Other(8)
    codes = torch.zeros(1, dtype=torch.int64)
    for call in (
        lambda: codec.unpack(codes, fmt),
        lambda: codec.round_and_pack(codec.unpack(codes, POSIT8), fmt, RN, False, None),
        lambda: rtl.unpack(Module(), Const(0, 8), fmt, "x"),
        lambda: kernels.format_text(fmt),
    ):
        with pytest.raises(TypeError, match="posit8 has no"):
            call()
