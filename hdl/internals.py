"""Private names of Amaranth 0.5 and 0.6; `tests/hdl/test_internals.py` states the behaviour that units need."""

from collections.abc import Iterable
from typing import Any

import amaranth
from amaranth.hdl import Signal, Value

try:
    from amaranth.hdl._ast import Assign, Concat, Operator, Slice, SwitchValue
    from amaranth.hdl._ir import PortDirection
    from amaranth.hdl._xfrm import ValueTransformer
    from amaranth.sim._pyeval import eval_value
except ImportError as error:
    raise ImportError(
        f"halfulp works with Amaranth 0.5.4 to 0.6, and Amaranth {amaranth.__version__} lacks a name: {error}"
    ) from error

__all__ = ["Assign", "Concat", "Operator", "PortDirection", "Slice", "SwitchValue", "ValueTransformer"]
__all__ += ["assigned_signals", "eval_value", "read_signals"]


def assigned_signals(statement: Any) -> Iterable[Signal]:
    """Return the signals that a statement assigns."""
    signals: Iterable[Signal] = statement._lhs_signals()
    return signals


def read_signals(value: Value) -> Iterable[Signal]:
    """Return the signals that a value reads."""
    signals: Iterable[Signal] = value._rhs_signals()
    return signals
