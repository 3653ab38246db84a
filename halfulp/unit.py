"""The function `unit`: from the text of a unit to its component, its golden model and its exact results."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hdl.specs import Build, UnitSpec
    from .hdl.specs.segments import Segments


@dataclass(frozen=True)
class Description:
    """Unit of the catalogue with everything that decides its result bits.

    Parameters
    ----------
    spec : UnitSpec
        Description as plain data.
    """

    spec: "UnitSpec"

    def __str__(self) -> str:
        """Return the text, which `unit` parses."""
        return self.spec.text

    @property
    def name(self) -> str:
        """Text in characters of a Verilog name."""
        return self.spec.name

    @property
    def table(self) -> "Segments | None":
        """Segments of a piecewise linear function, fitted or read from a file; None for other units."""
        from .hdl.specs import PwlSpec

        if not isinstance(self.spec, PwlSpec):
            return None
        from .hdl.fit.store import table_of

        return table_of(self.spec)

    def component(self, build: "Build | None" = None) -> Any:
        """Make the Amaranth component of the unit.

        Parameters
        ----------
        build : Build, optional
            Register stages and structure; they change no result bit. Default: ``Build()``.

        Raises
        ------
        ValueError
            If a field of ``build`` has no effect on the unit.
        """
        from .hdl.specs import Build
        from .units.catalogue import component

        return component(self.spec, build or Build())

    def reference(self, *operands: Any, **words: Any) -> Any:
        """Compute results in the golden model, on tensors of codes.

        Parameters
        ----------
        *operands : Tensor
            Codes in the order of the unit's golden function, such as `halfulp.golden.mac`.
        **words : Tensor
            Random words of stochastic rounding. Default for a unit with a source: the words of the source, where
            element i of the operands is operation i after reset. ``mode`` holds the codes of a rounding that a port
            chooses.

        Raises
        ------
        TypeError, ValueError
            As for the golden function.
        """
        from . import golden

        function = getattr(golden, self.spec.form.unit)
        return function(*operands, **(self._own_words(operands) | words), **self._parameters)

    def exact(self, *codes: Any, **words: Any) -> Any:
        """Compute a result in rational arithmetic, on single codes: slow, and independent of the golden model.

        Parameters
        ----------
        *codes : int
            Codes in the order of the unit's golden function.
        **words : int
            Random words of stochastic rounding, also of a unit with a source, and the code ``mode`` of a rounding that
            a port chooses.

        Raises
        ------
        TypeError, ValueError
            If the number of codes is wrong, or a random word is missing.
        """
        from .golden import exact
        from .hdl.specs.formula import Role

        if self.spec.words and not self.spec.arguments(Role.RANDOM).keys() & words.keys():
            raise ValueError(f"{self} needs random words: {', '.join(self.spec.words)}")
        return getattr(exact, self.spec.form.unit)(*codes, **words, **self._parameters)

    @property
    def _parameters(self) -> dict[str, Any]:
        """Keyword arguments of the golden and the exact function."""
        parameters = self.spec.parameters
        if self.table is None:
            return parameters
        return {"table": self.table} | {name: parameters[name] for name in ("rounding", "saturate")}

    def _own_words(self, operands: tuple[Any, ...]) -> dict[str, Any]:
        """Return the random words of the unit's source for all elements of the operands."""
        if not self.spec.streams:
            return {}
        import torch

        from .golden.random import of_stream
        from .hdl.specs.formula import VALUES, Role

        for operand in operands:
            if not isinstance(operand, torch.Tensor):
                raise TypeError(f"operands must be tensors of codes, not {type(operand).__name__}")
        arguments = zip(operands, self.spec.arguments(*VALUES), strict=False)
        shapes = [one.shape[:-1] if name in self.spec.vectors and one.dim() else one.shape for one, name in arguments]
        shape = torch.broadcast_shapes(*shapes)
        found = {
            name: of_stream(stream, shape.numel(), self.spec.words[name]).reshape(shape)
            for name, stream in self.spec.streams.items()
        }
        return {
            name: found[ports] if isinstance(ports, str) else torch.stack([found[port] for port in ports], -1)
            for name, ports in self.spec.arguments(Role.RANDOM).items()
        }


def unit(text: "str | UnitSpec | Description") -> Description:
    """Parse the text of a unit, such as ``mac e5m2*e5m2+e6m5.sr10@lfsr16:5``; see `halfulp list grammar`.

    Raises
    ------
    TypeError
        If ``text`` is no str.
    ValueError
        If the text is invalid or the unit cannot be built; the message marks the position in the text.
    """
    from .hdl.specs import UnitSpec
    from .hdl.specs.piecewise import PwlSpec, is_table_name

    if isinstance(text, Description):
        return text
    spec = UnitSpec.parse(text)
    if isinstance(spec, PwlSpec) and is_table_name(spec.function):
        from .hdl.fit.store import table_of

        table_of(spec)
    return Description(spec)
