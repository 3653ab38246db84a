"""Integer multiplier."""

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .wire import extended, shifted_up, wire


def product(m: Module, x: Value, y: Value, name: str, *, dsp: bool) -> Value:
    """Return ``x * y``, signed or not, as a chain of adder rows; DSP blocks and tiny products use the plain operator.

    Two bits of the shorter factor select a multiple of the longer one, -2 to 2 times. It is added to the upper bits of
    the previous row; the lower ones are final. Each sum bit is a function of six inputs and a carry, which is one LUT
    of an FPGA, and there are half as many rows as bits. (Radix-4 Booth recoding: MacSorley, Proc. IRE 49(1), 1961.)
    """
    if len(x) < len(y):
        x, y = y, x
    if dsp or len(x) < 4 or len(y) < 3:
        return x * y
    # The longer factor and its double, with room for either sign.
    width = len(x) + 2
    times_one, times_two = extended(x, width), extended(shifted_up(x, 1), width)
    # A signed factor ends with a pair of bits, the upper of negative weight; an unsigned one ends with a single bit.
    # The first row adds a bit that is left over at the low end.
    y_signed = y.shape().signed
    start = (len(y) - (not y_signed)) % 2
    begun = x[:] & y[0].replicate(len(x)) if start else Const(0, 1)
    final = [begun[:start]]
    rest = extended(begun[start:].as_signed() if start and x.shape().signed else begun[start:], width)
    below: Value = Const(0, 1)
    for place in range(start, len(y), 2):
        one = y[place]
        is_last = place == len(y) - 1
        two = Const(0, 1) if is_last else y[place + 1]
        once = times_one & (one ^ below).replicate(width)
        twice = times_two & Mux(two, ~(one | below), one & below).replicate(width)
        multiple = (once | twice) ^ two.replicate(width)
        if is_last:
            total = rest + multiple
        else:
            # The negative of a multiple is its inverse plus one, which enters as carry from the bit below.
            total = (Cat(Const(1, 1), rest) + Cat(two, multiple))[1:]
        total = wire(m, total[:width], f"{name}_row_{place}")
        final.append(total[:2])
        rest = extended(total[2:].as_signed(), width)
        below = two
    whole = Cat(*final, rest)[: len(x) + len(y)]
    return whole.as_signed() if x.shape().signed or y_signed else whole
