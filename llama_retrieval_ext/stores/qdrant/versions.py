"""What a server of a given version can do; local mode can do what its client can."""

from dataclasses import dataclass
from typing import Final, Self

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.errors import (
    ConfigurationError,
    StoreError,
    StoreUnavailableError,
    UnsupportedFilterError,
)
from llama_retrieval_ext.stores.backend import EVERY_OPERATOR
from llama_retrieval_ext.stores.points.clauses import Clause, Contains, Group
from llama_retrieval_ext.stores.qdrant.talk import Request, Talk

_IDF_CORPUS: Final = (1, 19)
_SUBSTRINGS: Final = (1, 20)
_WITHIN_TEXT: Final = {FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE}
# The first where a collection keeps what it was made with, and where a fusion by rank takes its
# constant; the other fusions are older.
_OLDEST: Final = (1, 16)


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a Qdrant.

    Attributes:
        major: The first number.
        minor: The second.
    """

    major: int
    minor: int

    @classmethod
    def of(cls, text: str) -> Self:
        """The version that a text such as ``1.20.0`` begins with; 0.0 where it is none."""
        major, _, rest = text.partition(".")
        minor = rest.partition(".")[0]
        numbers = major.isdecimal() and minor.isdecimal()
        return cls(int(major), int(minor)) if numbers else cls(0, 0)

    @property
    def measures_rarity_in_scope(self) -> bool:
        """Whether IDF can be taken over what a filter selects; older ones ignore being asked."""
        return (self.major, self.minor) >= _IDF_CORPUS

    @property
    def fuses(self) -> bool:
        """Whether it fuses as we do, for all that is known."""
        return (self.major, self.minor) >= _OLDEST

    @property
    def operators(self) -> frozenset[FilterOperator]:
        """The filter operators that it evaluates."""
        if (self.major, self.minor) >= _SUBSTRINGS:
            return EVERY_OPERATOR
        return EVERY_OPERATOR - _WITHIN_TEXT

    def check_server(self, where: str) -> None:
        """Nothing, unless collections of ours cannot be kept there.

        Args:
            where: The server, as it may be shown.

        Raises:
            ConfigurationError: It is too old.
        """
        if (0, 0) < (self.major, self.minor) < _OLDEST:
            raise ConfigurationError(
                f"the Qdrant of {where} is {self.major}.{self.minor}, and must be 1.16 or newer, "
                "which keep with a collection what it was made with; update the server, or hand "
                "in LlamaIndex's QdrantVectorStore over it"
            )

    def check(self, clause: Clause) -> None:
        """Nothing, where it can evaluate the clause.

        Raises:
            UnsupportedFilterError: It searches in a text, which is new.
        """
        if (self.major, self.minor) < _SUBSTRINGS and _searches_in_text(clause):
            raise UnsupportedFilterError(
                f"TEXT_MATCH needs Qdrant 1.20, this is {self.major}.{self.minor}: older ones "
                "compare whole words, in any case; use EQ or IN, or update the server",
                "TEXT_MATCH",
            )


def asked_version() -> Talk[Version]:
    """The version of what is connected; 0.0 where it does not say.

    Raises:
        StoreUnavailableError: It cannot be reached.
    """
    try:
        info = yield Request("info", {})
    except StoreUnavailableError:
        raise
    except StoreError:
        return Version(0, 0)
    return Version.of(info.version)


def _searches_in_text(clause: Clause) -> bool:
    if isinstance(clause, Group):
        return any(map(_searches_in_text, (*clause.every, *clause.some, *clause.no)))
    return isinstance(clause, Contains)
