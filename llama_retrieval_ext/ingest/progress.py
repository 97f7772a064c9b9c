"""A progress bar over documents."""

from collections.abc import Callable, Generator, Iterable, Sized
from contextlib import contextmanager

# The plain one: in a notebook, the other warns where ipywidgets are not installed.
from tqdm import tqdm  # type: ignore[import-untyped]

# Quicker than this, a bar only flickers.
_DELAY_S = 0.5


@contextmanager
def progress(
    items: Iterable[object], *, show: bool, title: str = "Adding documents"
) -> Generator[Callable[[int], object]]:
    """A function that is told how many more documents are done.

    Args:
        items: What is worked on; without a length, the bar counts up.
        show: Whether there is a bar at all.
        title: What stands before it.
    """
    total = len(items) if isinstance(items, Sized) else None
    with tqdm(total=total, desc=title, unit="doc", delay=_DELAY_S, disable=not show) as bar:
        yield bar.update
