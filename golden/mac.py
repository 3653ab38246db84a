"""Multiply-accumulate."""

from torch import Tensor

from halfulp.hdl.formats import EXACT, RN, Format, Rounding, parse
from halfulp.hdl.specs import MacSpec
from halfulp.hdl.specs.quire import CARRY_BITS

from .check import check_call, codes_of, random_of
from .codec import round_and_pack, unpack
from .raw import Raw, multiply
from .sequence import Accumulator, accumulated


def mac(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    acc: Format | str,
    o: Format | str | None = None,
    carry: int = CARRY_BITS,
    product: Format | str | None = None,
    product_rounding: Rounding | str = EXACT,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
) -> Tensor:
    """One step of an accumulator: start + x * y.

    Parameters
    ----------
    x, y : Tensor
        Codes in the formats ``a`` and ``b``.
    start : Tensor
        Codes in the format of the result. Shapes broadcast; what depends on x and y only is computed on theirs.
    a, b, acc : Format or str
        Formats of operands and accumulator; the accumulator ``exact`` is a quire, which is rounded when it is read.
    o : Format or str, optional
        Result format of an exact accumulator, that of ``a`` by default.
    carry : int
        Carry guard of an exact accumulator, in bits.
    product : Format or str, optional
        Format that the product is rounded to before it is added; None keeps it exact.
    product_rounding, rounding : Rounding or str
        Rounding of the product and of the sum.
    saturate : bool
        Overflow gives the largest finite number, in product and accumulator; an infinite operand stays infinite.
    random, random_product : Tensor, optional
        Random words of stochastic rounding, of the sum and of the product.

    Returns
    -------
    Tensor of int64
        Codes in ``acc``, or in ``o``.

    Raises
    ------
    TypeError, ValueError
        If tensors hold no such codes or are on several devices, random words are missing or of no use, or the
        description is none that `MacSpec` accepts.
    """
    check_call(saturate, x=x, y=y, start=start, random=random, random_product=random_product)
    spec = _spec(a, b, acc, o, carry, product, product_rounding, rounding, saturate)
    random = random_of("random", random, spec.rounding)
    term = _term(spec, x, y, random_product)
    return Accumulator.of(spec, saturate).stepped(codes_of("start", start, spec.o.width), term, random)


def _spec(
    a: Format | str,
    b: Format | str,
    acc: Format | str,
    o: Format | str | None,
    carry: int,
    product: Format | str | None,
    product_rounding: Rounding | str,
    rounding: Rounding | str,
    saturate: bool,
) -> MacSpec:
    return MacSpec(
        a=parse(a),
        b=parse(b),
        acc="exact" if acc == "exact" else parse(acc),
        rounding=Rounding.parse(rounding),
        product=None if product is None else parse(product),
        product_rounding=Rounding.parse(product_rounding),
        saturate=saturate,
        o=None if o is None else parse(o),  # type: ignore[arg-type]
        carry=carry,
    )


def _term(spec: MacSpec, x: Tensor, y: Tensor, random_product: Tensor | None) -> Raw:
    word = random_of("random_product", random_product, spec.product_rounding)
    x, y = codes_of("x", x, spec.a.width), codes_of("y", y, spec.b.width)
    return term_of(spec, unpack(x, spec.a), unpack(y, spec.b), word)


def term_of(spec: MacSpec, x: Raw, y: Raw, word: Tensor | None) -> Raw:
    """What a step adds: the product, rounded if it is to be."""
    term = multiply(x, y)
    if spec.product is None:
        return term
    return unpack(round_and_pack(term, spec.product, spec.product_rounding, spec.saturate, word), spec.product)


def mac_sequence(
    x: Tensor,
    y: Tensor,
    start: Tensor,
    load: Tensor,
    clear: Tensor,
    /,
    *,
    a: Format | str,
    b: Format | str,
    acc: Format | str,
    o: Format | str | None = None,
    carry: int = CARRY_BITS,
    product: Format | str | None = None,
    product_rounding: Rounding | str = EXACT,
    rounding: Rounding | str = RN,
    saturate: bool = False,
    random: Tensor | None = None,
    random_product: Tensor | None = None,
) -> Tensor:
    """The accumulator after each of many steps, from reset on.

    Parameters
    ----------
    x, y, start : Tensor
        Codes, as `mac` takes them; one-dimensional, in order of time.
    load, clear : Tensor
        Bools, or codes of one bit. A step adds x * y to ``start`` where ``load``, else to +0 where ``clear``,
        else to the accumulator, which is +0 at first.
    random, random_product : Tensor, optional
        A random word for each step.
    a, b, acc, o, carry, product, product_rounding, rounding, saturate
        As `mac` takes them.

    Returns
    -------
    Tensor of int64
        Codes in ``acc``, or in ``o``, one for each step.

    Raises
    ------
    TypeError, ValueError
        As `mac`, and if the tensors are not one-dimensional and of one length.
    """
    check_call(saturate)
    spec = _spec(a, b, acc, o, carry, product, product_rounding, rounding, saturate)

    def term(at: Tensor) -> Raw:
        return _term(spec, x[at], y[at], None if random_product is None else random_product[at])

    columns = {"x": x, "y": y, "start": start, "random": random, "random_product": random_product}
    return accumulated(columns, load, clear, term, Accumulator.of(spec, saturate))
