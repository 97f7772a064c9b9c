"""The two numbers in BM25."""

from dataclasses import dataclass

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.score_check import LARGEST


@dataclass(frozen=True, slots=True)
class Parameters:
    """How repetition and length count in BM25.

    Attributes:
        k1: How slowly repetitions of a term saturate, from 0 (they count for nothing). 1.2 is the
            default of Lucene and of the embedded engine.
        b: How much the length of a document counts, from 0 (not at all) to 1. Their default is
            0.75.

    Raises:
        ConfigurationError: A number is out of range.
    """

    k1: float = 1.2
    b: float = 0.75

    def __post_init__(self) -> None:
        if not (0.0 <= self.k1 <= LARGEST and 0.0 <= self.b <= 1.0):
            raise ConfigurationError(
                f"got k1={self.k1} and b={self.b}; expected k1 of 0 or more (1.2) and b from 0 to "
                "1 (0.75)"
            )
