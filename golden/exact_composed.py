"""Composed units on single codes: each step by the exact function of its unit."""

from collections.abc import Sequence
from typing import Any

from halfulp.hdl.specs import COMPOSED, AccumulateSpec, PwlSpec
from halfulp.hdl.specs.composed import COUNT, Step


def vector(unit: str, operations: Any, vectors: Sequence[Sequence[int]], given: dict[str, Any]) -> list[int]:
    """Return the codes of the results of a composed unit for one vector; ``operations`` is `halfulp.golden.exact`."""
    spec: Any = COMPOSED[unit](**given | {"length": len(vectors[0])})
    if len(vectors) != len(spec.operands) or len({len(codes) for codes in vectors}) > 1:
        raise ValueError(f"{spec} takes vectors {', '.join(spec.operands)} of one length")
    known: dict[str, Any] = dict(zip(spec.operands, vectors, strict=True))
    known |= {name: code for name, (code, _) in spec.constants.items()} | {COUNT: len(vectors[0])}
    for step in spec.steps:
        operands = [known[name] for name in step.operands]
        if step.reduces:
            known[step.name] = _reduced(step, operations, operands[0])
            continue
        places: Any = range(len(vectors[0])) if any(isinstance(each, Sequence) for each in operands) else [None]
        results = [
            _of(step, operations, [each[at] if isinstance(each, Sequence) else each for each in operands])
            for at in places
        ]
        known[step.name] = results if places != [None] else results[0]
    codes: list[int] = known[spec.result_name]
    return codes


def _reduced(step: Step, operations: Any, codes: Sequence[int]) -> int:
    """Return the sum or the maximum of a vector, in order."""
    if isinstance(step.spec, AccumulateSpec):
        total = 0
        for code in codes:
            total = operations.accumulate(code, total, **step.spec.parameters)
        return total
    best, *others = codes
    for code in others:
        best = operations.compare(best, code, **step.spec.parameters).maximum
    return best


def _of(step: Step, operations: Any, codes: list[int]) -> int:
    """Return the result of a step for single codes."""
    parameters = step.spec.parameters
    if isinstance(step.spec, PwlSpec):
        # Fits load slowly.
        from halfulp.hdl.fit.store import table_of

        parameters = {"table": table_of(step.spec)} | {name: parameters[name] for name in ("rounding", "saturate")}
    code: int = getattr(operations, step.spec.form.unit)(*codes, *step.controls, **parameters)
    return code
