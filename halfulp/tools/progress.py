"""Progress of a run, on a terminal."""

from typing import Any


class Progress:
    """Receiver of progress; this one shows nothing."""

    def total(self, text: str, count: int | None = None, done: int = 0) -> None:
        """Begin a phase of ``count`` vectors, or of unknown length, of which ``done`` are done."""

    def advance(self, count: int) -> None:
        """Count more vectors as done."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        """End the run."""


silent = Progress()


class Bar(Progress):
    """A progress bar on standard error until the run ends; none without a terminal."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Rich

        self._console = Console(stderr=True)
        self._rich: Any = Rich(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._title = title
        self._task = self._rich.add_task(title, total=None)

    def __enter__(self) -> "Bar":
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def total(self, text: str, count: int | None = None, done: int = 0) -> None:
        # An update cannot make the length unknown again.
        self._rich.remove_task(self._task)
        self._task = self._rich.add_task(f"{self._title}: {text}", total=count, completed=done)

    def advance(self, count: int) -> None:
        self._rich.update(self._task, advance=count)
