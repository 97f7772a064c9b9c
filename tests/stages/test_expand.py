"""Hits are shown with the text around them: exactly, within a budget, and only what is visible."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import BaseNode, Document, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilters

from llama_retrieval_ext import RRF, KnowledgeBase, MemoryManager, Query, RAGGenerator, branches
from llama_retrieval_ext.config import Registry, from_yaml, to_yaml
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.drivers import run
from llama_retrieval_ext.filters import matches
from llama_retrieval_ext.knowledge_base import ConversationParser
from llama_retrieval_ext.knowledge_base.passages import PassageParser
from llama_retrieval_ext.pipeline.chains import refined
from llama_retrieval_ext.results import Contribution, Hit
from llama_retrieval_ext.retrievers import RetrievalPipeline
from llama_retrieval_ext.retrievers.single_search import KeywordRetriever
from llama_retrieval_ext.scope import DOCUMENT_FIELD, Scope
from llama_retrieval_ext.stages import Expand
from llama_retrieval_ext.stores import EmbeddedVectorStore
from llama_retrieval_ext.stores.encoding.values import filterable
from llama_retrieval_ext.stores.engine.filters import Target
from llama_retrieval_ext.testing import FakeEmbedding, FakeRetriever, ScriptedLLM
from tests.cases import cases
from tests.patience import unless_stalled
from tests.quick import examples
from tests.servers.elasticsearch import elasticsearch_url
from tests.stores.engines import filled

__all__ = ["elasticsearch_url"]

MODEL = FakeEmbedding(dim=4)
SMALL = PassageParser(chunk_size=40, chunk_overlap=8)
ENGINES = ["embedded", "qdrant", "milvus", "elasticsearch"]
DAYS = [f"On day {number} of the trip we walked {number} miles uphill." for number in range(40)]
DIARY = f"# Trip\n\n{' '.join(DAYS[:20])}\n\n## Return\n\n{' '.join(DAYS[20:])}"


def passages(text: str, id_: str = "diary", parser: Any = SMALL, **metadata: Any) -> list[TextNode]:
    document = Document(id_=id_, text=text, metadata={"file_name": "diary.md", **metadata})
    document.excluded_embed_metadata_keys = document.excluded_llm_metadata_keys = [*metadata]
    nodes = [node for node in parser([document]) if isinstance(node, TextNode)]
    for node in nodes:
        node.embedding = [1.0, 0.0, 0.0, 0.0]
    return nodes


def hits_of(nodes: Sequence[TextNode]) -> list[Hit]:
    return [Hit(node=node, score=1 - n / 100, source="x") for n, node in enumerate(nodes)]


def expanded(stage: Expand, hits: Sequence[Hit], query: str | Query = "trip") -> list[Hit]:
    return run(refined(stage, Query.of(query), hits))


def plain(text: str) -> str:
    """The text with one character for each of white space."""
    return "".join("_" if letter.isspace() else letter for letter in text)


@pytest.fixture
def store() -> Iterator[EmbeddedVectorStore]:
    with EmbeddedVectorStore(":memory:") as store:
        yield store


LINES = st.sampled_from(
    [
        *("# Leave", "## Sick", "", "25 days. Or 30? Ask!", "same", "年假二十五天。病假另计。"),
        *("word " * 30, "| a | b |", "|---|---|", "| 1 | 2 |", "  indented", "x" * 90, "```"),
    ]
)


class ListedStore(SimpleVectorStore):
    """Gives nodes of a list."""

    stores_positions: ClassVar[bool] = True
    listed: Sequence[TextNode] = ()

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        assert node_ids is None
        assert filters is not None
        condition = Target(filters=filters).condition
        return [
            node
            for node in self.listed
            if matches(condition, {**filterable(node), DOCUMENT_FIELD: node.ref_doc_id})
        ]


@pytest.mark.slow
@examples(60)
@given(
    texts=st.lists(st.lists(LINES, max_size=40).map("\n".join), min_size=1, max_size=3),
    tokens=st.integers(1, 200),
    choose=st.randoms(use_true_random=False),
)
def test_an_expanded_text_is_that_of_its_document_at_its_position(
    texts: list[str], tokens: int, choose: Any
) -> None:
    nodes = [node for n, text in enumerate(texts) for node in passages(text, f"d{n}")]
    hits = hits_of(choose.sample(nodes, min(len(nodes), 5)))
    store = ListedStore()
    store.listed = nodes
    found = expanded(Expand(tokens, store=store), hits)
    by_id = {hit.node_id: hit for hit in hits}
    for hit in found:
        assert hit.start is not None
        assert hit.end is not None
        document = f"{hit.node.ref_doc_id}"
        assert plain(hit.text) == plain(texts[int(document[1:])][hit.start : hit.end])
        own = by_id[hit.node_id]
        assert hit.node.metadata.get("heading_path") == own.node.metadata.get("heading_path")
        assert (hit.score, hit.start <= (own.start or 0), hit.end >= (own.end or 0)) == (
            own.score,
            True,
            True,
        )
    for node in nodes:  # no passage is shown twice
        start, end = node.start_char_idx or 0, node.end_char_idx or 0
        shown = [hit for hit in found if hit.node.ref_doc_id == node.ref_doc_id]
        assert sum((hit.start or 0) <= start < end <= (hit.end or 0) for hit in shown) <= 1
    assert [hit.score for hit in found] == sorted((hit.score or 0 for hit in found), reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 70, 5000])
def test_an_expanded_hit_keeps_to_its_budget(store: EmbeddedVectorStore, tokens: int) -> None:
    nodes = passages(DIARY)
    store.add(nodes)
    for node in nodes:
        (hit,) = expanded(Expand(tokens, store=store), hits_of([node]))
        size = len(SMALL._splitter._tokenizer(hit.text))
        assert size <= max(tokens, len(SMALL._splitter._tokenizer(node.text)))
        if tokens == 5000:
            assert ("Return" in hit.text) == (node.metadata.get("heading_path") == "Return")


def test_a_hit_that_a_better_one_shows_is_merged_into_it(store: EmbeddedVectorStore) -> None:
    nodes = passages(DIARY)
    store.add(nodes)
    found = hits_of([nodes[1], nodes[-1], nodes[3], nodes[2]])
    part = (Contribution("vector", 1, 0.9, 1.0, 0.9),)
    found[0] = found[0].model_copy(update={"contributions": part})
    best, last = expanded(Expand(200, store=store), found)
    assert (best.node_id, best.score, best.contributions) == (nodes[1].node_id, 1.0, part)
    assert (last.node_id, last.score) == (nodes[-1].node_id, 0.99)
    assert all(node.text in best.text for node in nodes[1:4])


@pytest.mark.parametrize("tokens", [1, 45, 90])
def test_hits_next_to_each_other_are_not_merged_beyond_the_budget(
    store: EmbeddedVectorStore, tokens: int
) -> None:
    nodes = passages(DIARY)[:6]
    store.add(nodes)
    found = expanded(Expand(tokens, store=store), hits_of(nodes))
    assert len(found) == (2 if tokens == 90 else 6)
    assert max(len(SMALL._splitter._tokenizer(hit.text)) for hit in found) <= max(tokens, 40)


def test_the_other_side_is_shown_if_the_next_passage_does_not_fit() -> None:
    texts = ["Small before.", "The hit.", "A long passage. " * 20]
    store, position = ListedStore(), 0
    nodes = [TextNode(id_=f"{n}", text=text) for n, text in enumerate(texts)]
    for node in nodes:
        node.start_char_idx, node.end_char_idx = position, position + len(node.text)
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="d")
        position = node.end_char_idx
    for node, after in pairwise(nodes):
        node.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=after.node_id)
    store.listed = nodes
    (hit,) = expanded(Expand(20, store=store), hits_of(nodes[1:2]))
    assert hit.text == "Small before.The hit."


def test_documents_of_two_stores_with_the_same_id_are_not_mixed() -> None:
    texts = {"a": DIARY, "b": DIARY.replace("uphill", "home")}
    found: dict[str, list[Hit]] = {}
    with EmbeddedVectorStore(":memory:") as one, EmbeddedVectorStore(":memory:") as other:
        for store, name in ((one, "a"), (other, "b")):
            store.add(passages(texts[name]))
            found[name] = KeywordRetriever(store, top_k=1, name=name).search("day 4 miles").hits
        both = expanded(Expand(200), [*found["a"], *found["b"]])
    for hit, name in zip(both, texts, strict=True):
        assert plain(hit.text) == plain(texts[name][hit.start : hit.end])
        assert len(hit.text) > 2 * len(found[name][0].text)


def kept(text: str, tenant: str) -> list[TextNode]:
    nodes = passages(text, "diary", tenant_id=tenant)
    for node in nodes:
        node.id_ = f"{tenant}-{node.start_char_idx}"
    for before, node in pairwise(nodes):
        before.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=node.node_id)
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
async def test_neighbours_are_read_at_once_and_only_what_is_visible(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    nodes = kept(DIARY, "acme")
    for node in nodes:
        if "day 9 " in node.text:
            node.metadata["allowed"] = ["user:bob"]
    hidden = min(node.start_char_idx or 0 for node in nodes if "allowed" in node.metadata)
    others = kept(DIARY.replace("trip", "secret"), "globex")
    with filled(engine, [*nodes, *others], request=request, folder=tmp_path) as backend:
        source = KeywordRetriever(backend, top_k=2)
        for scope, bound in (
            (Scope("acme"), source >> Expand(5000)),
            (Scope("acme", principals=["user:ann"]), source >> Expand(5000)),
            (None, source.for_scope(Scope("acme")) >> Expand(5000)),
        ):
            result = bound.search(Query("day 4 miles", scope=scope))
            assert result.trace is not None
            assert result.trace.outline().count("neighbours") == 1
            best, *rest = result.hits
            assert (best.start, plain(best.text)) == (0, plain(DIARY[: best.end]))
            assert (best.end or 0) < hidden
            assert "day 5 " in best.text
            assert not any("secret" in hit.text for hit in [best, *rest])
            assert not result.degraded
            again = await bound.asearch(Query("day 4 miles", scope=scope))
            assert [hit.text for hit in again] == [hit.text for hit in [best, *rest]]


@pytest.mark.slow
@cases("kind", ["vector", "keyword", "hybrid", "llama_hybrid", "fusion", "auto"])
def test_hits_of_each_retriever_of_a_knowledge_base_are_expanded(kind: Any) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL, transformations=[SMALL]) as kb:
        kb.add([Document(id_="d", text=DIARY)], show_progress=False)
        source = kb.retriever(kind, top_k=2)
        short, shown = source.search("day 4 miles"), (source >> Expand(200)).search("day 4 miles")
        assert not shown.degraded
        assert len(shown[0].text) > 2 * len(short[0].text)


def test_messages_are_shown_with_their_session_and_its_speakers() -> None:
    said = [("Ann", "Did the course go well?"), ("Bob", "Yes, last May!"), ("Ann", "Great.")]
    other = [("Bob", "Yes, last May!"), ("Eve", "A secret.")]
    lines = "\n".join(f"{speaker}: {text}" for speaker, text in said)
    parser = ConversationParser()
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL, transformations=[parser]) as kb:
        kb.add(
            [parser.document(each, session_id=name) for name, each in (("1", said), ("2", other))],
            show_progress=False,
        )
        hits = (kb.retriever("keyword") >> Expand(100)).search("Did the course go well?").hits
        assert [hit.text for hit in hits if hit.node.ref_doc_id == "1"] == [lines]
        assert (hits[0].start, hits[0].end) == (0, len(lines))
        few = kb.retriever("keyword", top_k=1) >> Expand(18)
        near = few.search("Did the course go well?")
        assert near[0].text == lines.rpartition("\n")[0]


@pytest.mark.slow
@cases("scope", [Scope("a", principals=["user:ann"]), Scope("a")])
def test_memories_are_shown_with_those_of_their_session(scope: Scope) -> None:
    with KnowledgeBase.open("embedded::memory:", embed_model=MODEL) as kb:
        memories = MemoryManager(kb)
        for owner, session, text in (
            *(("user:ann", "s", f"Line {number}") for number in range(3)),
            *(("user:bob", "s", "A secret line"), ("user:ann", "other", "Another line")),
        ):
            memories.remember(
                text,
                session_id=session,
                speaker="Ann",
                timestamp=datetime(2026, 5, 1, tzinfo=UTC),
                scope=Scope("a", principals=[owner]),
            )
        found = (kb.retriever("keyword", scope=scope) >> Expand(100)).search("Line 1").hits
        assert found[0].text == "Ann: Line 0\nAnn: Line 1\nAnn: Line 2"
        assert (found[0].start, found[0].end) == (None, None)


class FailingStore(SimpleVectorStore):
    """Fails to give nodes, after some time."""

    stores_positions: ClassVar[bool] = True
    wait_s: float = 0.0

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        del node_ids, filters
        time.sleep(self.wait_s)
        raise TimeoutError("it does not answer")


@pytest.mark.parametrize("late", [False, True])
@unless_stalled
def test_hits_stay_as_they_are_if_their_neighbours_cannot_be_read(late: bool) -> None:
    nodes, source = passages(DIARY)[:2], FakeRetriever()
    source.hits = [*hits_of(nodes)]
    store = FailingStore()
    store.wait_s = 0.4 if late else 0.0
    query = Query("trip", timeout_s=0.2 if late else None)
    result = (branches(source) >> RRF() >> Expand(store=store)).search(query)
    assert [hit.text for hit in result] == [node.text for node in nodes]
    assert [part.where for part in result.degraded] == ["Expand"]


def test_hits_without_a_known_position_stay_as_they_are(store: EmbeddedVectorStore) -> None:
    source = FakeRetriever([("a", 0.5, "a text"), ("b", 0.4, "another")])
    for stage in (Expand(), Expand(store=store)):
        result = (branches(source) >> RRF() >> stage).search("text")
        assert [hit.text for hit in result] == ["a text", "another"]
        assert result.degraded[0].reason == "2 of 2 hits have no known position"


def test_metadata_of_a_user_with_our_names_do_no_harm(store: EmbeddedVectorStore) -> None:
    nodes = passages(DIARY, memory_turn=1, heading_path=["Trip", "Return"])
    for node in nodes:
        node.metadata["heading_path"] = ["Trip", "Return"]
    store.add([*nodes, *passages("Another text.", "other", memory_turn=1)])
    (hit,) = expanded(Expand(200, store=store), hits_of(nodes[2:3]))
    assert hit.start is not None
    assert hit.end is not None
    assert plain(hit.text) == plain(DIARY[hit.start : hit.end])
    assert len(hit.text) > len(nodes[2].text)


def test_a_pipeline_with_it_survives_yaml_and_the_builder(store: EmbeddedVectorStore) -> None:
    store.add(passages(DIARY))
    source = KeywordRetriever(store, top_k=1, name="words")
    pipeline = RetrievalPipeline("shown").add_stage(source).add_stage(Expand(200))
    text = to_yaml(pipeline, live={"store": store})
    assert "Expand" in text
    again = from_yaml(text, Registry().bind(objects={"store": store}))
    assert again.retrieve("day 4 miles")[0].text == pipeline.retrieve("day 4 miles")[0].text


def test_citations_point_at_the_text_that_was_shown(store: EmbeddedVectorStore) -> None:
    store.add(passages(DIARY))
    pipeline = KeywordRetriever(store, top_k=1) >> Expand(200)
    answer = RAGGenerator(pipeline, llm=ScriptedLLM(["We walked 4 miles uphill [1]."])).generate(
        "How far on day 4?"
    )
    (cited,) = answer.citations
    assert cited.document_id == "diary"
    assert plain(DIARY[cited.start : cited.end]) == plain(cited.hit.text)
    assert answer.to_dict()["citations"][0]["start"] == cited.start  # type: ignore[index]


def test_a_citation_of_a_shortened_passage_ends_where_the_prompt_ends(
    store: EmbeddedVectorStore,
) -> None:
    store.add(passages(DIARY))
    llm = ScriptedLLM(["We walked 4 miles uphill [1]."], context_window=400, num_output=100)
    answer = RAGGenerator(KeywordRetriever(store, top_k=1) >> Expand(5000), llm=llm).generate(
        "How far on day 4?"
    )
    (cited,) = answer.citations
    assert plain(cited.hit.text) == plain(DIARY[cited.start : cited.end])
    assert cited.hit.text[-50:] in llm.prompts[0]
    assert "day 19 " not in cited.hit.text


@cases("wrong", [{"tokens": 0}, {"tokens": "many"}, {"store": "kb"}])
def test_a_wrong_argument_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        Expand(**wrong)
