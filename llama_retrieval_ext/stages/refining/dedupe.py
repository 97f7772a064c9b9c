"""One hit of those that are the same."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum

from llama_index.core.schema import MetadataMode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.ranking import Hit
from llama_retrieval_ext.stages.algebra.refine import Refine
from llama_retrieval_ext.stages.refining.shingles import first_of_alike, shingles
from llama_retrieval_ext.text.normal import normal


class Alike(Enum):
    """When two hits are the same.

    Attributes:
        ID: They are the same node.
        CONTENT: They have the same text, but for case, white space and Unicode form.
        NEARLY: They are made of nearly the same words.
    """

    ID = "id"
    CONTENT = "content"
    NEARLY = "nearly"

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


@dataclass(frozen=True, slots=True)
class Dedupe(Refine):
    """The hits without those that repeat a better one; order and scores stay.

    A hit without text, such as an image, repeats nothing but itself.

    Args:
        by: When two hits are the same.
        at_least: For `Alike.NEARLY`: the share of all words of both that must be common to them
            (Jaccard similarity of their words, of Chinese their pairs of characters), in
            ``(0, 1]``. Texts that differ in a number alone are nearly the same: mind that with
            prices and paragraphs of law.

    Raises:
        ConfigurationError: ``by`` is no `Alike`, or ``at_least`` is out of range.

    Examples:
        >>> Dedupe()
        Dedupe(by=Alike.CONTENT, at_least=0.9)

    """

    by: Alike = Alike.CONTENT
    _: KW_ONLY
    at_least: float = 0.9

    def __post_init__(self) -> None:
        if not isinstance(self.by, Alike):
            raise ConfigurationError(f"by must be one of {list(Alike)}, got {self.by!r}")
        if not 0.0 < self.at_least <= 1.0:
            raise ConfigurationError(f"at_least must be above 0 and at most 1, got {self.at_least}")

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the hits that are not repeated."""
        if self.by is Alike.ID:
            return list(_first(hits, _node_id))
        if self.by is Alike.CONTENT:
            return list(_first(hits, _content))
        once = list(_first(hits, _node_id))
        keep = first_of_alike((shingles(_text(hit)) for hit in once), at_least=self.at_least)
        return [hit for hit, kept in zip(once, keep, strict=True) if kept]


def _first(hits: Sequence[Hit], same: Callable[[Hit], Hashable]) -> Iterator[Hit]:
    seen: set[Hashable] = set()
    for hit in hits:
        key = same(hit)
        if key not in seen:
            seen.add(key)
            yield hit


def _node_id(hit: Hit) -> Hashable:
    return hit.node.node_id


def _content(hit: Hit) -> Hashable:
    text = " ".join(normal(_text(hit)).casefold().split())
    return text or (hit.node.node_id,)


def _text(hit: Hit) -> str:
    return hit.node.get_content(metadata_mode=MetadataMode.NONE)
