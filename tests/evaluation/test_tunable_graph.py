"""The damping of a graph's walk as a setting."""

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.evaluation.judgements import Judgements
from llama_retrieval_ext.evaluation.tunable import Setting
from llama_retrieval_ext.evaluation.tunable_graph import SeededGraph
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.retrievers.graph import GraphRetriever
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.evaluation.conftest import Shifted, tuned


@pytest.mark.slow
def test_the_damping_of_a_walk_is_tried_on_the_seeds_saved_ranking() -> None:
    nodes = [
        TextNode(
            id_=f"n{n}",
            text=f"Film {n} was made by Anne {n + 1}.",
            embedding=[1.0, n / 9],
            metadata={"file_name": f"film{n}.txt"},
        )
        for n in range(9)
    ]
    with EmbeddedVectorStore(":memory:") as store, EmbeddedGraph(":memory:") as graph:
        store.add(list(nodes))
        graph.upsert(*passage_rows(nodes, PassageLinks()))
        seed = Shifted(2)
        retriever = GraphRetriever(store, graph=graph, seed=seed)
        judged = Judgements(
            {f"q{n}": f"film {n % 7}  {n}" for n in range(21)},
            # The seed's hits name no file: only the walk's own do.
            {f"q{n}": {f"film{n % 7}.txt": 1} for n in range(21)},
        )
        result = tuned(retriever, judged)
        assert len(seed.calls) == 21
        assert [choice.parameter for choice in result.choices] == ["damping"]
        assert result.table["nDCG@10"].max() > 0
        made = SeededGraph(retriever, seed).rebuilt(Setting(damping=0.8))
        assert isinstance(made, GraphRetriever)
        assert (made.damping, made.seed) == (0.8, seed)
