"""Policies of an emulated program, and what they had no effect on."""

import functools
from collections.abc import Mapping

from torch import Tensor

from halfulp.golden.function_table import FUNCTIONS
from halfulp.golden.nn.draw import check_seed
from halfulp.golden.nn.policy import Policy
from halfulp.golden.nn.select import Candidate, Pattern, check_pattern, matches
from halfulp.golden.nn.swap import Rules
from halfulp.hdl.formats.checks import check_one_of

from .keys import Keys
from .operations import IN_BINARY64
from .report import IN_TORCH, USES, Report, cure


class Program:
    """Policies of an emulated program, and the report of its operations; parameters as for `emulate`."""

    def __init__(self, policy: Rules, *, strict: bool = False, seed: int = 0, values: bool = False) -> None:
        self.policies = policies_of(policy)
        self.strict, self.seed, self.values = strict, check_seed(seed), values
        self._report = Report()
        self.keys = Keys(self.seed)
        self.selecting: set[Pattern] = set()  # Those that selected the policy of an operation.
        self.used: set[str] = set()  # Parts of policies whose use the rows of the report do not show.

    @property
    def stochastic(self) -> bool:
        """True if any rounding of the program is stochastic."""
        return any(map(_is_stochastic, self.policies.values()))

    def report(self) -> Report:
        """Return the report of all operations that ran."""
        self._report.unused = self._without_effect() if self._report.rows else []
        return self._report

    @property
    def unused(self) -> list[Pattern]:
        """Patterns other than ``*`` that have selected no operation."""
        return [pattern for pattern in self.policies if pattern != "*" and pattern not in self.selecting]

    def _without_effect(self) -> list[str]:
        """Return a sentence for each pattern and each part of a policy that had no effect."""
        sentences = [f"the pattern {shown(pattern)} selected no operation" for pattern in self.unused]
        ran = self.used | {name for name, use in USES.items() if any(map(use.shows, self._report.rows))}
        for policy in (policy for pattern, policy in self.policies.items() if pattern in self.selecting):
            sentences += [
                f"{name}={'true' if part is True else part} had no effect, because the program has no {USES[name].what}"
                for name, part in policy.optional.items()
                if name not in ran
            ]
        return list(dict.fromkeys(sentences))

    def policy_for(self, candidate: Candidate) -> Policy | None:
        """Return the policy of an operation, or None if no pattern selects it.

        A part of a composition has two names: its own, and that of the composition.
        """
        for pattern, policy in self.policies.items():
            # Functions may give another answer at each call.
            matching = _matches if isinstance(pattern, (str, type)) else matches
            if matching(pattern, candidate):  # type: ignore[arg-type]  # patterns are keys of a dict
                self.selecting.add(pattern)
                chosen = policy.of_operation(candidate.operations, candidate.kinds)
                if chosen is not policy:
                    self.used.add("normalisation")
                return chosen
        return None

    def record(
        self,
        where: Mapping[str, str],
        counts: Mapping[str, int],
        result: Tensor | None,
        seconds: float,
        calls: int = 1,
    ) -> None:
        """Count calls in the report; refuse torch's own arithmetic if the program is strict."""
        self.refuse(where)
        self._report.add(where, counts, result if self.values else None, seconds, calls)

    def note_constant(self, where: Mapping[str, str], value: float, became: float) -> None:
        """Add a constant to the report that a format replaced by 0, 1, an infinity or NaN."""
        self._report.add_constant(where, value, became)

    def refuse(self, where: Mapping[str, str]) -> None:
        """Raise RuntimeError for torch's own arithmetic if the program is strict."""
        if self.strict and where["arithmetic"] == IN_TORCH:
            raise RuntimeError(
                f"{where['operation']} at {where['source']} would be computed in torch's own arithmetic: "
                f"{where['reason']}; {cure(where['reason'])}"
            )


@functools.lru_cache(maxsize=256)
def _is_stochastic(policy: Policy) -> bool:
    return policy.stochastic or any(cast.rounding.bits for cast in policy.program_casts)


@functools.lru_cache(maxsize=1 << 16)
def _matches(pattern: Pattern, candidate: Candidate) -> bool:
    return matches(pattern, candidate)


def policies_of(policy: Rules) -> dict[Pattern, Policy]:
    """Parse policies by pattern; one policy has the pattern ``*``."""
    given = policy if isinstance(policy, Mapping) else {"*": policy}
    for pattern in given:
        check_pattern(pattern, operations=True)
    policies = {pattern: Policy.parse(text) for pattern, text in given.items()}
    for name in (name for policy in policies.values() if policy.functions for name, _ in policy.functions.operators):
        check_one_of("function", name, (*FUNCTIONS, *IN_BINARY64))
    return policies


def shown(pattern: Pattern) -> str:
    """Return the text of a pattern, or the name of a class or a function."""
    return repr(pattern) if isinstance(pattern, str) else getattr(pattern, "__name__", repr(pattern))
