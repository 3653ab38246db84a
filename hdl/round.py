"""The rounding decision, and how far down it looks."""

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
    """Rounding decision of every unit: a truncated number goes up by one unit in the last place, or stays.

    The number is a magnitude, or the floor of a two's-complement number.

    Parameters
    ----------
    negative : Value
        Sign of the number.
    last : Value
        Last bit kept.
    discarded : Value
        Bits below it, the first one on top. Missing places are zeros.
    sticky : Value
        Something is below ``discarded``.
    random : Value, optional
        Random word of a stochastic rounding.
    twos_complement : bool
        The number is a floor: then up is toward plus infinity.
    """
    if rounding.mode == "sr":
        assert random is not None
        seen = min(rounding.bits, len(discarded))
        # Only the upper bits of the word can carry where fewer bits than it has are discarded.
        if seen == 0:
            return NEVER
        return carry_out(discarded[len(discarded) - seen :], random[rounding.bits - seen :])
    inexact = discarded.any() | sticky
    first = discarded[-1] if len(discarded) else NEVER
    below_first = discarded[:-1].any() | sticky if len(discarded) else sticky
    if twos_complement:
        # Above the floor of a negative number, away from zero is down and toward zero is up.
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
        # Up from an even number is what setting the last bit does.
        "ro": inexact & ~last,
        "exact": NEVER,
        **directed,
    }[rounding.mode]
