"""What HyDE does with the documents that a language model imagined."""

from enum import Enum


class HyDEMode(Enum):
    """What becomes of the imagined documents.

    Attributes:
        FUSED: Each is a query of its own, and the rankings are fused: one that is wrong does little
            harm.
        MEAN: Their embeddings and the query's are averaged, as in the paper: one retrieval, and the
            base retriever's own scores.
    """

    FUSED = "fused"
    MEAN = "mean"

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"
