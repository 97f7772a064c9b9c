"""`GraphRetriever`: what it finds over hops and by walks, how it explains it, and what may fail."""

import asyncio
from collections.abc import Collection, Iterator
from unittest.mock import create_autospec

import pytest
from llama_index.core.graph_stores.simple_labelled import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import ChunkNode, EntityNode, Relation
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from llama_retrieval_ext import HybridRetriever, KeywordRetriever, Scope
from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.execution import Call
from llama_retrieval_ext.graph import PassageGraphs
from llama_retrieval_ext.graph.elements import Contents, Edge, GraphNode
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers import GraphRetriever, QueryFusionRetriever
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, FixedRetriever
from tests.cases import cases

MODEL = FakeEmbedding()
TEXTS = {
    "film": ("Night Train", "Night Train is a film directed by Anne Lister."),
    "anne": ("Anne Lister", "She was born in the town of Halifax."),
    "town": ("Halifax", "The harbour is old."),
    "other": ("Gardens", "Roses grow slowly."),
}


def nodes_of(texts: dict[str, tuple[str, str]], **metadata: str) -> list[TextNode]:
    """Return embedded nodes with titles."""
    return [
        TextNode(
            id_=id_,
            text=text,
            metadata={"title": title, **metadata},
            embedding=MODEL.get_text_embedding(text),
        )
        for id_, (title, text) in texts.items()
    ]


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as opened:
        opened.add(nodes_of(TEXTS))
        yield opened


@pytest.fixture
def graph() -> Iterator[EmbeddedGraph]:
    with EmbeddedGraph(":memory:") as opened:
        opened.upsert(*passage_rows(nodes_of(TEXTS), PassageLinks()))
        yield opened


