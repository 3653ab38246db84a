"""Arithmetic units: Amaranth components with ports shaped by number formats."""

from halfulp.hdl.specs import Build as Build

from .base import Unit as Unit
from .catalogue import *  # noqa: F403
from .stream import Streamed as Streamed
