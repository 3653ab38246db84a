"""Errors that are not caused by an invalid request."""


class ToolError(Exception):
    """Failure of a tool or the machine, such as a missing compiler, a full disk or a crash; exit code 3.

    Attributes
    ----------
    log : str
        Output of the tool; empty if there is none.
    """

    exit_code = 3
    log = ""


class CheckError(Exception):
    """Failed check, such as a difference between two models, after which the run cannot continue; exit code 1."""

    exit_code = 1
