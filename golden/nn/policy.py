"""Policies: the arithmetic of layers."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from halfulp.golden.check import check_bool
from halfulp.golden.operators import Operator, operator
from halfulp.golden.products.approximate import check as check_operators
from halfulp.golden.products.blocks import is_block_mac
from halfulp.golden.tiles import check_four_over_six
from halfulp.golden.zeros import difference_format
from halfulp.hdl.formats import Fixed, Float
from halfulp.hdl.formats.checks import did_you_mean
from halfulp.hdl.specs import BlockMacSpec, MacSpec, SparseMacSpec
from halfulp.hdl.specs.mma import MmaSpec

from .cast import Cast, parse_element, parse_rounding, parse_update
from .elementwise import ARITHMETIC, Elementwise
from .product import DEVICES, PRODUCTS
from .reduction import Reduction
from .rotation import Rotation

FLOAT = "fp32"
"""Text for torch's own arithmetic in place of a multiply-accumulate."""

PLAIN = Cast()
"""Default rounding of tensors: to nearest, to the operand or accumulator format."""

MAX_AFFINE = 52
"""Largest width of integers with zero points, whose differences binary64 holds."""

MAX_GROUP = 28
"""Largest precision of numbers in groups: products of their differences and factors of binary32 fit in binary64."""

Product = MacSpec | BlockMacSpec | MmaSpec
"""Descriptions of the steps of products."""

_COMMA = re.compile(r",(?![^()]*\))")
"""Comma that is not in the text of a block, such as ``block(e2m1fn,32,e8m0fnu,floor)``."""

_CASTS = ("weights", "activations", "gradients", "bias")

_OPERANDS = {
    "forward": ("activations", "weights"),
    "input_gradient": ("gradients", "weights"),
    "weight_gradient": ("gradients", "activations"),
}
"""Roundings of the operands of each product."""

PROGRAM = ("elementwise", "functions", "reductions", "normalisation", "optimizer")
"""Parts for operations outside layers, which `halfulp.golden.emulate` computes."""

_KINDS = """
    batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
    _native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_with_update_functional _batch_norm_no_update
    native_layer_norm native_group_norm _fused_rms_norm
"""

NORMALISATIONS = frozenset(f"aten.{name}{end}" for name in _KINDS.split() for end in ("", "_backward"))
"""Compositions of torch that normalise: over the batch, a layer or groups of channels."""

