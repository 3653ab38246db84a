"""Order, magnitude and sign of codes in hardware, derived only from the descriptor of the format."""

from amaranth.hdl import Array, Cat, Const, Mux, Value

from halfulp.hdl.formats import Format


def is_nan(fmt: Format, bits: Value) -> Value:
    """Return 1 for NaN codes, including NaR."""
    if not fmt.has_nan:
        return Const(0, 1)
    if fmt.code_order == "table":
        return Array(Const(value != value, 1) for value in fmt.values)[bits]
    ones, above = (1 << (fmt.width - 1)) - 1, fmt.max_code + fmt.has_inf
    if fmt.code_order == "sign-magnitude" and fmt.nan_code & ones > above:
        return bits[:-1] > above
    return bits == fmt.nan_code


def rank(fmt: Format, bits: Value) -> Value:
    """Return a signed integer with the order of the numbers; both zeros are equal."""
    match fmt.code_order:
        case "sign-magnitude":
            return Mux(bits[-1], -bits[:-1], bits[:-1]).as_signed()
        case "unsigned":
            return Cat(bits, Const(0, 1)).as_signed()
        case "two's complement":
            return bits.as_signed()
    ranks = (fmt.rank(code) or 0 for code in range(1 << fmt.width))
    return Array(Const(place, fmt.width + 1).as_signed() for place in ranks)[bits]


def magnitude(fmt: Format, bits: Value) -> Value:
    """Return an unsigned integer with the order of magnitudes; a NaN from overflow is above every number."""
    match fmt.code_order:
        case "sign-magnitude":
            return bits[:-1]
        case "unsigned":
            return bits
        case "two's complement":
            return Mux(bits[-1], -bits, bits)[: fmt.width]
    ranks = [fmt.rank(code) for code in range(1 << fmt.width)]
    top = 1 << fmt.width
    places = (top if place is None else abs(place) for place in ranks)
    return Array(Const(place, fmt.width + 1) for place in places)[bits]


def negated(fmt: Format, bits: Value) -> Value:
    """Return the code of the negated number; NaN keeps its code. Raises ValueError if the format is not symmetric."""
    if not fmt.is_symmetric:
        raise ValueError(f"{fmt} is not symmetric: some number has no negative that rounds alike")
    match fmt.code_order:
        case "sign-magnitude":
            zero_stays = ~bits[:-1].any() & Const(int(not fmt.has_negative_zero), 1)
            return Cat(bits[:-1], bits[-1] ^ ~(is_nan(fmt, bits) | zero_stays))
        case "two's complement":
            return (-bits)[: fmt.width]
    return Array(Const(fmt.negated(code), fmt.width) for code in range(1 << fmt.width))[bits]


def is_negative(fmt: Format, bits: Value) -> Value:
    """Return 1 for negative numbers."""
    return rank(fmt, bits) < 0


def is_zero(fmt: Format, bits: Value) -> Value:
    """Return 1 for codes of zero."""
    return (rank(fmt, bits) == 0) & ~is_nan(fmt, bits)
