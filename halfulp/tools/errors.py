"""Errors of a run that are not errors of the request."""


class ToolError(Exception):
    """A tool or the machine failed: no compiler, a full disk, a simulator that crashed. Exit code 3.

    Attributes
    ----------
    log : str
        Output of the tool, where it is known.
    """

    exit_code = 3
    log = ""


class CheckError(Exception):
    """A check failed, so that the run cannot go on: two models that have to agree do not. Exit code 1."""

    exit_code = 1
