"""Number of threads of torch."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of threads of torch; one beside simulators or other workers, which use the other processors."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
