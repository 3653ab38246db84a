"""Small circuits that every unit is made of."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.utils import bits_for

LONGEST_CARRY_IN_TABLES = 5
"""Most bits of two words whose carry is taken by tables: three and three make one bit in a table of six inputs, and
that and two and two another in a second one. A carry chain costs a table for each bit, and takes as long."""


WIDE = 128
"""Most bits whose leading zeros are counted in a concatenation; an exact sum has more."""

NEVER = Const(0, 1)
"""Condition that never holds."""


def never() -> Value:
    """`NEVER` as the default of a field, for which a dataclass refuses values without a hash."""
    return NEVER


def wire(m: Module, value: Value, name: str) -> Value:
    """Named signal that carries ``value``, so that Verilog and waveforms show it once, under its name."""
    if len(value) == 0:
        return value
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def word_at(value: Value, index: Value | int, width: int) -> Value:
    """Word at an index, counted in words. Unlike ``word_select`` it makes Verilog without implicit truncation."""
    return (value >> index * width)[:width]


def extended(value: Value, width: int) -> Value:
    """The bits of a value, signed or not, in ``width`` bits where it has fewer."""
    filling = value[-1] if value.shape().signed else Const(0, 1)
    return Cat(value, filling.replicate(max(width - len(value), 0)))


def shifted_up(value: Value, places: int) -> Value:
    """A value, signed or not, with so many zeros below."""
    shifted = Cat(Const(0, places), value)
    return shifted.as_signed() if value.shape().signed else shifted


def carry_out(x: Value, y: Value) -> Value:
    """Carry out of the sum of two values of one width.

    Of few bits it is plain logic, of which fewer tables are made than of an adder.
    """
    if len(x) > LONGEST_CARRY_IN_TABLES:
        return (x + y)[len(x)]
    carry: Value = NEVER
    for one, other in zip(x, y, strict=True):
        carry = (one & other) | ((one | other) & carry)
    return carry


def leading_zeros(m: Module, value: Value, name: str) -> Value:
    """Number of zeros above the first one; the width of ``value`` where it is zero.

    A balanced tree: two halves count for themselves, and the upper one decides. (Oklobdzija, IEEE Trans. VLSI 2(1),
    1994.)
    """
    width = 1 << len(value).bit_length()
    # A one below the value ends the count of a zero at its width.
    padding = Const((1 << (width - len(value))) - 1, width - len(value))
    # A bit of a concatenation makes Amaranth evaluate all of it, which takes minutes for exact sums of wide formats.
    bits = [*padding, *value] if len(value) > WIDE else [*Cat(padding, value)]
    _, count = _leading_zeros(m, bits, name)
    return wire(m, count[: len(value).bit_length()], name)


def _leading_zeros(m: Module, bits: Sequence[Value], name: str) -> tuple[Value, Value]:
    if len(bits) == 1:
        return ~bits[0], Const(0, 0)
    half = len(bits) // 2
    low_zero, low_count = _leading_zeros(m, bits[:half], f"{name}_low")
    high_zero, high_count = _leading_zeros(m, bits[half:], f"{name}_high")
    count = Cat(Mux(high_zero, low_count, high_count), high_zero) if half > 1 else high_zero
    return wire(m, low_zero & high_zero, f"{name}_none"), wire(m, count, f"{name}_count")


def shift_left(m: Module, value: Value, amount: Value, name: str, tail: int = 0) -> Value:
    """``value << amount`` within the width of ``value``.

    So many bits as ``tail`` says, the lowest ones, are zero where the amount is 3 or more: they choose of three.
    """
    if tail > 2 and len(amount) > 1:
        low = value[:tail]
        head = shift_left(m, value[tail - 2 :], amount, name)[2:]
        by_two = Cat(Const(0, 2), low[:-2])
        by_one = Cat(Const(0, 1), low[:-1])
        return Cat(wire(m, Mux(amount[1], by_two, Mux(amount[0], by_one, low)), f"{name}_tail"), head)
    shifted, _ = shift_left_sticky(m, value, amount, name, len(value))
    return shifted


def shift_left_sticky(m: Module, value: Value, amount: Value, name: str, keep: int) -> tuple[Value, Value]:
    """The first ``keep`` bits of ``value << amount`` within the width of ``value``, and whether there is a one below.

    The widest step comes first: it leaves the fewest bits to choose, and a count of zeros has its upper bits first.
    Of what a step leaves, bits that the rest of the amount cannot bring up to the kept ones are only looked at.
    """
    below: Value = NEVER
    for level in reversed(range(len(amount))):
        step = min(1 << level, len(value))
        shifted = Cat(Const(0, step), value[: len(value) - step])
        dropped = max(len(value) - keep - (1 << level) + 1, 0)
        # Moved, the lowest of these are the zeros that came in.
        below = below | value[: max(dropped - step, 0)].any() | (~amount[level] & value[:dropped].any())
        value = wire(m, Mux(amount[level], shifted, value)[dropped:], f"{name}_by_{1 << level}")
    dropped = max(len(value) - keep, 0)
    return value[dropped:], wire(m, below | value[:dropped].any(), f"{name}_below")


def shift_right_sticky(
    m: Module, value: Value, amount: Value, name: str, fill: Value = NEVER, below: int = 0
) -> tuple[Value, Value]:
    """``value >> amount`` within the value's places and so many more ``below``, and whether a one was shifted out.

    ``fill`` comes in at the top; default: zeros.

    The widest step comes first. But where there are as many places below as in the value, the two narrowest do, and
    leave the wide ones few bits to choose from; the last one, by four, shares its tables with an adder behind it.
    """
    lost: Value = NEVER
    width = len(value) + below
    amount = _enough(amount, width)
    levels = list(reversed(range(len(amount))))
    if below >= len(value):
        levels = [0, 1, *range(3, len(amount)), 2][: len(amount)]
    for level in levels:
        step = 1 << level
        room = min(step, width - len(value))
        step = min(step, len(value) + room)
        value = Cat(Const(0, room), value)
        lost = lost | (amount[level] & value[:step].any())
        shifted = Cat(value[step:], fill.replicate(step))
        value = wire(m, Mux(amount[level], shifted, value), f"{name}_by_{1 << level}")
    missing = width - len(value)
    return Cat(Const(0, missing), value), wire(m, lost, f"{name}_lost")


def _enough(amount: Value, width: int) -> Value:
    """An amount to shift by, in as few bits as move ``width`` places out.

    Where it needs more, its first bits are set, as many as are enough.
    """
    bits = width.bit_length()
    if len(amount) <= bits:
        return amount
    far = amount[bits:].any()
    forced, moved = 0, 0
    while moved < width:
        forced += 1
        moved += 1 << (bits - forced)
    return Cat(amount[: bits - forced], amount[bits - forced : bits] | far.replicate(forced))


def lookup(index: Value, values: list[int]) -> Value:
    """The value at an index, as a table of as many lookup tables as the values have bits."""
    negative = min(values) < 0
    width = max(bits_for(value, require_sign_bit=negative) for value in values)
    return Array(Const(value, signed(width) if negative else width) for value in values)[index]


def saturate(value: Value, width: int) -> Value:
    """An unsigned value in ``width`` bits, all ones where it needs more."""
    if len(value) <= width:
        return value
    return value[:width] | value[width:].any().replicate(width)