LAYERS: tuple[type[nn.Module], ...] = (
    *(nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.SyncBatchNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)
"""Layers of torch that normalise, of which some run as separate operations."""


@dataclass(frozen=True)
class Policy:
    """Arithmetic of a layer: multiply-accumulates of its products and roundings of its tensors.

    Parameters
    ----------
    forward : MacSpec, BlockMacSpec, MmaSpec or str, optional
        Multiply-accumulate of the layer's result, or matrix unit: ``a`` are activations, ``b`` weights. None or
        the text ``fp32`` is torch's own arithmetic, here and for the gradients.
    input_gradient : MacSpec, BlockMacSpec or str, optional
        Multiply-accumulate of the input gradient: ``a`` are gradients, ``b`` weights.
    weight_gradient : MacSpec, BlockMacSpec or str, optional
        Multiply-accumulate of the gradients of weights and bias: ``a`` are gradients, ``b`` activations.
    weights, activations, gradients, bias : Cast or str
        Roundings of these tensors: ``rn`` rounds to nearest, to the operand format; ``e5m2.sr3`` rounds stochastically
        to e5m2 first. The bias is rounded to the result format, because sums start from it. ``weights=2:4`` prunes: of
        4 consecutive elements the 2 with the largest magnitudes stay (see Notes).
    hadamard : Rotation, int or str, optional
        Random Hadamard rotation of operands along the sums: ``16`` rotates groups of 16 elements in all products,
        ``16 weight_gradient`` in one of them; see `Rotation`.
    update : Cast or str, optional
        Format and rounding of parameters after each step of the optimiser, such as ``e6m5.sr10``; see `WeightUpdate`.
        With a sparsity the step changes N of M consecutive elements only.
    master : bool
        The optimiser updates a copy of the parameters that is not rounded.
    device : str, optional
        ``rtl``: the Verilated kernel of an array computes the products, with the same result bits. It is slow, and
        needs an import of `halfulp.fpga.kernel.layers`. With stochastic rounding its random words differ from those of
        the golden layer (see `halfulp.fpga.kernel.layers.expected`). ``card``: the kernels of an Alveo card, after an
        import of `halfulp.fpga.kernel.card`. Others are registered by `register_device`.
    multiplier, adder : str, optional
        Operators of users (`halfulp.golden.register_operator`) in the products, as for `halfulp.golden.gemm`; sums of
        the gradients of a bias are of exact products with 1.
    elementwise : Elementwise, Cast or str, optional
        Format and rounding of element-wise operations of a program: operands are rounded to the format, and the exact
        result is rounded once. Default: torch's own arithmetic. This part and the next four are for
        `halfulp.golden.emulate`. ``bf16.rn; mul=NAME`` replaces products of elements by an operator of a user.
    functions : Elementwise, Cast or str, optional
        The same for functions such as the exponential; default: ``elementwise``. ``tanh=pwl tanh(fxp4.12) pieces=3``
        replaces a function by a piecewise linear unit, in modules, functions, recurrent cells and compositions.
    reductions : Reduction or str, optional
        Sums over elements; default: sequential, in the accumulator of the products.
    normalisation : Cast or str, optional
        Format and rounding of all operations of batch, layer, group, instance and root-mean-square normalisation, as
        functions and layers of torch, sums and functions included;
        default: ``elementwise``, ``functions`` and ``reductions``.
    optimizer : Cast or str, optional
        Arithmetic of all operations in the step of an optimiser; default: torch's own.

    Raises
    ------
    TypeError, ValueError
        If a parameter is invalid, or ``master`` is given without ``update``.

    Notes
    -----
    ``str()`` returns the multiply-accumulate of all products, such as ``e5m2*e5m2+e6m5.sr10``, or one for each, then
    the other parameters that differ from their defaults: ``e5m2*e5m2+e6m5.rn, weights=e5m2.sr3``. `Policy.parse`
    reads this text.

    Operands in blocks, as of ``mxfp8_e4m3*mxfp8_e5m2+fp32.rn``, are quantized along the sums of each product, so that a
    tensor has other blocks in its gradient products. The rounding of a cast is then that of the elements:
    ``nvfp4*nvfp4+fp32.rn, gradients=sr8`` rounds gradients stochastically. If the scale of a block is a float with
    less range than binary32, as of nvfp4, a tensor has a scale in binary32, too, from its largest magnitude
    (``tensor="max"`` of `halfulp.golden.quantize_blocks`). In convolutions, sums run over the channels and places of
    the kernel.

    Sparsity runs along the sums of a product, as sparse arrays have it. Weights and activations are pruned along the
    sums of the forward product, in convolutions along the channels at each place of the kernel, and their gradient
    products have the same pruned operands. Gradients are pruned along the sums of each product: outputs or channels in
    the input gradient, rows of the batch (images and their points) in the weight gradient. A mask is made from the
    tensor before rounding at each use, and tensors stay dense: the gradients of masked elements are those of the pruned
    ones (straight-through; Zhou et al., ICLR 2021, SR-STE without its decay term).
    """

    forward: Product | None = None
    input_gradient: Product | None = None
    weight_gradient: Product | None = None
    weights: Cast = PLAIN
    activations: Cast = PLAIN
    gradients: Cast = PLAIN
    bias: Cast = PLAIN
    hadamard: Rotation | None = None
    update: Cast | None = None
    master: bool = False
    device: str | None = None
    multiplier: str | None = None
    adder: str | None = None
    elementwise: Elementwise | None = None
    functions: Elementwise | None = None
    reductions: Reduction | None = None
    normalisation: Cast | None = None
    optimizer: Cast | None = None

    def __post_init__(self) -> None:
        readers: dict[str, Callable[[Any], Any]] = dict.fromkeys(PRODUCTS, _mac) | dict.fromkeys(_CASTS, Cast.parse)
        readers["bias"] = parse_rounding
        optional: dict[str, Callable[[Any], Any]] = {
            "hadamard": Rotation.parse,
            "update": parse_update,
            "elementwise": Elementwise.parse,
            "functions": Elementwise.parse,
            "reductions": Reduction.parse,
            "normalisation": parse_element,
            "optimizer": parse_element,
        }
        readers |= {name: read for name, read in optional.items() if getattr(self, name) is not None}
        for name, read in readers.items():
            with prefixed(name):
                object.__setattr__(self, name, read(getattr(self, name)))
        self._check_blocks()
        self._check_scales()
        self._check_operators()
        if self.hadamard is not None:
            self._check_rotation(self.hadamard)
        check_bool("master", self.master)
        if self.master and self.update is None:
            raise ValueError("master needs an update, such as e6m5.sr10")
        if self.device is not None and self.device not in DEVICES:
            raise ValueError(f"unknown device {self.device!r}: expected {', '.join(DEVICES)}, or none")
        if self.device is not None and any(isinstance(mac, MmaSpec) for mac in self.macs):
            raise ValueError(f"no device {self.device} has matrix units; omit the device")

    def _check_blocks(self) -> None:
        """Raise ValueError if an operand in blocks has another scale."""
        for phase, casts in _OPERANDS.items():
            mac = getattr(self, phase)
            for side, name in zip("ab", casts, strict=True):
                cast, block = getattr(self, name), None if mac is None else getattr(mac, side)
                in_blocks = block is not None and block.shares_scale
                if in_blocks and cast.scale is not None:
                    raise ValueError(f"{name} have a scale, but blocks of {phase} have scales of their own; omit it")
                if not in_blocks and cast.tiles is not None:
                    raise ValueError(
                        f"{name} have tiles, which are for operands in blocks such as nvfp4, not for {block or 'fp32'} "
                        f"in {phase}; omit tiles={cast.tiles}"
                    )
                if block is not None and cast.tiles is not None and cast.tiles.four_over_six:
                    check_four_over_six(block)

    def _check_scales(self) -> None:
        """Raise ValueError if an operand cannot have the zero points or the groups of its scale."""
        for phase, casts in _OPERANDS.items():
            for side, name in zip("ab", casts, strict=True):
                mac, cast = getattr(self, phase), getattr(self, name)
                fmt = cast.fmt or (mac and getattr(mac, side))
                if cast.scale is None or fmt is None:
                    continue
                if cast.scale.affine and (not isinstance(fmt, Fixed) or fmt.wraps or fmt.width > MAX_AFFINE):
                    raise ValueError(
                        f"{name} have zero points in {phase}, which are for fixed point of up to {MAX_AFFINE} bits "
                        f"that saturates, such as int8, not for {fmt}"
                    )
                if cast.scale.group and cast.fmt is None:
                    raise ValueError(f"{name} have scales of groups, which need a format, such as int4.{cast}")
                if cast.scale.group and fmt.precision > MAX_GROUP:
                    raise ValueError(
                        f"{name} have scales of groups, which multiply numbers of up to {MAX_GROUP} bits, not {fmt}"
                    )
                if cast.scale.group and mac is not None and not isinstance(getattr(mac, side), Float):
                    raise ValueError(
                        f"{name} have scales of groups, which multiply the operands of {phase}: these must be in "
                        f"floats, such as bf16, not in {getattr(mac, side)}; blocks such as "
                        "block(int4,128,fp16,nearest) have sums of integers for each group"
                    )

    def product_of(self, phase: str, paired: bool = False) -> Product | None:
        """Return the multiply-accumulate of a phase, whose operands with zero points are differences.

        ``paired`` products have activations in place of weights.
        """
        return self._differences[phase, paired]

    @functools.cached_property
    def _differences(self) -> dict[tuple[str, bool], Product | None]:
        return {(phase, paired): self._of_differences(phase, paired) for phase in PRODUCTS for paired in (False, True)}

    def _of_differences(self, phase: str, paired: bool) -> Product | None:
        mac: Product | None = getattr(self, phase)
        for side, name in zip("ab", _OPERANDS[phase], strict=True):
            scale = getattr(self, "activations" if paired and name == "weights" else name).scale
            if mac is None or scale is None or not scale.affine:
                continue
            fmt = getattr(mac, side)
            if isinstance(fmt, Fixed):
                mac = replace(mac, **{side: difference_format(fmt)})
        return mac

    def _check_operators(self) -> None:
        """Raise ValueError if an operator has no effect."""
        for name in ("multiplier", "adder"):
            text = getattr(self, name)
            if text is None:
                continue
            own = operator(text, name)
            if self.device is not None:
                raise ValueError(f"{name} {text} is not in the hardware of the device {self.device}; omit one of both")
            for phase, mac in zip(PRODUCTS, self.macs, strict=True):
                if mac is None:
                    raise ValueError(f"{name} {text} does nothing in {phase}, which is in torch's own arithmetic")
                check_operators(mac, *((own, None) if name == "multiplier" else (self._multiplier, own)))
        for part, others in ((self.elementwise, False), (self.functions, True)):
            for name, _ in () if part is None else part.operators:
                if (name not in ARITHMETIC) != others:
                    raise ValueError(
                        f"{name} is {'an element-wise operation' if others else 'a function'}; give its operator in "
                        f"{'elementwise' if others else 'functions'}"
                    )

    @property
    def _multiplier(self) -> Operator | None:
        return None if self.multiplier is None else operator(self.multiplier)

    @property
    def operators(self) -> tuple[Operator | None, Operator | None]:
        """Multiplier and adder of the products."""
        return self._multiplier, None if self.adder is None else operator(self.adder)

    def _check_rotation(self, rotation: Rotation) -> None:
        """Raise ValueError if rotated operands are sparse, have delayed scales, or are not rounded for a product."""
        for phase in rotation.products:
            if getattr(self, phase) is None:
                raise ValueError(f"hadamard rotates operands of {phase}, which is in torch's own arithmetic; omit it")
        for name in sorted({name for phase in rotation.products for name in _OPERANDS[phase]}):
            cast = getattr(self, name)
            if cast.sparsity is not None:
                raise ValueError(f"{name} have the sparsity {cast.sparsity}, which a rotation undoes; omit one of both")
            if cast.scale is not None and cast.scale.history:
                raise ValueError(f"{name} have a delayed scale, which does not fit rotated values; use a current scale")

    @classmethod
    def of(cls, mac: Product | str | None, **parts: Any) -> "Policy":
        """Make a policy with one multiply-accumulate for all three products; other parameters as for `Policy`."""
        return cls(**(dict.fromkeys(PRODUCTS, mac) | parts))

    @classmethod
    def parse(cls, text: "str | MacSpec | BlockMacSpec | Policy") -> "Policy":
        """Parse the text of a policy or a multiply-accumulate; a `Policy` is returned unchanged."""
        if isinstance(text, cls):
            return text
        if isinstance(text, Product):
            return cls.of(text)
        if not isinstance(text, str):
            raise TypeError(
                f"policy must be a Policy, a MacSpec or a text such as 'e5m2*e5m2+e6m5.sr10', not {type(text).__name__}"
            )
        parts: dict[str, Any] = {}
        for piece in (piece.strip() for piece in _COMMA.split(text)):
            key, equals, value = piece.partition("=")
            # A multiply-accumulate with a rounded product contains an equals sign too.
            is_mac = "*" in key or not equals or MmaSpec.is_mma_text(piece)
            name, value = ("mac", piece) if is_mac else (key.strip(), value.strip())
            if name in parts:
                raise ValueError(f"policy {text!r} has {name} twice")
            parts[name] = value
        return cls.from_table(parts)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Policy":
        """Read a policy from a TOML table: keys are the parameters, and ``mac`` for all products not given."""
        known = ["mac", *(field.name for field in fields(cls))]
        for key, value in table.items():
            if key not in known and isinstance(value, Mapping):
                raise ValueError(f'unknown table [{key}]: expected [layers."PATTERN"], with a pattern of layers')
            if key not in known:
                hint = did_you_mean(key, known, f"expected {', '.join(known)}")
                raise ValueError(f"unknown key {key!r} of a policy: {hint}")
        parts = expanded(table)
        if isinstance(parts.get("master"), str):
            parts["master"] = {"true": True, "false": False}.get(parts["master"], parts["master"])
        return cls(**parts)

    def __str__(self) -> str:
        return self._whole

    @functools.cached_property
    def _whole(self) -> str:
        """Text of the policy, which each emulated product needs."""
        macs = [_text(getattr(self, name)) for name in PRODUCTS]
        if len(set(macs)) == 1:
            pieces = [macs[0]]
        else:
            pieces = [f"{name}={mac}" for name, mac in zip(PRODUCTS, macs, strict=True)]
        pieces += self._named(_CASTS)
        pieces += [f"hadamard={self.hadamard}"] if self.hadamard else []
        pieces += [f"update={self.update}"] if self.update else []
        pieces += ["master=true"] if self.master else []
        pieces += [f"device={self.device}"] if self.device else []
        pieces += self._own_operators
        pieces += [f"{name}={part}" for name in PROGRAM if (part := getattr(self, name)) is not None]
        return ", ".join(pieces)

    def product(self, phase: str) -> str:
        """Return the arithmetic of one of `PRODUCTS`: its multiply-accumulate and the roundings of its operands."""
        return self._products[phase]

    @functools.cached_property
    def _products(self) -> dict[str, str]:
        casts = {
            "forward": ("weights", "activations", "bias"),
            "input_gradient": ("weights", "gradients"),
            "weight_gradient": ("activations", "gradients"),
        }
        texts = {
            phase: [_text(getattr(self, phase)), *self._named(casts[phase]), *self._own_operators] for phase in PRODUCTS
        }
        if self.hadamard is not None:
            for phase in self.hadamard.products:
                texts[phase].append(f"hadamard={self.hadamard.length}")
        return {phase: ", ".join(pieces) for phase, pieces in texts.items()}

    @property
    def _own_operators(self) -> list[str]:
        return [f"{name}={text}" for name in ("multiplier", "adder") if (text := getattr(self, name)) is not None]

    def rounding_of(self, operation: str) -> Cast | None:
        """Return the format and rounding of an element-wise operation or function; None for torch's own arithmetic."""
        parts = (self.elementwise,) if operation in ARITHMETIC else (self.functions, self.elementwise)
        return next((part.cast for part in parts if part is not None and part.cast is not None), None)

    def operator_of(self, operation: str) -> Operator | None:
        """Return the operator that replaces an element-wise operation or function; None without one."""
        text = self._replaced.get(operation)
        return None if text is None else operator(text)

    @functools.cached_property
    def _replaced(self) -> dict[str, str]:
        return dict(pair for part in (self.elementwise, self.functions) if part is not None for pair in part.operators)

    @property
    def replaces(self) -> bool:
        """True if an operator replaces an element-wise operation, a function, or a part of the products."""
        return bool(self._replaced or self._own_operators)

    @property
    def optional(self) -> dict[str, Any]:
        """Parts that differ from their defaults, by name, without the multiply-accumulates."""
        parts = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in PRODUCTS}
        return {name: part for name, part in parts.items() if part not in (None, False, PLAIN)}

    @property
    def program_casts(self) -> list[Cast]:
        """Formats and roundings of all operations outside layers."""
        casts = [part.cast for part in (self.elementwise, self.functions) if part is not None]
        sums = None if self.reductions is None else self.reductions.accumulator
        return [cast for cast in (*casts, sums, self.normalisation, self.optimizer) if cast is not None]

    def _named(self, casts: Iterable[str]) -> list[str]:
        return [f"{name}={getattr(self, name)}" for name in casts if getattr(self, name) != PLAIN]

    @property
    def macs(self) -> tuple[Product | None, Product | None, Product | None]:
        """Multiply-accumulates of forward, input gradient and weight gradient."""
        return self.forward, self.input_gradient, self.weight_gradient

    @property
    def casts(self) -> tuple[Cast, Cast, Cast, Cast]:
        """Roundings of weights, activations, gradients and bias."""
        return self.weights, self.activations, self.gradients, self.bias

    def of_operation(self, names: Iterable[str], kinds: Sequence[type] = ()) -> "Policy":
        """Return the policy of an operation, by its own name, that of the composition around it, and its modules."""
        if self.normalisation is None:
            return self
        in_layer = bool(kinds) and issubclass(kinds[-1], LAYERS)
        return self._normalising if in_layer or not NORMALISATIONS.isdisjoint(names) else self

    @functools.cached_property
    def _normalising(self) -> "Policy":
        cast, order = self.normalisation, "sequential" if self.reductions is None else self.reductions.order
        return replace(
            self,
            elementwise=None if cast is None else Elementwise(cast),
            functions=None,
            reductions=Reduction(cast, order),
            normalisation=None,
        )

    def histories(self, paired: bool) -> tuple[int, int, int]:
        """Return the lengths of the histories of activations, weights and gradients; 0 without delayed scaling.

        ``paired`` products have activations in place of weights.
        """
        casts = (self.activations, self.activations if paired else self.weights, self.gradients)
        x, w, gradient = (0 if cast.scale is None else cast.scale.history for cast in casts)
        return x, w, gradient

    @property
    def plain(self) -> bool:
        """True if a layer computes in torch's own arithmetic."""
        return self.macs == (None, None, None) and all(cast.plain for cast in self.casts)

    @property
    def stochastic(self) -> bool:
        """True if a layer takes random words."""
        rounds = any(mac.words for mac in self.macs if mac) or any(cast.rounding.bits for cast in self.casts)
        return rounds or self.hadamard is not None


def expanded(table: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the key ``mac`` by the three products."""
    parts = dict(table)
    if "mac" not in parts:
        return parts
    with prefixed("mac"):
        mac = _mac(parts.pop("mac"))
    return dict.fromkeys(PRODUCTS, mac) | parts


def _mac(given: object) -> Product | None:
    if given in (None, FLOAT, FLOAT.upper()):
        return None
    if isinstance(given, SparseMacSpec) or (isinstance(given, str) and given.split()[:1] == [SparseMacSpec.form.unit]):
        raise ValueError(
            "a policy has no sparsemac, whose weights are stored with indices for golden.gemm and arrays; give a mac, "
            "and prune weights with weights=2:4"
        )
    is_mma = isinstance(given, MmaSpec) or MmaSpec.is_mma_text(given)
    kind = MmaSpec if is_mma else BlockMacSpec if is_block_mac(given) else MacSpec
    spec: Product = kind.parse(given)  # type: ignore[arg-type]  # parse() checks
    spec.check_one_sum()
    return spec


def _text(mac: Product | None) -> str:
    return FLOAT if mac is None else mac.expression


@contextmanager
def prefixed(name: str) -> Iterator[None]:
    """Prefix error messages with a name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from error
