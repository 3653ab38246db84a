"""Multiply-accumulate with a registered accumulator."""

from amaranth.hdl import Module, Mux, Signal, unsigned

from halfulp.hdl.formats import EXACT, RN, Format, MacSpec, Rounding, parse
from halfulp.hdl.number import add, align, cut, multiply, pack, unpack

from .base import Unit, check_saturate, random_input


class Mac(Unit):
    """Accumulator that adds one product a step: acc <- round(acc + a * b).

    Parameters
    ----------
    a, b : Format or str
        Operand formats; they may differ.
    acc : Format or str
        Accumulator format.
    product : Format or str, optional
        Format that the product is rounded to before it is added. None keeps it exact: a step then rounds once.
    product_rounding : Rounding or str
        Rounding of the product; ``exact`` needs a product format that holds every product.
    rounding : Rounding or str
        Rounding to the accumulator.
    saturate : bool
        Overflow gives the largest finite number, in product and accumulator; an infinite operand stays infinite.
    pipeline : int
        Register cuts before the accumulator, whose loop stays one cycle long; changes ``latency`` and no result bit.

    Members
    -------
    a : In(a)
    b : In(b)
    c : In(acc)
        Start value.
    load : In(1)
        This step starts from ``c`` instead of the accumulator: a new sum begins without an idle cycle.
    clear : In(1)
        This step starts from +0; ``load`` goes first.
    random : In(rounding.bits)
        Random word of stochastic rounding; sampled with the operands.
    random_product : In(product_rounding.bits)
        Random word of the product's stochastic rounding.
    valid : In(1, init=1)
        Whether there are operands in this cycle; if not, the accumulator keeps its value when their turn comes.
    en : In(1, init=1)
        Clock enable of all registers.
    o : Out(acc)
        The accumulator; +0 after reset.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, a rounding is ``exact`` and its format cannot hold every
        result, or the product is exact and has a rounding.

    Latency
    -------
    ``pipeline + 1`` cycles from operands to the accumulator; a step every cycle.
    """

    stateful = True
    BOUNDARIES = ("unpacked", "product")

    def __init__(
        self,
        *,
        a: Format | str,
        b: Format | str,
        acc: Format | str,
        product: Format | str | None = None,
        product_rounding: Rounding | str = EXACT,
        rounding: Rounding | str = RN,
        saturate: bool = False,
        pipeline: int = 0,
    ) -> None:
        self.spec = MacSpec(
            a=parse(a),
            b=parse(b),
            acc=parse(acc),
            product=None if product is None else parse(product),
            product_rounding=Rounding.parse(product_rounding),
            rounding=Rounding.parse(rounding),
            saturate=check_saturate(saturate),
        )
        spec = self.spec
        rounded_product = f"_{spec.product}_{spec.product_rounding}" if spec.product else ""
        super().__init__(
            inputs={
                "a": spec.a,
                "b": spec.b,
                "c": spec.acc,
                "load": unsigned(1),
                "clear": unsigned(1),
                **random_input(spec.rounding),
                **random_input(spec.product_rounding, "random_product"),
            },
            outputs={"o": spec.acc},
            name=f"mac_{spec.a}_{spec.b}{rounded_product}_{spec.acc}_{spec.rounding}" + ("_sat" if saturate else ""),
            pipeline=pipeline,
            parameters={
                "a": spec.a,
                "b": spec.b,
                "acc": spec.acc,
                "product": spec.product,
                "product_rounding": spec.product_rounding,
                "rounding": spec.rounding,
                "saturate": saturate,
            },
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spec = self.spec
        pipe = self.start_pipeline(m)
        a = unpack(m, self.a.as_value(), spec.a, "a")
        b = unpack(m, self.b.as_value(), spec.b, "b")
        # What the accumulator's turn needs travels with the operands.
        start = self.c.as_value()
        load, clear, valid = self.load, self.clear, self.valid
        random = self.random if spec.rounding.bits else None
        product_random = self.random_product if spec.product_rounding.bits else None

        a, b, product_random, start, load, clear, valid, random = pipe.cut(
            "unpacked", a, b, product_random, start, load, clear, valid, random
        )
        term = multiply(m, a, b)
        if spec.product is not None:
            ready = cut(m, term, spec.product, spec.product_rounding)
            code = pack(m, ready, spec.product, spec.product_rounding, spec.saturate, product_random)
            term = unpack(m, code, spec.product, "rounded_product")
        term, start, load, clear, valid, random = pipe.cut("product", term, start, load, clear, valid, random)

        accumulator = Signal(spec.acc.width)
        base = Signal(spec.acc.width)
        m.d.comb += base.eq(Mux(load, start, Mux(clear, 0, accumulator)))
        aligned = align(m, term, unpack(m, base, spec.acc, "base"), spec.acc, spec.rounding)
        ready = cut(m, add(m, aligned, spec.rounding), spec.acc, spec.rounding)
        with m.If(self.en & valid):
            m.d.sync += accumulator.eq(pack(m, ready, spec.acc, spec.rounding, spec.saturate, random))
        m.d.comb += self.o.as_value().eq(accumulator)
        return m
