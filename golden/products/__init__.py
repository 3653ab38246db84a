"""Matrix products of checked operands: engines, the choice among them, and why it was made.

An engine computes a `MatrixProduct`, or refuses it with a reason that follows from its description, shapes and device.
Some also refuse operands for which they are not exact. All engines have the same results.
"""

from .choice import ENGINES as ENGINES
from .choice import Explanation as Explanation
from .choice import compute as compute
from .choice import explain as explain
from .kinds import KINDS as KINDS
from .tiles import compute_tiled as compute_tiled
