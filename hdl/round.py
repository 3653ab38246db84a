"""The rounding decision of all units."""

from dataclasses import dataclass, field

from amaranth.hdl import Cat, Const, Mux, Value

from .formats import Rounding, Saturation
from .wire import NEVER, carry_out, never


@dataclass(frozen=True, eq=False)
class ChosenRounding(Rounding):
    """Rounding whose mode is chosen by a signal.

    Parameters
    ----------
    code : Value
        Code of the mode, see `Rounding.choices`.
    """

    code: Value = field(default_factory=never)

    def is_mode(self, mode: str) -> Value:
        """Return True if the signal chooses a mode."""
        codes = [code for code, choice in enumerate(self.choices) if choice.mode == mode]
        return self.code.matches(*codes) if codes else NEVER


@dataclass(frozen=True, eq=False)
class ToInfinity(Rounding):
    """Rounding whose overflow is an infinity in every mode."""

    @property
    def overflows_to_largest(self) -> tuple[bool, bool]:
        return False, False


@dataclass(frozen=True, eq=False)
class OfFloor(Rounding):
    """Rounding of a number that is rounded down first.

    Parameters
    ----------
    kept : int
        Number of discarded bits that the floor has.
    """

    kept: int = 1

    @property
    def places(self) -> int:
        return self.kept


@dataclass(frozen=True)
class Flags:
    """Exception flags of a rounding.

    Attributes
    ----------
    inexact, underflow, overflow : Value
    lost_nan, lost_inf : Value
        The number is NaN or infinite, and the format has no code for it; or it is beyond an integer's range.
    """

    inexact: Value
    underflow: Value
    overflow: Value
    lost_nan: Value
    lost_inf: Value


def chosen_by(rounding: Rounding, code: Value | None) -> Rounding:
    """Return a rounding with the signal that chooses its mode, if a port chooses it."""
    if code is None:
        return rounding
    return ChosenRounding(rounding.mode, rounding.bits, rounding.guard, code=code)


def to_largest(rounding: Rounding, negative: Value, saturating: Saturation) -> Value:
    """Return True if an overflow gives the largest finite magnitude."""
    if isinstance(rounding, ChosenRounding) and not saturating:
        by_sign = Mux(negative, rounding.is_mode("ru"), rounding.is_mode("rd"))
        return rounding.is_mode("rz") | rounding.is_mode("ro") | by_sign
    of_positive, of_negative = (True, True) if saturating else rounding.overflows_to_largest
    return Mux(negative, int(of_negative), int(of_positive))


def cancelled_sign(rounding: Rounding, any_negative: Value, all_negative: Value) -> Value:
    """Return the sign of a sum that is zero: negative if all terms are, and under ``rd`` if one is."""
    if isinstance(rounding, ChosenRounding):
        return all_negative | (any_negative & rounding.is_mode("rd"))
    return any_negative if rounding.mode == "rd" else all_negative


@dataclass(frozen=True)
class RoundingBits:
    """Bits that decide the rounding of a truncated number.

    The truncated number is a magnitude, or the floor of a two's-complement number.

    Attributes
    ----------
    negative : Value
        Sign of the number.
    last : Value
        Last bit of the truncated number.
    discarded : Value
        Bits below ``last``, first one at the top; missing bits are zeros.
    sticky : Value
        OR of the bits below ``discarded``.
    twos_complement : bool
        True if the number is a floor; rounding up is then toward plus infinity.
    complement : Value, optional
        True if the discarded bits are those of the two's complement of the magnitude, and the truncated number is the
        inverse of its upper bits. The decision includes the carry of the negation.
    """

    negative: Value
    last: Value
    discarded: Value
    sticky: Value
    twos_complement: bool = False
    complement: Value | None = None

    @property
    def first(self) -> Value:
        """First discarded bit."""
        return self.discarded[-1] if len(self.discarded) else NEVER

    @property
    def below_first(self) -> Value:
        """OR of the bits below the first discarded one."""
        return self.discarded[:-1].any() | self.sticky if len(self.discarded) else self.sticky


