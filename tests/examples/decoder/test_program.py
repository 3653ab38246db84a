"""The microprogram, run by the golden models of the units, gives the bits of the model."""

import pytest
import torch

from examples.decoder.arithmetic import Arithmetic
from examples.decoder.model import Decoder, Shape, generate, products, steps
from examples.decoder.program import Op, Operands, Program
from examples.decoder.run import POLICY
from halfulp import golden

SHAPE = Shape(layers=1, width=8, heads=2, context=6, vocabulary=12)
LANES = 2


class Interpreter:
    """Program on tensors: the vector memory in real numbers, and matrices that products round anew."""

    def __init__(self, model, arithmetic):
        self.arithmetic = arithmetic
        modules = products(model.shape)
        self.program = Program(model.shape, LANES, arithmetic.operands(modules))
        self.policies = [arithmetic.of(name) for name in modules]
        self.numbers = [self.program.operands[name].number for name in modules]
        places, self.vectors = self.program.vectors.places, torch.zeros(self.program.vectors.size)
        self.weights = {}
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        vectors = {"eps": torch.tensor([model.norm.eps]), "scale": torch.tensor([model.shape.head**-0.5])}
        vectors |= {name: parameters.pop(f"{name}.weight").reshape(-1) for name in ("tokens", "positions")}
        for name, parameter in parameters.items():
            if parameter.dim() == 1:
                vectors[name] = parameter
            else:
                self.weights[self.program.matrices.places[name]] = parameter.mT
        for name, vector in vectors.items():
            self.vectors[places[name] : places[name] + len(vector)] = vector
        self.stored, self.operand = {}, None

    def value(self, number):
        """Return an address or a length for the current token."""
        index = number.index
        if index is None:
            return number.base
        source = self.token if index.source == "token" else self.position
        return number.base + source // index.divisor % index.modulus * index.factor

    def elements(self, each, name):
        """Return the elements of an operand."""
        step = getattr(each, f"{name}_step")
        start, places = self.value(getattr(each, name)), torch.arange(self.value(each.count))
        return self.vectors[start + step * places]

    def run(self, token, position):
        """Return the logits after a token."""
        self.token, self.position = token, position
        for each in self.program.instructions:
            to = self.value(each.to)
            if each.op is Op.SEND:
                return self.elements(each, "x")
            if each.op is Op.STORE:
                # The matrix has all of its columns, by lane and address.
                for row in range(self.value(each.rows)):
                    start = self.value(each.x) + row * each.x_row
                    lane = self.value(each.lane) + row
                    address = to + lane // LANES * each.to_row
                    for element in range(self.value(each.count)):
                        number = self.vectors[start + element * each.x_step]
                        self.stored[lane % LANES, address + element] = float(number)
            elif each.op is Op.OPERAND:
                self.operand = self.elements(each, "x")
            elif each.op is Op.PRODUCT:
                sums = self.product(each)
                self.vectors[to : to + len(sums)] = sums
            elif each.op is not Op.TAKE:
                results = self.element(each)
                self.vectors[to : to + len(results)] = results
        raise AssertionError("the program sends nothing")

    def product(self, each):
        matrix, count = self.weights.get(each.x.base), self.value(each.count)
        if matrix is None:
            start = self.value(each.x)
            columns = [
                [self.stored.get((lane, start + row * each.x_row + step), 0.0) for step in range(count)]
                for row in range(self.value(each.rows))
                for lane in range(LANES)
            ]
            matrix = torch.tensor(columns).mT
        with golden.emulate(self.policies[self.numbers.index(each.operands)]):
            return (self.operand[None] @ matrix)[0]

    def element(self, each):
        x, y = self.elements(each, "x"), self.elements(each, "y")
        with golden.emulate(self.arithmetic.policy, strict=True):
            return {
                Op.ADD: lambda: x + y,
                Op.SUB: lambda: x - y,
                Op.MUL: lambda: x * y,
                Op.DIV: lambda: x / y,
                Op.MEAN: lambda: x / SHAPE.width,
                Op.RSQRT: x.rsqrt,
                Op.EXP: x.exp,
                Op.GELU: lambda: torch.nn.functional.gelu(x),
                Op.SUM: lambda: x.sum(0, keepdim=True),
                Op.MAX: lambda: x.amax(0, keepdim=True),
            }[each.op]()


BY_LAYER = """
[layers."head"]
mac = "bf16*bf16+fp32.rn"
[layers."*.attention"]
mac = "e5m2*e5m2+fp16.rn"
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("layers", "formats"), [("", 1), (BY_LAYER, 3)])
def test_program_gives_bits_of_model_beyond_the_context(layers, formats, tmp_path):
    torch.manual_seed(1)
    path = tmp_path / "policy.toml"
    path.write_text(POLICY.read_text() + layers)
    model, arithmetic = Decoder(SHAPE).eval(), Arithmetic.read(path)
    assert len(arithmetic.products(products(SHAPE))) == formats
    with golden.emulate(arithmetic.rules, strict=True):
        tokens, logits = generate(model.stepper(), SHAPE.context, [3], SHAPE.context + 1)
    own_tokens, own_logits = generate(Interpreter(model, arithmetic).run, SHAPE.context, [3], SHAPE.context + 1)
    assert own_tokens == tokens
    assert torch.equal(own_logits.view(torch.int32), logits.view(torch.int32))


def test_decoder_reads_last_half_of_the_context_again():
    begin = [(0, 0), (1, 1), (2, 2), (3, 3)]
    again = [(2, 0), (3, 1), (4, 2), (5, 3), (4, 0), (5, 1), (6, 2)]
    assert list(steps(7, 4)) == begin + again
    assert list(steps(3, 4)) == begin[:3]
    assert list(steps(5, 3)) == [(0, 0), (1, 1), (2, 2), (2, 0), (3, 1), (4, 2)]
    assert list(steps(3, 1)) == [(0, 0), (1, 0), (2, 0)]


def test_program_rejects_sizes():
    for shape, lanes, block, word in (
        (Shape(width=48), 8, 1, "power of two, not 48"),
        (Shape(width=16), 16, 1, "fewer lanes"),
        (Shape(), 8, 24, "block"),
    ):
        with pytest.raises(ValueError, match=word):
            Program(shape, lanes, dict.fromkeys(products(shape), Operands(block=block)))
