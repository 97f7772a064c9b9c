"""The index of a store: whether it is there, how it is set up, and how it comes to be."""

from dataclasses import replace

from llama_retrieval_ext.errors import DimensionMismatchError, StoreError
from llama_retrieval_ext.stores.elasticsearch.index_params import IndexParams
from llama_retrieval_ext.stores.elasticsearch.manifest import Asked, Manifest
from llama_retrieval_ext.stores.elasticsearch.mapping import index_body
from llama_retrieval_ext.stores.elasticsearch.request import Request, Steps, request

# An index that is gone has no hits; one whose shards are in trouble must not give half of them.
SEARCH_PARAMS = {"ignore_unavailable": "true", "allow_partial_search_results": "false"}
_ABSENT_IS_EMPTY = {"ignore_unavailable": "true"}
_EXISTS = "resource_already_exists_exception"


class Index:
    """An index by its name, and what is known about it.

    Args:
        name: On the server.
        asked: What the one who opens the store asks for.
        params: How the index is made where it is not there yet.
    """

    def __init__(self, name: str, asked: Asked, params: IndexParams) -> None:
        self.name = name
        self.params = params
        self.manifest = asked.checked(None, name)
        self.is_there = False
        self.is_small = False  # as far as the last searches tell
        self._asked = asked

    def look(self) -> Steps[None]:
        """See whether it is there, and whether it is as asked.

        Raises:
            StoreFormatError: It is none of ours.
            ConfigurationError: It has another tokenizer, distance or setting.
            DimensionMismatchError: It has another dimension.
        """
        told = yield request("GET", self.name, params=_ABSENT_IS_EMPTY)
        recorded = Manifest.of_index(told, self.name)
        self.manifest = self._asked.checked(recorded, self.name)
        self.is_there = recorded is not None

    def known(self) -> Steps[bool]:
        """Whether it is there; looks again where it was not."""
        if not self.is_there:
            yield from self.look()
        return self.is_there

    def establish(self, dimension: int) -> Steps[Manifest]:
        """Make it if need be; every time, because a write to an index that is gone would make one.

        Args:
            dimension: Of the embeddings that are to be added.

        Raises:
            DimensionMismatchError: It takes another dimension.
        """
        yield from self.look()
        if not self.is_there:
            self.manifest = replace(self.manifest, dimension=self.manifest.dimension or dimension)
            try:
                yield self._creation()
            except StoreError as error:
                if _EXISTS not in str(error):
                    raise
            # Somebody else may have been first, with a dimension of their own.
            yield from self.look()
        if self.manifest.dimension != dimension:
            raise DimensionMismatchError(
                f"the nodes have embeddings of dimension {dimension}, the index {self.name!r} "
                f"takes {self.manifest.dimension}; use the embedding model that it was filled with"
            )
        return self.manifest

    def drop(self) -> Steps[None]:
        """Delete it; what is added next may have another dimension."""
        yield from self.look()  # so that nothing is deleted that is not ours
        yield request("DELETE", self.name, params=_ABSENT_IS_EMPTY)
        self.is_there = False

    def refresh(self) -> Request:
        """Make what was written visible to searches."""
        return request("POST", self.name, "_refresh", params=_ABSENT_IS_EMPTY)

    def _creation(self) -> Request:
        return request("PUT", self.name, body=index_body(self.manifest, self.params))
