"""How the scores of an index node and of what it leads to become one."""

from enum import Enum


class ScorePolicy(Enum):
    """The score of what an index node led to, from the index node's and its own.

    Where it has none of its own, as a plain node, that of the index node counts.
    """

    CHILD = "child"
    PARENT = "parent"
    PRODUCT = "product"
    DECAYED = "decayed"

    def score(self, parent: float | None, child: float | None, *, decay: float) -> float | None:
        """The score; ``DECAYED`` is the child's own times ``decay``."""
        if parent is None:
            return child
        if child is None or self is ScorePolicy.PARENT:
            return parent
        if self is ScorePolicy.PRODUCT:
            return parent * child
        return child * decay if self is ScorePolicy.DECAYED else child
