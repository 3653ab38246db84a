"""Vectors of a unit as text."""

from collections.abc import Mapping

from .ports import STATE, Ports


def read_vector(text: str, inputs: Ports) -> dict[str, int]:
    """Codes of one vector, written as ``0x3c,0x40,0x001`` in the order of the unit's inputs.

    It raises ValueError if their number is wrong, or if one is no number or does not fit its port.
    """
    codes = {port.name: int(port.name == "load") for port in inputs}
    return codes | read_codes(text, _alone(inputs))


def read_codes(text: str, ports: Ports) -> dict[str, int]:
    """Codes of some ports, written in their order; raises as `read_vector` does."""
    words = text.split(",")
    numbers = [_number(word) for word in words]
    if len(words) != len(ports):
        names = ", ".join(ports.names)
        raise ValueError(f"a vector of this unit has {len(ports)} codes ({names}), not {len(words)}")
    for port, word, number in zip(ports, words, numbers, strict=True):
        if not 0 <= number < 1 << port.width:
            raise ValueError(f"code {word} does not fit the {port.width} bits of {port.name}")
    return dict(zip(ports.names, numbers, strict=True))


def _number(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        raise ValueError(f"{word!r} is not a number; codes are written like 0x3c") from None


def write_vector(codes: Mapping[str, int], inputs: Ports) -> str:
    """Text that `read_vector` reads."""
    return write_codes(codes, _alone(inputs))


def write_codes(codes: Mapping[str, int], ports: Ports) -> str:
    """Text that `read_codes` reads."""
    return ",".join(f"0x{codes[port.name]:0{-(-port.width // 4)}x}" for port in ports)


def _alone(inputs: Ports) -> Ports:
    """Inputs of a vector by itself: all but those that decide what becomes of the unit's state."""
    return Ports(tuple(port for port in inputs if port.name not in STATE))