def round_up(rounding: Rounding, bits: RoundingBits, random: Value | None) -> Value:
    """Return the rounding decision: True adds one unit in the last place to a truncated number.

    ``random`` is the random word of a stochastic rounding.
    """
    if isinstance(rounding, ChosenRounding):
        return _chosen_up(rounding, bits, random)
    if bits.complement is not None:
        return _of_complement(rounding, bits, bits.complement, random)
    if rounding.mode == "sr":
        assert random is not None
        seen = min(rounding.bits, len(bits.discarded))
        # If fewer bits are discarded than the random word has, only its upper bits can produce a carry.
        if seen == 0:
            return NEVER
        return carry_out(bits.discarded[len(bits.discarded) - seen :], random[rounding.bits - seen :])
    return _decision(rounding, bits, bits.first, bits.below_first)


def _chosen_up(rounding: ChosenRounding, bits: RoundingBits, random: Value | None) -> Value:
    """Return the decision of the mode that a signal chooses.

    All modes without random words share one function of three bits of the number, and of three bits that depend only on
    the mode and the sign.
    """
    negative, first, below_first = bits.negative, bits.first, bits.below_first
    carry: Value = NEVER
    if bits.complement is not None:
        # As in `_of_complement`.
        carry = is_exact(bits.discarded, bits.sticky) & bits.complement
        first = first ^ (bits.complement & below_first)
    nearest = rounding.is_mode("rn") | rounding.is_mode("ra")
    tie_up = rounding.is_mode("ra") & ~negative if bits.twos_complement else rounding.is_mode("ra")
    away = rounding.is_mode("ru") if bits.twos_complement else rounding.is_mode("ru") & ~negative
    away = away | ((rounding.is_mode("rz") if bits.twos_complement else rounding.is_mode("rd")) & negative)
    away = away | (rounding.is_mode("ro") & ~bits.last)
    tie_up = tie_up | (rounding.is_mode("rn") & bits.last)
    up = carry | (nearest & first & (below_first | tie_up)) | (away & (first | below_first))
    if not rounding.bits:
        return up
    return Mux(rounding.is_mode("sr"), round_up(Rounding("sr", rounding.bits), bits, random), up)


def _of_complement(rounding: Rounding, bits: RoundingBits, complement: Value, random: Value | None) -> Value:
    """Return the decision for a magnitude whose two's complement is truncated.

    Its negation carries into the truncated number if all discarded bits are zero, and then the number is exact.
    """
    discarded, sticky = bits.discarded, bits.sticky
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
    below_first = bits.below_first
    # Bits below the first one are zero before negation if they are zero after it.
    first = bits.first ^ (complement & below_first)
    return carry | _decision(rounding, bits, first, below_first)


def is_exact(discarded: Value, sticky: Value) -> Value:
    """Return True if all discarded bits are zero."""
    return ~(discarded.any() | sticky)


def _decision(rounding: Rounding, bits: RoundingBits, first: Value, below_first: Value) -> Value:
    """Return the decision of a mode without random words, from the first discarded bit and the OR of those below."""
    negative, last, inexact = bits.negative, bits.last, first | below_first
    if bits.twos_complement:
        # Above the floor of a negative number, up is toward zero and down is away from zero.
        directed = {
            "ra": first & (below_first | ~negative),
            "rh": first & (below_first | negative),
            "rhu": first,
            "rhd": first & below_first,
            "rz": inexact & negative,
            "ru": inexact,
            "rd": NEVER,
        }
    else:
        directed = {
            "ra": first,
            "rh": first & below_first,
            "rhu": first & (below_first | ~negative),
            "rhd": first & (below_first | negative),
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


def round_outward(rounding: Rounding, bits: RoundingBits, random: Value | None, *, floors: bool) -> Value:
    """Return the decision to add one to a truncated magnitude; with ``floors`` the floor of the number is rounded."""
    if not floors:
        return round_up(rounding, bits, random)
    negative, discarded, sticky = bits.negative, bits.discarded, bits.sticky
    inexact = discarded.any() | sticky
    # For negative numbers the floor is the outer neighbour, and the distance from it is one minus the discarded part.
    turned = (~discarded + ~sticky)[: len(discarded)]
    of_floor = RoundingBits(
        negative=negative,
        last=bits.last ^ (negative & inexact),
        discarded=Mux(negative, turned, discarded)[: len(discarded)],
        sticky=sticky,
        twos_complement=True,
    )
    up = round_up(rounding, of_floor, random)
    return Mux(negative, inexact & ~up, up)
