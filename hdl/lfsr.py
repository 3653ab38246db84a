"""Random words in hardware: LFSRs and plateau sources."""

from amaranth.hdl import Cat, Module, Signal, Value

from .formats.source import Plateau, Source
from .wire import wire


def source_word(m: Module, source: Source, seed: int, step: Value, name: str) -> Value:
    """Word of a source, which steps on where ``step`` is set; reset takes it back to its seed.

    Parameters
    ----------
    m : Module
        Where its registers go, in the domain ``sync``.
    source : Lfsr or Plateau
    seed : int
        State after reset, whose word is the first one.
    step : Value
        True if this cycle's word is used, so that the next cycle has the next one.
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
        # The word after this one is 1.
        m.d.sync += inverted.eq(inverted ^ (following == 1))
    # Once for each bit, however many share the word.
    return wire(m, state ^ inverted.replicate(source.width), f"{name}_word")
