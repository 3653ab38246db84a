"""Small circuits that every unit is made of."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value


def wire(m: Module, value: Value, name: str) -> Value:
    """Named signal that carries ``value``, so that Verilog and waveforms show it once, under its name."""
    if len(value) == 0:
        return value
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def leading_zeros(m: Module, value: Value, name: str) -> Value:
    """Number of zeros above the first one; the width of ``value`` where it is zero.

    A balanced tree: two halves count for themselves, and the upper one decides. (Oklobdzija, IEEE Trans. VLSI 2(1),
    1994.)
    """
    width = 1 << len(value).bit_length()
    # A one below the value ends the count of a zero at its width.
    padded = Cat(Const((1 << (width - len(value))) - 1, width - len(value)), value)
    _, count = _leading_zeros(m, padded, name)
    return wire(m, count[: len(value).bit_length()], name)


def _leading_zeros(m: Module, value: Value, name: str) -> tuple[Value, Value]:
    if len(value) == 1:
        return ~value, Const(0, 0)
    half = len(value) // 2
    low_zero, low_count = _leading_zeros(m, value[:half], f"{name}_low")
    high_zero, high_count = _leading_zeros(m, value[half:], f"{name}_high")
    count = Cat(Mux(high_zero, low_count, high_count), high_zero) if half > 1 else high_zero
    return wire(m, low_zero & high_zero, f"{name}_none"), wire(m, count, f"{name}_count")


LONGEST_IN_ROWS = 16
"""Longer factors are left to the multiplier of the synthesis tool, or to the DSP blocks it uses."""


def product(m: Module, x: Value, y: Value, name: str) -> Value:
    """``x * y`` of unsigned values; of short ones as a chain of rows.

    Two bits of the shorter factor select -2 to 2 times the longer one, which is added to what the rows before left
    above the bits that are final. A bit of that is a function of six inputs and a carry: one table of an FPGA, and half
    as many rows as bits. (Booth's recoding in radix 4: MacSorley, Proc. IRE 49(1), 1961.)
    """
    if len(x) < len(y):
        x, y = y, x
    if len(x) > LONGEST_IN_ROWS or len(x) < 4 or len(y) < 3:
        return x * y
    width = len(x) + 2
    # The last digit has a single bit, so that it is not negative; an even number of bits begins with a single one too.
    start = 1 - len(y) % 2
    total = x & y[0].replicate(len(x)) if start else Const(0, 1)
    final = [total[:start]]
    rest = Cat(total[start:], Const(0, 1))
    below: Value = Const(0, 1)
    for place in range(start, len(y), 2):
        one = y[place]
        is_last = place == len(y) - 1
        two = Const(0, 1) if is_last else y[place + 1]
        once = Cat(x, Const(0, 2)) & (one ^ below).replicate(width)
        twice = Cat(Const(0, 1), x, Const(0, 1)) & Mux(two, ~(one | below), one & below).replicate(width)
        multiple = (once | twice) ^ two.replicate(width)
        rest = Cat(rest, rest[-1].replicate(width - len(rest)))
        if is_last:
            total = rest + multiple
        else:
            # Of minus a multiple that is the inverse, and one comes in as a carry from a place below.
            total = (Cat(Const(1, 1), rest) + Cat(two, multiple))[1:]
        total = wire(m, total[:width], f"{name}_row_{place}")
        final.append(total[:2])
        rest = total[2:]
        below = two
    return Cat(*final, rest)[: len(x) + len(y)]


def shift_left(m: Module, value: Value, amount: Value, name: str) -> Value:
    """``value << amount`` within the width of ``value``.

    The widest step comes first: it leaves the fewest bits to choose, and a count of zeros has its upper bits first.
    """
    for level in reversed(range(len(amount))):
        step = min(1 << level, len(value))
        shifted = Cat(Const(0, step), value[: len(value) - step])
        value = wire(m, Mux(amount[level], shifted, value), f"{name}_by_{1 << level}")
    return value


def shift_right_sticky(
    m: Module, value: Value, amount: Value, name: str, fill: Value | None = None
) -> tuple[Value, Value]:
    """``value >> amount`` within the width of ``value``, and whether a one was shifted out.

    ``fill`` is what comes in at the top, zeros unless told otherwise.
    """
    lost: Value = Const(0, 1)
    fill = Const(0, 1) if fill is None else fill
    for level in reversed(range(len(amount))):
        step = min(1 << level, len(value))
        lost = lost | (amount[level] & value[:step].any())
        shifted = Cat(value[step:], fill.replicate(step))
        value = wire(m, Mux(amount[level], shifted, value), f"{name}_by_{1 << level}")
    return value, wire(m, lost, f"{name}_lost")


def saturate(value: Value, width: int) -> Value:
    """An unsigned value in ``width`` bits, all ones where it needs more."""
    if len(value) <= width:
        return value
    return value[:width] | value[width:].any().replicate(width)
