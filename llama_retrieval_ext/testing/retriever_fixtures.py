"""What the parts of the retriever contract start from."""

from collections.abc import Sequence
from typing import ClassVar

from llama_index.core.schema import NodeWithScore

from llama_retrieval_ext.query import Scope
from llama_retrieval_ext.ranking import node_ids, score_of
from llama_retrieval_ext.stages.algebra.retriever import Retriever
from llama_retrieval_ext.testing.corpus import SAMPLE_QUERIES, sample_nodes
from llama_retrieval_ext.testing.with_pytest import pytest

CORPUS_SIZE = len(sample_nodes())


class RetrieverFixtures:
    """Fixtures and settings that a subclass of a contract overrides.

    Attributes:
        queries: Each must find nodes of both tenants of the sample corpus.
        prefix_stable: Whether a smaller ``top_k`` gives the beginning of a larger one. Switch it
            off only where the number of hits is an input to the ranking.
        independent: Whether a hit that a narrower query may see is found by it as well. Switch it
            off only where paths lead to hits through nodes that it may not see.
    """

    queries: ClassVar[tuple[str, ...]] = SAMPLE_QUERIES
    prefix_stable: ClassVar[bool] = True
    independent: ClassVar[bool] = True

    @pytest.fixture
    def retriever(self) -> Retriever:
        """The retriever under test, over `sample_nodes`; every subclass has its own."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named retriever")

    @pytest.fixture
    def empty_retriever(self, retriever: Retriever) -> Retriever:
        """The same kind of retriever over nothing; unless overridden, in the scope of nobody."""
        return retriever.for_scope(Scope("nobody"))


def assert_same_ranking(first: Sequence[NodeWithScore], second: Sequence[NodeWithScore]) -> None:
    """Fail unless two rankings have the same ids in the same order, and the same scores."""
    assert node_ids(first) == node_ids(second)
    assert [score_of(hit) for hit in first] == pytest.approx([score_of(hit) for hit in second])
