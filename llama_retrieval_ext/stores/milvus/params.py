"""`MilvusParams`: how a collection is made and searched."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.stores.made_with import made_with

# Others it takes without a word, and searches without an index.
_OF_LITE: Final = ("FLAT", "HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8", "AUTOINDEX")
_KEPT: Final = ("index_type", "index_params", "consistency_level", "num_partitions")

# With which Milvus can go by documents, as its documentation of grouping searches lists them.
GROUPING: Final = (
    "AUTOINDEX",
    "DISKANN",
    "FLAT",
    "HNSW",
    "HNSW_PQ",
    "HNSW_PRQ",
    "HNSW_SQ",
    "IVF_FLAT",
    "IVF_SQ8",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MilvusParams:
    """What Milvus can be told beyond what every engine can.

    All but ``search_params`` counts when the collection is made. Of one that is there it must be
    what it was made with, or be left out.

    Attributes:
        index_type: Of the embeddings: ``HNSW``, ``IVF_FLAT``, ``IVF_PQ``, ``FLAT`` and others; None
            for ``AUTOINDEX``, and on Milvus Lite for ``FLAT``, which is exact, and faster there.
        index_params: Of that index, such as ``{"M": 16, "efConstruction": 200}``.
        search_params: Of searches in it, such as ``{"nprobe": 32}``; HNSW's ``ef`` is raised to the
            number of hits wanted.
        consistency_level: ``Session``, the default, shows a client what it has written itself;
            ``Strong``, ``Bounded`` and ``Eventually`` are the others.
        by_tenant: Whether the tenant is the partition key: searches in a tenant's scope then look
            into one part of the collection only; None for as it is, or no.
        num_partitions: How many parts that are; None for Milvus's own number.
        analyzer_params: Milvus's analyser that cuts the text of keyword search instead of this
            package's tokenizer.
    """

    index_type: str | None = None
    index_params: Mapping[str, Any] = field(default_factory=dict)  # Any: as pymilvus has them
    search_params: Mapping[str, Any] = field(default_factory=dict)
    consistency_level: str | None = None
    by_tenant: bool | None = None
    num_partitions: int | None = None
    analyzer_params: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The parameters that a mapping holds.

        Raises:
            ConfigurationError: It has an unknown key.

        Examples:
            >>> MilvusParams.of({"index_type": "HNSW"}).index_type
            'HNSW'

        """
        known = [each.name for each in fields(cls)]
        unknown = sorted(set(given).difference(known))
        if unknown:
            raise ConfigurationError(
                f"store_params has {', '.join(unknown)}; for Milvus there are {', '.join(known)}"
            )
        return cls(**given)

    @property
    def recorded(self) -> Mapping[str, Any]:
        """What counts when the collection is made, as JSON has it; some is recorded by itself."""
        return made_with(self, _KEPT)

    def check_lite(self) -> None:
        """Nothing, where Milvus Lite can make the index.

        Raises:
            ConfigurationError: It cannot.
        """
        if self.index_type not in (None, *_OF_LITE):
            raise ConfigurationError(
                f"Milvus Lite has no index_type {self.index_type!r}; it has {', '.join(_OF_LITE)}. "
                "Leave it out, or use a Milvus server"
            )
