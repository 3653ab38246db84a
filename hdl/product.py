"""Integer multiplier."""

from amaranth.hdl import Cat, Const, Module, Mux, Value

from .wire import extended, lookup, shifted_up, wire

LONGEST_CHAIN = 7
"""Maximum bits of a factor whose rows are one chain in a fast product."""

LONGEST_IN_TABLE = 4
"""Maximum bits of a factor that a table multiplies by two bits: these are the six inputs of a LUT of an FPGA."""


def has_tree(*lengths: int) -> bool:
    """Return True if the fast product of factors of these widths is a tree of several chains."""
    return min(lengths) > LONGEST_CHAIN


def product(m: Module, x: Value, y: Value, name: str, *, dsp: bool, fast: bool = False, table: bool = False) -> Value:
    """Return ``x * y``, signed or not, as a chain of adder rows; DSP blocks and tiny products use the plain operator.

    Two bits of the shorter factor select a multiple of the longer one, -2 to 2 times. It is added to the upper bits of
    the previous row; the lower ones are final. Each sum bit is a function of six inputs and a carry, which is one LUT
    of an FPGA, and there are half as many rows as bits. (Radix-4 Booth recoding: MacSorley, Proc. IRE 49(1), 1961.)
    With ``fast``, there are several chains of rows, whose results are added in a tree. With ``table``, the product of
    two short unsigned factors begins with a table, which needs fewer LUTs in a sum of products.
    """
    x, y = _longer_first(x, y)
    if dsp or not _has_rows(x, y):
        return x * y
    if table and len(x) <= LONGEST_IN_TABLE:
        return _from_table(m, x, y, name)
    whole = (_tree if fast else _rows)(m, x, y, _single_bits(y), Const(0, 1), name, 0)[: len(x) + len(y)]
    return whole.as_signed() if x.shape().signed or y.shape().signed else whole


def product_plus(m: Module, x: Value, y: Value, addend: Value, name: str) -> Value:
    """Return ``x * y + addend`` modulo ``2**len(addend)``, as a chain of adder rows.

    The factors are signed or not, and have at least three bits. The first row of a product adds to nothing, so it can
    add the addend.
    """
    x, y = _longer_first(x, y)
    return _rows(m, x, y, _single_bits(y), Const(0, 1), name, 0, addend)[: len(addend)]


def plus_is_smaller(x: Value, y: Value, width: int, zeros: int) -> bool:
    """Return True if `product_plus` has rows, and fewer adder bits than `product` and an adder.

    ``width`` is that of the addend, whose lowest ``zeros`` bits are zero. All rows of `product_plus` reach to the last
    bit of the addend, so with a wide addend and short factors they are longer than those of `product`.
    """
    x, y = _longer_first(x, y)
    start = _single_bits(y)
    places = range(start, len(y), 2)
    with_addend = start * width + sum(max(width - place, 0) for place in places)
    return _has_rows(x, y) and with_addend < len(places) * (len(x) + 2) + width - zeros


def _longer_first(x: Value, y: Value) -> tuple[Value, Value]:
    """Return two factors, the longer one first."""
    return (y, x) if len(x) < len(y) else (x, y)


def _has_rows(x: Value, y: Value) -> bool:
    """Return True if factors, the longer one first, are long enough for rows of an adder each."""
    return len(x) >= 4 and len(y) >= 3


def _single_bits(y: Value) -> int:
    """Return the number of low bits, 0 or 1, of the shorter factor that the first row takes alone.

    A signed factor ends with a pair of bits, the upper of negative weight; an unsigned one ends with a single bit.
    """
    return (len(y) - (not y.shape().signed)) % 2


def _from_table(m: Module, x: Value, y: Value, name: str) -> Value:
    """Return the product of two unsigned factors: a table for two bits of ``y``, a row for each bit above them."""
    multiples = [multiplicand * other for other in range(4) for multiplicand in range(1 << len(x))]
    lowest = wire(m, lookup(Cat(x, y[:2]), multiples), f"{name}_of_two_bits")
    final, rest = [lowest[:2]], lowest[2:]
    for place in range(2, len(y)):
        rest = wire(m, rest + (x & y[place].replicate(len(x))), f"{name}_row_{place}")
        if place < len(y) - 1:
            final.append(rest[0])
            rest = rest[1:]
    return Cat(*final, rest)


def _tree(m: Module, x: Value, y: Value, start: int, below: Value, name: str, low: int) -> Value:
    """Return the signed sum of the rows of `_rows`, in parallel chains whose results are added."""
    if not has_tree(len(y)):
        return _rows(m, x, y, start, below, name, low).as_signed()
    half = start + -(-(len(y) - start) // 4) * 2
    lower = _tree(m, x, y[:half], start, below, name, low)
    upper = _tree(m, x, y[half:], 0, y[half - 1], name, low + half)
    total = wire(m, (lower >> half) + upper, f"{name}_from_{low}")
    return Cat(lower[:half], total).as_signed()


def _rows(  # noqa: PLR0913 - two factors, and the place of the rows in their product
    m: Module, x: Value, y: Value, start: int, below: Value, name: str, low: int, addend: Value | None = None
) -> Value:
    """Return the product of ``x`` and the bits of ``y`` from the place ``low``, above the bit ``below``, as one chain.

    With ``start``, the first bit of ``y`` is a row of its own. With an addend, return product plus addend, modulo
    ``2**len(addend)``.
    """
    begun = x[:] & y[0].replicate(len(x)) if start else Const(0, 1)
    begun = begun.as_signed() if start and x.shape().signed else begun
    if addend is not None:
        begun = wire(m, (addend + begun)[: len(addend)], f"{name}_row_{low}") if start else addend
    final = [begun[:start]]
    # The longer factor and its double, with room for either sign.
    width = len(x) + 2 if addend is None else len(addend)
    times_one, times_two = extended(x, width), extended(shifted_up(x, 1), width)
    rest = extended(begun[start:].as_signed() if begun.shape().signed else begun[start:], width)
    for place in range(start, len(y), 2):
        if addend is not None:
            # The last bit of every row has the place of the addend's last bit.
            width = max(len(addend) - place, 0)
            times_one, times_two, rest = times_one[:width], times_two[:width], rest[:width]
        bit = y[place]
        is_last = place == len(y) - 1
        two = Const(0, 1) if is_last else y[place + 1]
        once = times_one & (bit ^ below).replicate(width)
        twice = times_two & Mux(two, ~(bit | below), bit & below).replicate(width)
        multiple = (once | twice) ^ two.replicate(width)
        if is_last:
            total = rest + multiple
        else:
            # The negative of a multiple is its inverse plus one, which enters as carry from the bit below.
            total = (Cat(Const(1, 1), rest) + Cat(two, multiple))[1:]
        total = wire(m, total[:width], f"{name}_row_{low + place}")
        final.append(total[:2])
        rest = extended(total[2:].as_signed(), width) if addend is None else total[2:]
        below = two
    return Cat(*final, rest)
