"""`Target`: which nodes a call is about, by id, by document, by metadata."""

from collections.abc import Sequence
from dataclasses import dataclass

from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext.filters import Condition, parse_filters


@dataclass(frozen=True, slots=True)
class Target:
    """The nodes that satisfy all that is given; every node where nothing is.

    Attributes:
        node_ids: They have one of these ids; none of them if there are no ids.
        doc_ids: They come from one of these documents.
        filters: They have such metadata.
    """

    node_ids: Sequence[str] | None = None
    doc_ids: Sequence[str] | None = None
    filters: MetadataFilters | None = None

    @property
    def condition(self) -> Condition | None:
        """What the filters mean; None where there are none.

        Raises:
            InvalidFilterError: They cannot mean anything.
        """
        return None if self.filters is None else parse_filters(self.filters)
