"""The rounding decision of all units."""

from amaranth.hdl import Cat, Const, Value

from .formats import Rounding
from .wire import NEVER, carry_out


def round_up(
    rounding: Rounding,
    *,
    negative: Value,
    last: Value,
    discarded: Value,
    sticky: Value,
    random: Value | None,
    twos_complement: bool = False,
    complement: Value | None = None,
) -> Value:
    """Return the rounding decision: True adds one unit in the last place to a truncated number.

    The truncated number is a magnitude, or the floor of a two's-complement number.

    Parameters
    ----------
    negative : Value
        Sign of the number.
    last : Value
        Last bit of the truncated number.
    discarded : Value
        Bits below ``last``, first one at the top; missing bits are zeros.
    sticky : Value
        OR of the bits below ``discarded``.
    random : Value, optional
        Random word of a stochastic rounding.
    twos_complement : bool
        True if the number is a floor; rounding up is then toward plus infinity.
    complement : Value, optional
        True if the discarded bits are those of the two's complement of the magnitude, and the truncated number is the
        inverse of its upper bits. The decision includes the carry of the negation.
    """
    if complement is not None:
        return _of_complement(rounding, negative, last, discarded, sticky, random, complement)
    if rounding.mode == "sr":
        assert random is not None
        seen = min(rounding.bits, len(discarded))
        # If fewer bits are discarded than the random word has, only its upper bits can produce a carry.
        if seen == 0:
            return NEVER
        return carry_out(discarded[len(discarded) - seen :], random[rounding.bits - seen :])
    first = discarded[-1] if len(discarded) else NEVER
    below_first = discarded[:-1].any() | sticky if len(discarded) else sticky
    return _decision(rounding, negative, last, first, below_first, twos_complement)


def _of_complement(
    rounding: Rounding,
    negative: Value,
    last: Value,
    discarded: Value,
    sticky: Value,
    random: Value | None,
    complement: Value,
) -> Value:
    """Return the decision for a magnitude whose two's complement is truncated.

    Its negation carries into the truncated number if all discarded bits are zero, and then the number is exact.
    """
    carry = is_exact(discarded, sticky) & complement
    if rounding.mode == "sr":
        assert random is not None
        seen = min(rounding.bits, len(discarded))
        if seen == 0:
            return carry
        start = len(discarded) - seen
        below = discarded[:start].any() | sticky
        inverted = discarded[start:] ^ complement.replicate(seen)
        # The carry of the negation enters as a bit below both words.
        return carry_out(Cat(complement & ~below, inverted), Cat(Const(1, 1), random[rounding.bits - seen :]))
    first = discarded[-1] if len(discarded) else NEVER
    below_first = discarded[:-1].any() | sticky if len(discarded) else sticky
    # Bits below the first one are zero before negation if they are zero after it.
    first = first ^ (complement & below_first)
    return carry | _decision(rounding, negative, last, first, below_first, False)


def is_exact(discarded: Value, sticky: Value) -> Value:
    """Return True if all discarded bits are zero."""
    return ~(discarded.any() | sticky)


def _decision(
    rounding: Rounding, negative: Value, last: Value, first: Value, below_first: Value, twos_complement: bool
) -> Value:
    """Return the decision of a mode without random words, from the first discarded bit and the OR of those below."""
    inexact = first | below_first
    if twos_complement:
        # Above the floor of a negative number, up is toward zero and down is away from zero.
        directed = {"ra": first & (below_first | ~negative), "rh": first & (below_first | negative)}
        directed |= {"rz": inexact & negative, "ru": inexact, "rd": NEVER}
    else:
        directed = {
            "ra": first,
            "rh": first & below_first,
            "rz": NEVER,
            "ru": inexact & ~negative,
            "rd": inexact & negative,
        }
    return {
        "rn": first & (below_first | last),
        # Setting the last bit of an even number is rounding up.
        "ro": inexact & ~last,
        "exact": NEVER,
        **directed,
    }[rounding.mode]