class TestEntitySearch:
    @pytest.fixture
    def graph(self) -> Iterator[EmbeddedGraph]:
        """Crane -- film -- train -- anne -- ticket -- town, where every second one is an entity."""
        nodes = [
            GraphNode(id_, "text_chunk", properties={"title": t}, text=x)
            for id_, (t, x) in TEXTS.items()
        ]
        edges = [
            Edge.of("film", "MENTIONS", "crane"),
            Edge.of("film", "MENTIONS", "train"),
            Edge.of("anne", "MENTIONS", "train"),
            Edge.of("crane", "USED_WITH", "hook"),
            Edge.of("town", "MENTIONS", "hook"),
        ]
        with EmbeddedGraph(":memory:") as opened:
            opened.upsert(nodes, edges)
            yield opened

    def test_each_hop_multiplies_the_score_by_seven_tenths(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        hits = GraphRetriever(store, graph=graph).search("a crane?").hits
        assert [(h.node_id, h.hop_distance, round(h.score or 0, 3)) for h in hits] == [
            ("film", 0, 1.0),
            ("town", 1, 0.7),
            ("anne", 2, 0.49),
        ]
        assert [hit.path for hit in hits] == [
            "crane <-MENTIONS- film",
            "crane -USED_WITH-> hook <-MENTIONS- town",
            "crane <-MENTIONS- film -MENTIONS-> train <-MENTIONS- anne",
        ]
        assert all(hit.matched_entities == ("crane",) for hit in hits)

    def test_max_hops_and_fan_out_limit_the_hops(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        near = GraphRetriever(store, graph=graph, max_hops=1)
        assert node_ids(near.retrieve("crane")) == ["film", "town"]
        off = GraphRetriever(store, graph=graph, enable_multi_hop=False)
        assert node_ids(off.retrieve("crane")) == ["film"]
        one_link = GraphRetriever(store, graph=graph, fan_out=1)
        assert node_ids(one_link.retrieve("crane")) == ["film"]

    def test_a_passage_that_all_named_entities_lead_to_comes_first(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        hits = GraphRetriever(store, graph=graph).search("crane and train").hits
        assert hits[0].node_id == "film"
        assert hits[0].matched_entities == ("crane", "train")
        assert hits[0].score == 1.0
        assert hits[1].node_id == "anne"
        assert hits[1].score == pytest.approx((1 + 0.49) / 2)

    def test_no_path_leads_through_a_passage_that_a_filter_excludes(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        titles = ["Anne Lister", "Halifax"]
        among = MetadataFilter(key="title", value=titles, operator=FilterOperator.IN)
        only = MetadataFilters(filters=[among])
        hits = GraphRetriever(store, graph=graph).search("crane", filters=only).hits
        assert node_ids(hits) == ["town"]  # anne is reached by film alone

    def test_a_graph_that_llama_index_wrote_leads_to_the_passages_it_was_extracted_from(
        self, store: EmbeddedVectorStore
    ) -> None:
        written = SimplePropertyGraphStore()
        chunks = [ChunkNode(text=text, id_=id_) for id_, (_, text) in TEXTS.items()]
        crane = EntityNode(name="crane", properties={"triplet_source_id": "film"})
        hook = EntityNode(name="hook", properties={"triplet_source_id": "anne"})
        written.upsert_nodes([*chunks, crane, hook])
        source = {"triplet_source_id": "town"}
        written.upsert_relations(
            [Relation(label="USES", source_id="crane", target_id="hook", properties=source)]
        )
        hits = GraphRetriever(store, graph=written).search("crane").hits
        assert [(hit.node_id, hit.hop_distance) for hit in hits] == [
            ("film", 0),
            ("anne", 1),
            ("town", 1),
        ]

    def test_a_query_that_names_nothing_finds_nothing(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        retriever = GraphRetriever(store, graph=graph, embed_model=MODEL)
        assert retriever.retrieve("zebra") == []
        assert asyncio.run(retriever.aretrieve("zebra")) == []


class TestWalk:
    def test_passages_that_others_name_are_found_with_the_path_there(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        seed = FixedRetriever([("film", 1.0)])
        retriever = GraphRetriever(store, graph=graph, seed=seed, embed_model=MODEL)
        hits = retriever.search("Where was the director of Night Train born?").hits
        assert set(node_ids(hits)) == {"film", "anne", "town"}
        by_id = {hit.node_id: hit for hit in hits}
        assert by_id["film"].matched_entities == ("Night Train",)
        assert (by_id["film"].hop_distance, by_id["film"].path) == (0, "Night Train")
        town = by_id["town"]
        assert town.hop_distance == 2
        assert town.path == "Night Train -NAMES-> Anne Lister -NAMES-> Halifax"
        assert town.to_dict()["path"] == town.path
        assert town.to_dict()["matched_entities"] == ["Night Train"]
        assert all(0 < (hit.score or 0) <= 1 for hit in hits)

    def test_the_path_of_a_graph_hit_is_kept_by_a_fusion(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        walk = GraphRetriever(store, graph=graph, seed=KeywordRetriever(store))
        fused = QueryFusionRetriever(
            {"graph": walk, "kw": KeywordRetriever(store)}, num_queries=1, similarity_top_k=9
        )
        hits = {hit.node_id: hit for hit in fused.search("director of Night Train").hits}
        assert "NAMES" in hits["anne"].path
        assert hits["anne"].hop_distance == 1
        assert hits["anne"].contributions

    def test_hits_of_the_seed_that_the_graph_lacks_are_kept(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        store.add(nodes_of({"new": ("News", "A film of today.")}))
        retriever = GraphRetriever(
            store, graph=graph, seed=HybridRetriever(store, embed_model=MODEL), embed_model=MODEL
        )
        assert "new" in node_ids(retriever.retrieve("film"))
        with EmbeddedGraph(":memory:") as empty:
            alone = GraphRetriever(store, graph=empty, seed=KeywordRetriever(store))
            assert set(node_ids(alone.retrieve("film"))) == {"new", "film"}

    def test_a_passage_written_to_the_graph_is_found_by_the_next_query(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        retriever = GraphRetriever(store, graph=graph, seed=KeywordRetriever(store))
        assert "port" not in node_ids(retriever.retrieve("Night Train"))
        new = nodes_of({"port": ("Ports", "Night Train has a harbour scene.")})
        store.add(new)
        graph.upsert(*passage_rows(new, PassageLinks()))
        assert "port" in node_ids(retriever.retrieve("Night Train"))

    def test_a_failing_graph_keeps_the_hits_of_the_seed_and_degrades(
        self, store: EmbeddedVectorStore
    ) -> None:
        seed = KeywordRetriever(store)
        result = GraphRetriever(
            store, graph=PassageGraphs(_Unreachable(":memory:")), seed=seed
        ).search("film")
        assert node_ids(result.hits) == node_ids(seed.retrieve("film"))
        assert [part.where for part in result.degraded] == ["graph"]
        assert "down" in result.degraded[0].reason

    def test_a_seed_without_scores_counts_by_rank(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        seed = FakeRetriever([("anne", None), ("film", None)])
        found = GraphRetriever(store, graph=graph, seed=seed).retrieve("who?")
        assert node_ids(found)[0] == "anne"

    def test_similarity_is_by_the_model_of_a_seed_over_the_same_store(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        seed = HybridRetriever(store, embed_model=MODEL)
        assert GraphRetriever(store, graph=graph, seed=seed).embed_model is MODEL
        with EmbeddedVectorStore(path=":memory:") as other:
            assert GraphRetriever(other, graph=graph, seed=seed).embed_model is None

    def test_filters_hold_on_every_step_of_a_walk(
        self, store: EmbeddedVectorStore, graph: EmbeddedGraph
    ) -> None:
        no_film = MetadataFilters(
            filters=[MetadataFilter(key="title", value="Night Train", operator=FilterOperator.NE)]
        )
        retriever = GraphRetriever(store, graph=graph, seed=FixedRetriever([("town", 1.0)]))
        assert "anne" in node_ids(retriever.retrieve("Night Train"))
        hits = retriever.search("Night Train", filters=no_film).hits
        assert all("Night Train" not in hit.path for hit in hits)
        assert "film" not in node_ids(hits)

    def test_texts_of_a_walk_are_read_in_one_request(
        self, graph: EmbeddedGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        get_nodes = EmbeddedVectorStore.get_nodes
        read = create_autospec(get_nodes, side_effect=get_nodes)
        monkeypatch.setattr(EmbeddedVectorStore, "get_nodes", read)
        with EmbeddedVectorStore(":memory:") as store:
            store.add(nodes_of(TEXTS))
            seed = KeywordRetriever(store)
            retriever = GraphRetriever(store, graph=graph, seed=seed, embed_model=MODEL)
            assert len(retriever.retrieve("director of Night Train")) == 3
        assert read.call_count == 1


class _Unreachable(EmbeddedGraph):
    """A graph whose server is down."""

    def plan_contents(
        self, ids: Collection[str] | None = None, *, scope: Scope | None = None
    ) -> Call[Contents]:
        del ids, scope

        def fail() -> Contents:
            raise StoreUnavailableError("the server is down")

        return Call(fail)


@cases(
    ("wrong", "named"),
    [
        ({"max_hops": 0}, "max_hops"),
        ({"fan_out": 0}, "fan_out"),
        ({"linker": "x"}, "linker"),
        ({"seed": 1}, "seed"),
    ],
)
def test_graph_retriever_arguments_out_of_range_are_refused(
    store: EmbeddedVectorStore, graph: EmbeddedGraph, wrong: dict[str, int], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        GraphRetriever(store, graph=graph, **wrong)  # type: ignore[arg-type]
