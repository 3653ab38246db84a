"""Hardware of random sources: LFSRs and plateau sources."""

from amaranth.hdl import Cat, Module, Signal, Value

from .formats.source import Plateau, Source
from .wire import wire


def source_word(m: Module, source: Source, seed: int, step: Value, name: str) -> Value:
    """Add a random source to a module and return its word.

    Parameters
    ----------
    m : Module
        Module for the registers, in the domain ``sync``.
    source : Lfsr or Plateau
    seed : int
        State after reset, which gives the first word.
    step : Value
        Advance to the next word in the next cycle.
    name : str
    """
    source.check_seed(seed)
    state = Signal(source.width, init=seed & ((1 << source.width) - 1), name=f"{name}_lfsr")
    shifted_in = Cat(*(state[tap - 1] for tap in source.taps)).xor()
    following = Cat(shifted_in, state[:-1])
    with m.If(step):
        m.d.sync += state.eq(following)
    if not isinstance(source, Plateau):
        return state
    inverted = Signal(init=seed >> source.width, name=f"{name}_inverted")
    with m.If(step):
        # The flag toggles when the LFSR returns to 1.
        m.d.sync += inverted.eq(inverted ^ (following == 1))
    # A named signal, so that several users share one set of gates.
    return wire(m, state ^ inverted.replicate(source.width), f"{name}_word")
