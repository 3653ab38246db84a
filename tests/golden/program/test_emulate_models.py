"""Emulation of models of other libraries: every operation in the policy's arithmetic, to the bits of references."""

import math
import operator
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from halfulp import golden
from halfulp.golden import exact
from halfulp.golden.function_table import ABOVE_LIMIT, BELOW_LIMIT, FUNCTIONS
from halfulp.golden.program import products
from halfulp.golden.program.site import Site, is_exact_count
from halfulp.hdl.formats import RN

POLICY = "bf16*bf16+fp32.rn, elementwise=bf16.rn, optimizer=bf16.rn"

TINY = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 16, "vocab_size": 20}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _text(model: nn.Module) -> torch.Tensor:
    tokens = torch.randint(20, (2, 4))
    loss: torch.Tensor = model(tokens, labels=tokens).loss
    return loss


def _images(size: int) -> Callable[[nn.Module], torch.Tensor]:
    def loss(model: nn.Module) -> torch.Tensor:
        found: torch.Tensor = model(torch.randn(2, 3, size, size), labels=torch.tensor([0, 1])).loss
        return found

    return loss


def _gpt2() -> nn.Module:
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 20, "n_positions": 8}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **dropout, bos_token_id=0, eos_token_id=0))
    # Without it the model logs a warning, which breaks graphs of torch.compile.
    model.loss_type = "ForCausalLM"
    return model


def _bert() -> nn.Module:
    return transformers.BertForMaskedLM(transformers.BertConfig(**TINY, **QUIET, max_position_embeddings=8))


def _llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, num_key_value_heads=1))


def _t5() -> nn.Module:
    sizes = {"num_layers": 1, "num_heads": 2, "d_model": 8, "d_kv": 4, "d_ff": 16, "vocab_size": 20}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**sizes, dropout_rate=0.0, decoder_start_token_id=0)
    )


def _mamba() -> nn.Module:
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "state_size": 4, "vocab_size": 20}
    # A compiled scan adds in another order, by torch.func.vmap, which compiled programs refuse.
    config = transformers.MambaConfig(**sizes, use_associative_scan=False)
    return transformers.MambaForCausalLM(config)


def _vit() -> nn.Module:
    sizes = {**TINY, **QUIET, "image_size": 8, "patch_size": 4}
    del sizes["vocab_size"]
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))


def _swin() -> nn.Module:
    sizes = {"embed_dim": 4, "depths": [1, 1], "num_heads": [2, 2], "image_size": 16, "patch_size": 2, "window_size": 4}
    return transformers.SwinForImageClassification(transformers.SwinConfig(**sizes, **QUIET, drop_path_rate=0.0))


def _resnet() -> nn.Module:
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic"}
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes))


class Einsum(nn.Module):
    """Functional and einsum products."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(2, 4, 5))
        self.kernel = nn.Parameter(torch.randn(3, 2, 2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute products of matrices, of vectors, and of images."""
        heads = torch.einsum("bi,hij->bhj", x, self.first).softmax(-1)
        grams = torch.einsum("bhj,bkj->bhk", heads, heads)
        images = F.conv2d(heads.unsqueeze(2).expand(-1, -1, 3, -1), self.kernel, stride=(1, 2), padding=1)
        wide = F.conv_transpose2d(images, self.kernel, stride=2)
        return F.linear(grams, grams[0]).sum() + wide.tanh().mean() + (x @ x.T).logsumexp(0).sum()


def _rnn(model: nn.Module) -> torch.Tensor:
    found: torch.Tensor = model(torch.randn(3, 2, 4))[0].square().mean()
    return found


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], torch.Tensor]]] = {
    "gpt2": (_gpt2, _text),
    "bert": (_bert, _text),
    "llama": (_llama, _text),
    "t5": (_t5, _text),
    "mamba": (_mamba, _text),
    "vit": (_vit, _images(8)),
    "swin": (_swin, _images(16)),
    "resnet": (_resnet, _images(32)),
    "lstm": (lambda: nn.LSTM(4, 3, 2, bidirectional=True), _rnn),
    "gru": (lambda: nn.GRU(4, 3), _rnn),
    "einsum": (Einsum, lambda model: model(torch.randn(6, 4))),
}
FAST = ("gpt2", "einsum")


