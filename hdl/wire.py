"""Small circuits that all units use."""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.utils import bits_for

LONGEST_CARRY_IN_TABLES = 5
"""Maximum bits of two words whose carry uses LUTs instead of a carry chain. A six-input LUT takes three bits of each
word, a second one two more. A carry chain needs a LUT per bit and is not faster."""


GROUP = 5
"""Bits of a group in `incremented`; a LUT has one input more."""

WIDE = 128
"""Maximum bits of a value whose leading zeros are counted in a concatenation; exact sums are longer."""

MIN_FAR = 3
"""Minimum number of upper bits of a shift amount whose OR needs a LUT; that of fewer merges into steps of the shift."""

NEVER = Const(0, 1)
"""Constant false condition."""


def never() -> Value:
    """Return `NEVER`; a default factory, because dataclasses reject unhashable defaults."""
    return NEVER


def wire(m: Module, value: Value, name: str) -> Value:
    """Return a signal named ``name`` that carries ``value``, so that Verilog and waveforms show it."""
    if len(value) == 0:
        return value
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def word_at(value: Value, index: Value | int, width: int) -> Value:
    """Return the word at an index counted in words. Unlike ``word_select``, its Verilog has no implicit truncation."""
    return (value >> index * width)[:width]


def extended(value: Value, width: int) -> Value:
    """Return a value, signed or not, extended to at least ``width`` bits."""
    filling = value[-1] if value.shape().signed else Const(0, 1)
    return Cat(value, filling.replicate(max(width - len(value), 0)))


def bounds(value: Value) -> tuple[int, int]:
    """Return the smallest and largest number that a value, signed or not, can hold."""
    high = (1 << len(value)) - 1
    return (~(high >> 1), high >> 1) if value.shape().signed else (0, high)


def narrowed(value: Value, low: int, high: int) -> Value:
    """Return a number from ``low`` to ``high`` in the bits that such numbers need; it stays signed or unsigned."""
    signed = value.shape().signed
    bits = value[: max(bits_for(bound, require_sign_bit=signed) for bound in (low, high))]
    return bits.as_signed() if signed else bits


def reaches(value: Value, least: int) -> Value:
    """Return whether a number, signed or not, is at least a constant.

    A constant of one run of ones, such as a largest exponent field, needs no carry chain.
    """
    zeros = (least & -least).bit_length() - 1
    ones = least >> zeros if least > 0 else 0
    if least <= 0 or ones & (ones + 1):
        return value >= least
    start, end = zeros, zeros + ones.bit_length()
    magnitude, is_positive = (value[:-1], ~value[-1]) if value.shape().signed else (value, Const(1, 1))
    if len(magnitude) < end:
        return Const(0, 1)
    return is_positive & (magnitude[start:end].all() | magnitude[end:].any())


def shifted_up(value: Value, places: int) -> Value:
    """Return a value, signed or not, with ``places`` zeros below."""
    shifted = Cat(Const(0, places), value)
    return shifted.as_signed() if value.shape().signed else shifted


def modulo_counter(m: Module, count: int, go: Value) -> tuple[Value, Value]:
    """Count modulo ``count`` on ``go``; return the counter and the condition that it is at its last value."""
    if count == 1:
        return Const(0, 1), Const(1, 1)
    turn = Signal(range(count))
    last = turn == count - 1
    with m.If(go):
        m.d.sync += turn.eq(Mux(last, 0, turn + 1))
    return turn, last


def incremented(m: Module, value: Value, up: Value, name: str) -> Value:
    """Return ``value + up`` in the width of ``value``, by groups of as many bits as one LUT takes beside a carry.

    A bit changes if all bits below it are ones and ``up`` is true. This needs a few LUTs more than a carry chain, and
    is three LUTs deep for up to 30 bits.
    """
    bits, ones = [], Const(1, 1)
    for start in range(0, len(value), GROUP):
        group = value[start : start + GROUP]
        carry = wire(m, up & ones, f"{name}_carry_to_{start}") if start else up
        bits += [bit ^ (carry & group[:place].all()) for place, bit in enumerate(group)]
        ones = ones & wire(m, group.all(), f"{name}_ones_from_{start}")
    return Cat(*bits)


def carry_out(x: Value, y: Value) -> Value:
    """Return the carry out of the sum of two values of one width.

    Up to `LONGEST_CARRY_IN_TABLES` bits it is plain logic, which needs fewer LUTs than an adder.
    """
    return (x + y)[len(x)] if len(x) > LONGEST_CARRY_IN_TABLES else added_in_tables(x, y)[1]


def added_in_tables(x: Value, y: Value) -> tuple[Value, Value]:
    """Return the sum of two short values of one width, and its carry, without a carry chain."""
    bits: list[Value] = []
    carry: Value = NEVER
    for x_bit, y_bit in zip(x, y, strict=True):
        bits.append(x_bit ^ y_bit ^ carry)
        carry = (x_bit & y_bit) | ((x_bit | y_bit) & carry)
    return Cat(*bits), carry


def leading_zeros(m: Module, value: Value, name: str) -> Value:
    """Return the number of zeros above the first one; for zero the width of ``value``.

    A balanced tree combines the counts of two halves; the upper half decides (Oklobdzija, IEEE Trans. VLSI 2(1), 1994).
    """
    width = 1 << len(value).bit_length()
    # A one below the value limits the count to its width.
    padding = Const((1 << (width - len(value))) - 1, width - len(value))
    # Amaranth evaluates a whole concatenation for each of its bits, which takes minutes for exact sums of wide formats.
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


