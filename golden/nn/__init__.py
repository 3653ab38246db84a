"""Training in the arithmetic of multiply-accumulates: layers, policies, conversion of models, weight updates."""

from .activation import PiecewiseLinear
from .attention import MultiheadAttention
from .cast import Cast
from .checkpoint import policies_of
from .counts import Counts
from .layers import Bmm, Computed, Conv2d, Linear, Quantize
from .policy import Policy
from .policy_file import PolicyFile, rules
from .product import register_device
from .rotation import Rotation
from .scale import LossScaler
from .scaling import Scaling
from .schedule import Schedule
from .select import Candidate
from .sparsity import Sparsity, register_score
from .swap import Conversion, Swap, convert, swap_activations
from .tile import Tiles
from .update import WeightUpdate

__all__ = [
    "Bmm",
    "Candidate",
    "Cast",
    "Computed",
    "Conv2d",
    "Conversion",
    "Counts",
    "Linear",
    "LossScaler",
    "MultiheadAttention",
    "PiecewiseLinear",
    "Policy",
    "PolicyFile",
    "Quantize",
    "Rotation",
    "Scaling",
    "Schedule",
    "Sparsity",
    "Swap",
    "Tiles",
    "WeightUpdate",
    "convert",
    "policies_of",
    "register_device",
    "register_score",
    "rules",
    "swap_activations",
]