class _Checks:
    """Comparisons of the primitives of a program with their references."""

    def __init__(self) -> None:
        self.products = self.elements = 0

    def product(
        self, a: torch.Tensor, b: torch.Tensor, start: torch.Tensor | None, mac: Any, found: torch.Tensor
    ) -> None:
        """Compare a matrix product with `golden.gemm`."""
        begin = None if start is None else golden.encode(start, mac.o)
        wanted = golden.decode(golden.gemm(golden.encode(a, mac.a), golden.encode(b, mac.b), mac, start=begin), mac.o)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=0, equal_nan=True)
        self.products += 1

    def element(
        self, name: str, cast: Any, operands: tuple[Any, ...], found: torch.Tensor, unrounded: Collection[int]
    ) -> None:
        """Compare some results of an element-wise operation with the scalar reference."""
        fmt = cast.fmt
        wide = torch.broadcast_tensors(*(torch.as_tensor(one) for one in operands))
        for place in {0, found.numel() // 3, found.numel() - 1} if found.numel() else ():
            numbers = [float(one.reshape(-1)[place]) for one in wide]
            codes = [int(golden.encode(one, fmt)) for one in numbers]
            exactly = {at: Fraction(numbers[at]) for at in unrounded}
            wanted = _reference(name, codes, fmt, exactly)
            if wanted is not None:
                value, z = float(fmt.decode(wanted)), float(found.reshape(-1)[place])
                assert z == value or (math.isnan(z) and math.isnan(value)), (name, codes, z, value)
                self.elements += 1


def _reference(name: str, codes: list[int], fmt: Any, exactly: Mapping[int, Fraction]) -> int | None:
    """Return the code of an exact result, rounded once; None without a reference.

    Operands in ``exactly`` are not rounded to the format.
    """
    if name in ("add", "sub") and not exactly:
        return exact.add(*codes, int(name == "sub"), a=fmt, b=fmt, o=fmt)
    if name == "mul" and not exactly:
        return exact.mul(*codes, a=fmt, b=fmt, o=fmt)
    values = [exactly.get(place, fmt.decode(code)) for place, code in enumerate(codes)]
    if not all(isinstance(one, Fraction) and one != 0 for one in values) or name in ("pow", "atan2", "hypot"):
        return None
    with mpmath.workprec(300):
        numbers = [mpmath.mpf(one.numerator) / one.denominator for one in values]
        if name == "div":
            result = Fraction(values[0]) / Fraction(values[1])
        elif name in ("add", "sub", "mul"):
            result = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[name](*values)
        elif name == "sqrt" and values[0] < 0:
            return fmt.nan_code
        elif name in BELOW_LIMIT | ABOVE_LIMIT and abs(values[0]) > 50:
            return None
        else:
            result = _fraction(mpmath.sqrt(*numbers) if name == "sqrt" else FUNCTIONS[name][0](*numbers))
    return None if result is None else fmt.encode(result, RN)


def _fraction(value: Any) -> Fraction | None:
    """Return a number of mpmath; None unless it is real, finite and of moderate size."""
    if not isinstance(value, mpmath.mpf) or not mpmath.isfinite(value) or abs(mpmath.log(abs(value), 2)) > 1000:
        return None
    significand, exponent = value.man_exp
    return (-1 if value < 0 else 1) * significand * Fraction(2) ** exponent


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> _Checks:
    """Compare each primitive of the emulated programs with its reference."""
    found = _Checks()
    multiply, convolve, element = products.matmul, products.convolution, Site.element

    def matmul(call: Any, phase: str, a: Any, b: Any, roles: Any, start: Any = None) -> tuple[torch.Tensor, int]:
        made = multiply(call, phase, a, b, roles, start)
        found.product(a, b, start, getattr(call.policy, phase), made[0])
        return made

    def elements(site: Site, name: str, *operands: Any, exact: tuple[int, ...] = ()) -> torch.Tensor:
        # An operation in place changes its operand.
        given = tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in operands)
        made = element(site, name, *operands, exact=exact)
        cast = site.arithmetic(name)
        assert cast is not None
        counts = [place for place, one in enumerate(operands) if is_exact_count(name, one, cast.fmt)]
        found.element(name, cast, given, made, {*exact, *counts})
        return made

    def convolution(call: Any, x: torch.Tensor, w: torch.Tensor, bias: Any, geometry: Any) -> tuple[torch.Tensor, int]:
        made = convolve(call, x, w, bias, geometry)
        if not geometry.transposed and x.dim() == 4:
            mac = call.policy.forward
            columns = F.unfold(x, w.shape[2:], geometry.dilation, geometry.padding, geometry.stride)
            start = None if bias is None else bias.unsqueeze(-1)
            for group, kernels in enumerate(w.flatten(1).chunk(geometry.groups)):
                rows = slice(group * len(kernels), (group + 1) * len(kernels))
                taken = columns.unflatten(1, (geometry.groups, -1))[:, group]
                begin = None if start is None else start[rows].expand(-1, taken.shape[-1])
                for image, result in zip(taken, made[0].flatten(2), strict=True):
                    found.product(kernels, image, begin, mac, result[rows])
        return made

    monkeypatch.setattr(products, "matmul", matmul)
    monkeypatch.setattr(products, "convolution", convolution)
    monkeypatch.setattr(Site, "element", elements)
    return found


def _step(model: nn.Module, loss: Callable[[nn.Module], torch.Tensor], optimizer: Any = None) -> torch.Tensor:
    torch.manual_seed(2)
    found = loss(model)
    found.backward()
    if optimizer is not None:
        optimizer.step()
    return found.detach()


@pytest.mark.sampled(4, 4)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in MODELS]
)
def test_model_runs_strictly_to_the_bits_of_references(name: str, checks: _Checks) -> None:
    make, loss = MODELS[name]
    torch.manual_seed(1)
    model = make()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(False):
        wanted = _step(model, loss)
    model.zero_grad()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with golden.emulate(POLICY, strict=True) as run:
        found = _step(model, loss, optimizer)
    report = run.report()
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)
    assert report.share == 1
    assert not report.in_torch
    # torch's own counter of floating-point operations sees the same products; it overcounts gradients of convolutions.
    counted = {str(one): count for one, count in counter.get_flop_counts()["Global"].items()}
    for operation in {row.operation for row in report.rows if row.macs} - {"convolution_backward"}:
        macs = sum(row.macs for row in report.rows if row.operation == operation)
        assert 2 * macs == counted.pop(f"aten.{operation}")
    assert counted.keys() <= {"aten.convolution_backward"}
    assert {"forward", "input_gradient", "weight_gradient", "update"} <= {row.phase for row in report.rows}
    assert checks.products > 3
    assert checks.elements > 100
    # Parameters after a step in bf16 are numbers of bf16.
    assert all(torch.equal(one, one.bfloat16().float()) for one in model.parameters())
