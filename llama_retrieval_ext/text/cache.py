"""Results of a pure function, kept for the arguments that come again."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Longer strings hardly ever come again, and a few of them would fill the memory.
LONGEST_KEY: Final = 24


class BoundedCache(dict[K, V], Generic[K, V]):
    """What a function gives for a key: looked up with ``cache[key]``, computed when missing.

    A dict, so that ``map(cache.__getitem__, words)`` runs without a line of Python per known word.
    It has two generations: when the young one is full it becomes the old one, from which a key
    that is asked for again is taken over, and the old one's forgotten keys go. So frequent words
    stay, for no book-keeping on a hit. Threads may share it: at worst they compute twice.

    Args:
        compute: A pure function of the key.
        entries: How many results a generation holds.

    Examples:
        >>> asked = []
        >>> cache = BoundedCache(lambda word: asked.append(word) or len(word), entries=2)
        >>> [cache[word] for word in ("a", "bc", "a", "def", "a")], asked
        ([1, 2, 1, 3, 1], ['a', 'bc', 'def'])

    """

    __slots__ = ("_compute", "_entries", "_old")

    def __init__(self, compute: Callable[[K], V], *, entries: int) -> None:
        super().__init__()
        self._compute = compute
        self._entries = entries
        self._old: dict[K, V] = {}

    def __missing__(self, key: K) -> V:
        old = self._old  # another thread may put the next one in its place
        value = old[key] if key in old else self._compute(key)
        if not isinstance(key, str) or len(key) <= LONGEST_KEY:
            if len(self) >= self._entries:
                self._old = dict(self)
                self.clear()
            self[key] = value
        return value
