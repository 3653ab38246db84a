"""How a run ends early when neither the unit nor the request is to blame."""


class ToolError(Exception):
    """A tool or the machine failed: no compiler, a full disk, a simulator that crashed. Exit code 3."""
