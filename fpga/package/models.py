"""C++ models of packaged units, as functions that C++ and, by DPI-C, SystemVerilog call."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfulp.golden.kernels.model import Model

    from .contents import Package, PackagedUnit


@dataclass(frozen=True)
class UnitModel:
    """C++ model of a unit.

    Attributes
    ----------
    function : str
        Name of its function; empty if there is none.
    refusal : str
        Reason why there is no model; empty if there is one.
    arguments : tuple of (str, str)
        Direction (``input``, ``inout`` or ``output``) and name of each argument.
    """

    function: str
    refusal: str
    arguments: tuple[tuple[str, str], ...] = ()
    model: "Model | None" = None

    @classmethod
    def of(cls, spec: Any, name: str) -> "UnitModel":
        """Return the model of a unit, whose function has a name."""
        from halfulp.golden.kernels.model import Model

        try:
            model = Model(name, spec)
        except ValueError as refusal:
            return cls("", str(refusal))
        groups = {"input": model.inputs, "inout": model.state, "output": model.outputs}
        return cls(name, "", tuple((way, port) for way, names in groups.items() for port in names), model)

    @property
    def state(self) -> list[str]:
        """Names of the arguments that hold state."""
        return [name for way, name in self.arguments if way == "inout"]

    def prototype(self) -> str:
        """Return the arguments in C."""
        stars = {"input": " ", "inout": "* ", "output": "* "}
        return ", ".join(f"unsigned long long{stars[way]}{name}" for way, name in self.arguments)

    def imported(self) -> str:
        """Return the arguments in SystemVerilog."""
        return ", ".join(f"{way} longint unsigned {name}" for way, name in self.arguments)


def bench_argument(unit: "PackagedUnit", way: str, name: str) -> str:
    """Return an argument of a unit's model in its test bench: an operand of a vector, a state or a result."""
    if way != "input":
        return f"model_{name}" if way == "output" else name
    port = next(port for port in unit.inputs if port.name == name)
    low = unit.output_digits * 4 + unit.low(port)
    return f"64'(vectors[index][{low + port.width - 1}:{low}])"


def model_files(package: "Package") -> dict[str, str]:
    """Return the C++ models of the units of a package that have one, with their declarations, by path."""
    models = [unit.model.model for unit in package.modelled if unit.model.model is not None]
    if not models:
        return {}
    from halfulp.golden.kernels.model import source

    stem = f"model/{package.name}_model"
    head = package.render("model_head.j2")
    return {
        f"{stem}.cpp": head + source(models),
        f"{stem}.h": package.render("model.h.j2"),
        f"{stem}_pkg.sv": package.render("model_pkg.sv.j2"),
    }
