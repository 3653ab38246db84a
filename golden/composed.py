"""Composed units, such as softmax: their steps on vectors along the last dimension of tensors."""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import Tensor

from halfulp.hdl.specs import (
    AccumulateSpec,
    CompareSpec,
    ComposedSpec,
    LayernormSpec,
    PwlSpec,
    RmsnormSpec,
    SoftmaxSpec,
)
from halfulp.hdl.specs.composed import COUNT, MAX_LENGTH, Step

from .accumulate import accumulate
from .arithmetic import add, mul
from .check import check_devices, check_shapes, codes_of
from .compare import compare
from .convert import convert
from .division import div, rsqrt
from .function import function
from .operation import POSITIONS
from .pwl import pwl

_STEPS: dict[str, Callable[..., Tensor]] = {
    operation.__name__: operation for operation in (add, convert, div, function, mul, rsqrt)
}
"""Operations of steps on elements, by the name of their unit."""

_OPERANDS = """\
Operands are codes whose last dimension has the elements of a vector; they broadcast. Gain and bias are the next
operands if they have formats. Vectors in the other dimensions are independent. Parameters are those of """


def _computed(step: Step, operands: list[Tensor]) -> Tensor:
    """Return the results of a step; those of a reduction have a last dimension of 1."""
    own = step.spec
    if isinstance(own, CompareSpec):
        best, *others = operands[0].unbind(-1)
        for other in others:
            best = compare(best, other, **own.parameters).maximum
        return best.unsqueeze(-1)
    if isinstance(own, AccumulateSpec):
        total = torch.zeros_like(operands[0][..., 0])
        for element in operands[0].unbind(-1):
            total = accumulate(element, total, **own.parameters)
        return total.unsqueeze(-1)
    if isinstance(own, PwlSpec):
        # Fits load slowly.
        from halfulp.hdl.fit.store import table_of

        return pwl(operands[0], table=table_of(own), rounding=own.rounding, saturate=own.saturate)
    return _STEPS[own.form.unit](*operands, *step.controls, **own.parameters)


def _operation(cls: type[ComposedSpec], doc: str) -> Callable[..., Tensor]:
    """Make the operation of a composed unit."""
    names = POSITIONS[: sum(name in cls.__dataclass_fields__ for name in cls.OPERANDS)]

    def computed(*operands: Tensor, **parameters: Any) -> Tensor:
        spec = cls.of_keywords(parameters, cls.operation_parameters())
        if len(operands) != len(spec.operands):
            raise TypeError(f"{spec.text} takes {', '.join(spec.operands)}, not {len(operands)} operands")
        given = dict(zip(spec.operands, operands, strict=True))
        check_devices(**given)
        values = {name: codes_of(name, codes, spec.operands[name]) for name, codes in given.items()}
        check_shapes(**values)
        elements, *others = torch.broadcast_tensors(*values.values())
        count = elements.shape[-1] if elements.dim() else 0
        if not 1 <= count <= MAX_LENGTH:
            raise ValueError(f"vectors of {cls.form.unit} have 1 to {MAX_LENGTH} elements in the last dimension")
        # The count of a vector has a format of its length.
        spec = cls.of_keywords(parameters | {"length": count}, cls.keywords())
        values = dict(zip(values, (elements, *others), strict=True))
        constants = {name: code for name, (code, _) in spec.constants.items()} | {COUNT: count}
        values |= {name: elements.new_full((1,), code) for name, code in constants.items()}
        for step in spec.steps:
            values[step.name] = _computed(step, [values[name] for name in step.operands])
        return values[spec.result_name]

    positions = [Parameter(name, Parameter.POSITIONAL_ONLY, annotation=Tensor) for name in names]
    computed.__signature__ = Signature([*positions, *cls.operation_parameters().values()])  # type: ignore[attr-defined]
    computed.__name__ = computed.__qualname__ = cls.form.unit
    computed.__doc__ = f"{doc}\n\n{_OPERANDS}`{cls.__name__}`."
    return computed


softmax = _operation(SoftmaxSpec, "Return exp(x - max(x)) / sum(exp(x - max(x))), rounded in each step.")
rmsnorm = _operation(RmsnormSpec, "Return x / sqrt(mean(x * x) + eps) * gain, rounded in each step.")
layernorm = _operation(LayernormSpec, "Return (x - mean) / sqrt(variance + eps) * gain + bias, rounded in each step.")

OPERATIONS = {"softmax": softmax, "rmsnorm": rmsnorm, "layernorm": layernorm}
"""Operations by the name of the unit."""
