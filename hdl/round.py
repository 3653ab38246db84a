"""The rounding decision of all units."""

from amaranth.hdl import Value

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
    """
    if rounding.mode == "sr":
        assert random is not None
        seen = min(rounding.bits, len(discarded))
        # If fewer bits are discarded than the random word has, only its upper bits can produce a carry.
        if seen == 0:
            return NEVER
        return carry_out(discarded[len(discarded) - seen :], random[rounding.bits - seen :])
    inexact = discarded.any() | sticky
    first = discarded[-1] if len(discarded) else NEVER
    below_first = discarded[:-1].any() | sticky if len(discarded) else sticky
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
