"""Where an exact result lies between two codes of a format: what truncation keeps, and what it drops.

This is worked out for itself, and not taken from the golden model's rounding; a test rounds by it and compares.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from halfulp.golden.raw import Raw, mask
from halfulp.golden.wide import Wide
from halfulp.hdl.formats import Fixed, Float, Format, Posit


@dataclass(frozen=True)
class Truncated:
    """Magnitudes cut off to a format.

    Attributes
    ----------
    code : Tensor of int64
        Magnitude code that is kept, the range having no upper end for floats.
    last : Tensor of int64
        Its last bit; of a float without mantissa bits the hidden one.
    seen : Tensor of int64
        The first bits below it.
    sticky : Tensor of bool
        Whether anything is left below these.
    beyond : Tensor of bool
        Whether the truncated magnitude exceeds the largest one of its sign.
    places : int
        How many bits are in ``seen``, at least one.
    """

    code: Tensor
    last: Tensor
    seen: Tensor
    sticky: Tensor
    beyond: Tensor
    places: int

    @property
    def rest(self) -> Tensor:
        """Where what is dropped lies: 0 nothing, 1 below the tie, 2 at it, 3 above it."""
        guard = self.seen >> (self.places - 1)
        below = ((self.seen & mask(self.places - 1)) != 0) | self.sticky
        return 2 * guard + below.to(torch.int64)

    def first_bits(self, negative: Tensor, o: Format) -> Tensor:
        """The first ``places`` bits that are dropped, as stochastic rounding sees them: of fixed point below the floor
        of the number itself."""
        if not isinstance(o, Fixed):
            return self.seen
        return torch.where(negative, -(self.seen + self.sticky), self.seen) & mask(self.places)


def truncate(x: Raw, o: Format, places: int) -> Truncated:
    """Cut the magnitudes of numbers off to a format; of zeros, NaN and infinities anything comes out.

    Parameters
    ----------
    x : Raw
    o : Format
    places : int
        Bits that are told one by one below the last place, at least one.
    """
    # What was cut off before lies below all that is looked at.
    sticky = torch.zeros_like(x.zero) if x.sticky is None else x.sticky
    exponent = torch.where(x.zero, 0, x.exponent)
    leading = torch.where(x.zero, 0, x.leading_zeros)
    significand = x.significand.shift_left(leading)
    match o:
        case Float():
            return _float(exponent - leading, significand, sticky, o, places)
        case Posit():
            return _posit(exponent - leading, significand, sticky, o, places)
        case Fixed():
            return _fixed(exponent - leading, significand, sticky, x.sign, o, places)
    raise TypeError(f"{o} is of no family that coverage is defined for")


def _dropped(bits: Wide, drop: Tensor, places: int) -> tuple[Wide, Tensor, Tensor]:
    """Without the lowest ``drop`` bits, ``places`` or more: what is left, the first dropped, whether any is below."""
    shifted, lost = bits.shift_right(drop - places)
    return shifted.truncated(places), shifted.bits(0, places), lost


def _float(scale: Tensor, significand: Wide, sticky: Tensor, o: Float, places: int) -> Truncated:
    bits = significand.pad(max(o.precision + places - significand.width, 0))
    below = (o.emin - scale).clamp(min=0) if o.subnormals else torch.zeros_like(scale)
    kept, seen, lost = _dropped(bits, bits.width - o.precision + below, places)
    # Without subnormals the codes go on below the smallest normal number as if exponents had no end.
    field = (scale - o.emin).clamp(min=0 if o.subnormals else -2, max=o.emax - o.emin + 2)
    code = (field << o.man) + kept.bits(0, o.precision)
    return Truncated(code, kept.low & 1, seen, lost | sticky, code > o.max_code, places)


def _posit(scale: Tensor, significand: Wide, sticky: Tensor, o: Posit, places: int) -> Truncated:
    inside = scale.clamp(-o.max_scale, o.max_scale - 1)
    k = inside >> o.es
    regime_width = torch.where(k >= 0, k + 2, 1 - k)
    fraction_width = significand.width - 1
    # Exponent and fraction as one string: the hidden bit becomes the exponent's.
    width = o.es + fraction_width + 1
    hidden = Wide.constant(1, width, scale).shift_left(torch.full_like(scale, fraction_width))
    exponent = Wide.of(inside & mask(o.es), width).shift_left(torch.full_like(scale, fraction_width))
    string = (significand.resized(width).minus(hidden, torch.zeros_like(scale)) + exponent).resized(width)
    string = string.pad(o.width + places)
    kept, seen, lost = _dropped(string, string.width - 1 - (o.width - 1 - regime_width), places)
    # Ones from the top down to the zero that ends them, or the one that ends zeros.
    rest = o.width - 1 - regime_width
    one = torch.ones_like(k)
    regime = torch.where(k >= 0, ((one << (k.clamp(min=0) + 1)) - 1) << (rest + 1), one << rest.clamp(min=0))
    code = regime + kept.low64()
    least, most = scale < -o.max_scale, scale >= o.max_scale
    power = significand.equals(
        Wide.constant(1, significand.width, scale).shift_left(torch.full_like(k, fraction_width))
    )
    sure = least | most
    code = torch.where(least, 0, torch.where(most, o.max_code, code))
    return Truncated(
        code=code,
        last=code & 1,
        seen=torch.where(sure, 0, seen),
        sticky=torch.where(sure, least | ~power | sticky, lost | sticky),
        beyond=most & ((scale > o.max_scale) | ~power | sticky),
        places=places,
    )


def _fixed(scale: Tensor, significand: Wide, sticky: Tensor, sign: Tensor, o: Fixed, places: int) -> Truncated:
    # Numbers from 2^end on are beyond the range, and no code is worked out for them.
    end = o.quantum + o.width
    bits = significand.resized(significand.width + o.width + places + 1)
    up = scale - (significand.width - 1) - (o.quantum - places)
    bits, lost = bits.shift_left(up.clamp(0, o.width + places)).shift_right((-up).clamp(min=0))
    code, seen = bits.truncated(places).low64(), bits.bits(0, places)
    if not o.signed:
        beyond = torch.where(sign, (scale >= o.quantum), scale >= end)
    else:
        least = (scale == end - 1) & (code == torch.ones_like(code) << (o.width - 1))
        beyond = (scale >= end - 1) & ~(sign & least)
    return Truncated(code, code & 1, seen, lost | sticky, beyond, places)