def shift_up(m: Module, value: Value, amount: Value, width: int, name: str, fill: Value = NEVER) -> Value:
    """Return the lowest ``width`` bits of ``value << amount``, with ``fill`` below and above the value.

    Narrow steps come first, so that each bit of a short value depends on few others. Two before one needs the fewest
    LUTs after Yosys.
    """
    for level in narrow_first(len(amount)):
        filling = fill.replicate(1 << level)
        longer = Cat(value, filling)
        value = wire(m, Mux(amount[level], Cat(filling, value), longer)[:width], f"{name}_by_{1 << level}")
    return Cat(value, fill.replicate(max(width - len(value), 0)))


def shift_up_by_words(  # noqa: PLR0913 - signals and widths of one shift
    m: Module,
    value: Value,
    amount: Value,
    width: int,
    levels: int,
    name: str,
    absent: Value = NEVER,
    fill: Value = NEVER,
) -> Value:
    """Return the lowest ``width`` bits of ``value << amount``, with ``fill`` below and above; all are, if ``absent``.

    The lowest ``levels`` bits of the amount shift the value within words of ``2^levels`` bits. The other bits are
    decoded to the number of the first word, which selects each bit among those at its place in a word.
    """
    word = 1 << levels
    near = shift_up(m, value, amount[:levels], len(value) + word - 1, f"{name}_in_word", fill)
    first = [wire(m, (amount[levels:] == at) & ~absent, f"{name}_from_word_{at}") for at in range(-(-width // word))]
    bits = []
    for place in range(width):
        number, lowest = divmod(place, word)
        sources = range(lowest, min(len(near), place + 1), word)
        firsts = [first[number - source // word] for source in sources]
        bit = Cat(*(near[source] & is_first for source, is_first in zip(sources, firsts, strict=True))).any()
        bits.append(bit if fill is NEVER else bit | (fill & ~Cat(*firsts).any()))
    return Cat(*bits)


def narrow_first(levels: int) -> list[int]:
    """Return the steps of a shift, as powers of two, from narrow to wide."""
    return [1, 0, *range(2, levels)] if levels > 1 else [0] * levels


def shift_down(m: Module, value: Value, amount: Value, name: str, fill: Value = NEVER) -> Value:
    """Return ``value >> amount`` with ``fill`` at the top, with the steps of `shift_up`."""
    amount = _enough(amount, len(value))
    for level in narrow_first(len(amount)):
        step = min(1 << level, len(value))
        value = wire(m, Mux(amount[level], Cat(value[step:], fill.replicate(step)), value), f"{name}_by_{1 << level}")
    return value


def shift_left(m: Module, value: Value, amount: Value, name: str, tail: int = 0) -> Value:
    """Return ``value << amount`` within the width of ``value``.

    Amounts of 3 or more must make the ``tail`` lowest bits zero; each of these bits then selects one of three.
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
    """Return the first ``keep`` bits of ``value << amount`` within its width, and the OR of the bits below.

    The widest step comes first: it leaves the fewest bits to select, and the upper bits of a leading-zero count are
    ready first. Bits that later steps cannot move into the result are only OR-ed.
    """
    below: Value = NEVER
    for level in reversed(range(len(amount))):
        step = min(1 << level, len(value))
        shifted = Cat(Const(0, step), value[: len(value) - step])
        dropped = max(len(value) - keep - (1 << level) + 1, 0)
        # After the shift, the lowest of these bits are the zeros shifted in.
        below = below | value[: max(dropped - step, 0)].any() | (~amount[level] & value[:dropped].any())
        value = wire(m, Mux(amount[level], shifted, value)[dropped:], f"{name}_by_{1 << level}")
    dropped = max(len(value) - keep, 0)
    return value[dropped:], wire(m, below | value[:dropped].any(), f"{name}_below")


def shift_right_sticky(
    m: Module, value: Value, amount: Value, name: str, fill: Value = NEVER, below: int = 0, *, is_addend: bool = False
) -> tuple[Value, Value]:
    """Return ``value >> amount`` with ``below`` more places, and the OR of the bits shifted out.

    ``fill`` is shifted in at the top; default: zeros.

    The widest step comes first. With at least as many places below as in the value, the two narrowest steps come first,
    which leaves the wide steps fewer bits to select. The step by four comes last and shares its LUTs with the next
    adder.

    ``is_addend``: the result is the operand of one adder and read by nothing else. The last step then also clears it
    if the amount is larger than the width, and the first step does not wait for `_enough`. This is done only where it
    saves LUTs: if the amount has at least `MIN_FAR` more bits than the shift has steps, and the number of steps is odd,
    because a LUT with six inputs takes two steps, so that the last of an odd number has room for the condition.
    """
    lost: Value = NEVER
    width = len(value) + below
    bits, far = width.bit_length(), NEVER
    if is_addend and bits % 2 and len(amount) - bits >= MIN_FAR:
        far, amount = wire(m, amount[bits:].any(), f"{name}_far"), amount[:bits]
        lost = far & value.any()
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
        value = Mux(amount[level], shifted, value)
        if far is not NEVER and level == levels[-1]:
            value = Mux(far, fill.replicate(len(value)), value)
        value = wire(m, value, f"{name}_by_{1 << level}")
    missing = width - len(value)
    return Cat(Const(0, missing), value), wire(m, lost, f"{name}_lost")


def _enough(amount: Value, width: int) -> Value:
    """Return a shift amount in the fewest bits that shift out ``width`` places.

    Larger amounts set as many of its upper bits as are needed to shift everything out.
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
    """Return the value at an index, as a table with one LUT per bit of the values."""
    negative = min(values) < 0
    width = max(bits_for(value, require_sign_bit=negative) for value in values)
    return Array(Const(value, signed(width) if negative else width) for value in values)[index]


def saturate(value: Value, width: int) -> Value:
    """Return an unsigned value in ``width`` bits, or all ones if it does not fit."""
    if len(value) <= width:
        return value
    return value[:width] | value[width:].any().replicate(width)
