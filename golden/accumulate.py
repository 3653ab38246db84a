"""Accumulation without a multiplier."""

from torch import Tensor

from halfulp.hdl.formats import RN, Format, Rounding, parse
from halfulp.hdl.specs import SumSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .check import check_call, codes_of, random_of
from .codec import unpack
from .raw import Raw
from .sequence import Accumulator, accumulated


def accumulate(
    x: Tensor,
    start: Tensor,
    /,
    *,
    a: Format | str,
    acc: Format | str,
    o: Format | str | None = None,
    carry: int = CARRY_BITS,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """One step of an accumulator: start + x.

    Parameters
    ----------
    x : Tensor
        Codes in the format ``a``.
    start : Tensor
        Codes in the format of the result; shapes broadcast.
    a, acc : Format or str
        Formats of operand and accumulator; the accumulator ``exact`` is a quire, which is rounded when it is read.
    o : Format or str, optional
        Result format of an exact accumulator, that of ``a`` by default.
    carry : int
        Carry guard of an exact accumulator, in bits.
    rounding : Rounding or str
    saturate : bool
        Overflow gives the largest finite number; an infinite operand stays infinite.
    random : Tensor, optional
        Random words of stochastic rounding.

    Returns
    -------
    Tensor of int64
        Codes in ``acc``, or in ``o``.

    Raises
    ------
    TypeError, ValueError
        If tensors hold no such codes or are on several devices, random words are missing or of no use, or
        ``rounding`` is ``exact`` and the result format cannot hold every sum.
    """
    check_call(saturate, x=x, start=start, random=random)
    spec = _spec(a, acc, o, carry, rounding)
    random = random_of("random", random, spec.rounding)
    term = unpack(codes_of("x", x, spec.a.width), spec.a)
    return Accumulator.of(spec, saturate).stepped(codes_of("start", start, spec.o.width), term, random)


def accumulate_sequence(
    x: Tensor,
    start: Tensor,
    load: Tensor,
    clear: Tensor,
    /,
    *,
    a: Format | str,
    acc: Format | str,
    o: Format | str | None = None,
    carry: int = CARRY_BITS,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
) -> Tensor:
    """The accumulator after each of many steps, from reset on.

    Parameters
    ----------
    x, start : Tensor
        Codes, as `accumulate` takes them; one-dimensional, in order of time.
    load, clear : Tensor
        Bools, or codes of one bit. A step adds x to ``start`` where ``load``, else to +0 where ``clear``, else to the
        accumulator, which is +0 at first.
    random : Tensor, optional
        A random word for each step.
    a, acc, o, carry, rounding, saturate
        As `accumulate` takes them.

    Returns
    -------
    Tensor of int64
        Codes in ``acc``, or in ``o``, one for each step.

    Raises
    ------
    TypeError, ValueError
        As `accumulate`, and if the tensors are not one-dimensional and of one length.
    """
    check_call(saturate)
    spec = _spec(a, acc, o, carry, rounding)

    def term(at: Tensor) -> Raw:
        return unpack(codes_of("x", x[at], spec.a.width), spec.a)

    columns = {"x": x, "start": start, "random": random}
    return accumulated(columns, load, clear, term, Accumulator.of(spec, saturate))


def _spec(a: Format | str, acc: Format | str, o: Format | str | None, carry: int, rounding: Rounding | str) -> SumSpec:
    return SumSpec(
        a=parse(a),
        acc="exact" if acc == "exact" else parse(acc),
        rounding=Rounding.parse(rounding),
        o=None if o is None else parse(o),  # type: ignore[arg-type]
        carry=carry,
    )
