"""Multiplication of integers."""

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .wire import extended, shifted_up, wire


def product(m: Module, x: Value, y: Value, name: str, *, dsp: bool) -> Value:
    """``x * y``, signed or not, as a chain of rows, unless it is to be left to DSP blocks or is a few tables anyway.

    Two bits of the shorter factor select -2 to 2 times the longer one, which is added to what the rows before left
    above the bits that are final. A bit of that is a function of six inputs and a carry: one table of an FPGA, and half
    as many rows as bits. (Booth's recoding in radix 4: MacSorley, Proc. IRE 49(1), 1961.)
    """
    if len(x) < len(y):
        x, y = y, x
    if dsp or len(x) < 4 or len(y) < 3:
        return x * y
    # Twice the longer factor, in either sign.
    width = len(x) + 2
    times_one, times_two = extended(x, width), extended(shifted_up(x, 1), width)
    # A signed factor ends with a pair of bits, of which the upper one counts negative; an unsigned one with a single
    # bit, which does not. What is left over at the other end begins.
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
            # Of minus a multiple that is the inverse, and one comes in as a carry from a place below.
            total = (Cat(Const(1, 1), rest) + Cat(two, multiple))[1:]
        total = wire(m, total[:width], f"{name}_row_{place}")
        final.append(total[:2])
        rest = extended(total[2:].as_signed(), width)
        below = two
    whole = Cat(*final, rest)[: len(x) + len(y)]
    return whole.as_signed() if x.shape().signed or y_signed else whole
