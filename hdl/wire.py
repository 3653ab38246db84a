"""Small circuits that every unit is made of."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value


def wire(m: Module, value: Value, name: str) -> Value:
    """Named signal that carries ``value``, so that Verilog and waveforms show it once, under its name."""
    if len(value) == 0:
        return value
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


def extended(value: Value, width: int) -> Value:
    """The bits of a value, signed or not, in ``width`` bits where it has fewer."""
    filling = value[-1] if value.shape().signed else Const(0, 1)
    return Cat(value, filling.replicate(max(width - len(value), 0)))


def carry_out(x: Value, y: Value) -> Value:
    """What the sum of two values of one width carries out, as logic: no adder, and so no carry chain, is inferred."""
    carry: Value = Const(0, 1)
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
