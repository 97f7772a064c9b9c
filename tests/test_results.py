import json
import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import (
    Document,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from llama_retrieval_ext import KnowledgeBase, LocalEmbedding
from llama_retrieval_ext.errors import ScoreError
from llama_retrieval_ext.hits import as_hit, ordered, score_of
from llama_retrieval_ext.results import Contribution, Hit, SearchResult, answered
from llama_retrieval_ext.text import highlighting
from llama_retrieval_ext.trace import Degradation, Trace
from tests.cases import cases


def hit(node_id: str, score: float | None, source: str = "vector") -> Hit:
    return Hit(node=TextNode(id_=node_id, text="text"), score=score, source=source)


def full_node() -> TextNode:
    return TextNode(
        id_="n1",
        text="annual leave",
        metadata={"kb_id": "handbook", "year": 2024},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc1")},
    )


HITS = st.lists(
    st.builds(
        hit,
        st.text("abc", min_size=1, max_size=2),
        st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 0.5]),
    )
)


@given(HITS)
def test_ordered_is_best_first_with_ties_by_node_id(hits: list[Hit]) -> None:
    keys = [(-score_of(each), each.node_id) for each in ordered(hits)]
    assert keys == sorted(keys)


@given(HITS)
def test_ordered_keeps_each_node_once_with_its_best_score(hits: list[Hit]) -> None:
    best: dict[str, float] = {}
    for each in hits:
        best[each.node_id] = max(best.get(each.node_id, -math.inf), score_of(each))
    assert {each.node_id: each.score for each in ordered(hits)} == best
    assert len(ordered(hits)) == len(best)


@cases("score", [None, math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_finite_number_is_refused(score: float | None) -> None:
    with pytest.raises(ScoreError, match="'n1' has the score"):
        score_of(hit("n1", score))
    with pytest.raises(ScoreError):
        ordered([hit("n2", 0.5), hit("n1", score)])


def test_as_hit_makes_a_new_hit_with_the_source() -> None:
    plain = NodeWithScore(node=full_node(), score=0.5)
    made = as_hit(plain, source="vector")
    assert (made.node, made.score, made.source) == (plain.node, 0.5, "vector")
    assert made.node is plain.node
    made.score = 0.0
    assert plain.score == 0.5


def test_a_hit_keeps_its_source_priority_and_contributions() -> None:
    part = Contribution("vector", 1, 0.9, 1.0, 0.02)
    original = Hit(node=full_node(), score=0.5, source="a", priority=3, contributions=(part,))
    made = as_hit(original, source="b")
    assert made == original
    assert made is not original
    assert as_hit(hit("n1", 0.5, source=""), source="b").source == "b"


def test_a_hit_is_a_node_with_score_of_llama_index() -> None:
    found = hit("n1", 0.5)
    assert isinstance(found, NodeWithScore)
    assert (found.node_id, found.get_score(), found.text) == ("n1", 0.5, "text")
    assert found.class_name() == "Hit"


def test_a_hit_is_json_with_documented_names() -> None:
    data = json.loads(json.dumps(Hit(node=full_node(), score=0.5, source="vector").to_dict()))
    assert data == {
        "node_id": "n1",
        "text": "annual leave",
        "score": 0.5,
        "metadata": {"kb_id": "handbook", "year": 2024},
        "kb_id": "handbook",
        "document_id": "doc1",
        "source": "vector",
    }


def test_a_hit_is_shown_in_a_line_and_prints_as_llama_index_s() -> None:
    found = Hit(node=TextNode(id_="n1", text="years of leave\n" * 50), score=0.5, source="vector")
    shown = repr([found])
    assert "Hit('n1', score=0.5, source='vector', text='years of leave\\nyears" in shown
    assert len(shown) < 200
    assert "score=0.3333," in repr(Hit(node=found.node, score=1 / 3))
    assert repr(Hit(node=TextNode(id_="n2", text="年假"))).endswith("source='', text='年假')")
    assert str(found) == str(NodeWithScore(node=found.node, score=0.5))


def test_the_json_of_a_hit_has_priority_and_contributions_where_they_exist() -> None:
    part = Contribution(leg="vector", rank=1, score=0.9, weight=0.7, share=0.0115)
    data = Hit(node=full_node(), score=0.5, priority=0, contributions=(part,)).to_dict()
    assert data["priority"] == 0
    assert data["contributions"] == [
        {"leg": "vector", "rank": 1, "score": 0.9, "weight": 0.7, "share": 0.0115}
    ]


def test_the_json_of_a_result_has_its_details() -> None:
    result = SearchResult(
        [hit("n1", 0.5)],
        (Degradation("leg", "OSError: down"),),
        Trace("root", duration_s=0.1),
        {"generated_queries": ["one"]},
    )
    data = json.loads(json.dumps(result.to_dict()))
    assert data["hits"][0]["node_id"] == "n1"
    assert data["degraded"] == [{"where": "leg", "reason": "OSError: down"}]
    assert data["trace"]["name"] == "root"
    assert data["generated_queries"] == ["one"]


def test_a_result_without_a_trace_is_written_as_json() -> None:
    data = SearchResult([], query="leave").to_dict()
    assert data == {
        "query": "leave",
        "hits": [],
        "degraded": [],
        "hints": [],
        "corrected": None,
        "cursor": None,
        "trace": None,
    }


def test_a_result_is_the_sequence_of_its_hits() -> None:
    hits = [hit("a", 0.9), hit("b", 0.5), hit("c", 0.1)]
    result = SearchResult(hits)
    assert isinstance(result, Sequence)
    assert (len(result), list(result), result[0], result[-1]) == (3, hits, hits[0], hits[2])
    assert result[:2] == hits[:2]
    assert hits[1] in result
    assert result
    assert not SearchResult([], (Degradation("leg", "down"),))


def test_a_whole_document_is_its_own_document() -> None:
    assert Hit(node=Document(id_="d1", text="annual leave")).to_dict()["document_id"] == "d1"
    assert Hit(node=full_node()).to_dict()["document_id"] == "doc1"


def test_a_hit_has_its_position_in_its_document_if_it_is_known() -> None:
    placed = Hit(node=TextNode(text="leave", start_char_idx=7, end_char_idx=12), score=1.0)
    assert (placed.start, placed.end) == (7, 12)
    assert placed.to_dict().items() >= {"start": 7, "end": 12}.items()
    unplaced = hit("n1", 1.0)
    assert (unplaced.start, unplaced.end) == (None, None)
    assert "start" not in unplaced.to_dict()


HANDBOOK = "Every employee of a café has 25 days of annual leave. 年假规定。"
TALK = "Welcome to us. The dog barks loudly. It rains."


@pytest.fixture(scope="module")
def pets() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=LocalEmbedding()) as kb:
        metadata = {
            "title": "Leaves",
            "heading_path": "Annual > Leave",
            "tags": ["x", "Annual things", 3],
            "file_name": "leave.md",
        }
        handbook = Document(text=HANDBOOK, id_="handbook", metadata=metadata)
        handbook.excluded_embed_metadata_keys = ["file_name"]
        kb.add([handbook, Document(text=TALK, id_="talk")], show_progress=False)
        yield kb


@cases(
    ("question", "marked"),
    [
        ("emploee CAFE", [("text", "employee"), ("text", "café")]),
        ("年假规", [("text", "年假规")]),
        ("leave", [("text", "leave"), ("title", "Leaves"), ("headings", "Leave")]),
        ("annual", [("text", "annual"), ("headings", "Annual"), ("tags", "Annual")]),
    ],
)
def test_words_of_the_question_are_highlighted_with_their_fields(
    pets: KnowledgeBase, question: str, marked: list[tuple[str, str]]
) -> None:
    for retrieved in (pets.search(question), pets.search(question, "keyword")):
        found = next(each for each in retrieved if each.node.ref_doc_id == "handbook")
        assert [(each.field, each.text) for each in found.highlights] == marked
        for highlight in found.highlights:
            key = "heading_path" if highlight.field == "headings" else highlight.field
            value = found.text if key == "text" else found.node.metadata[key]
            text = value if highlight.item is None else value[highlight.item]
            assert text[highlight.start : highlight.end] == highlight.text
            assert highlight.by == "words"
        data = [each.to_dict() for each in found.highlights]
        assert found.to_dict()["highlights"] == data
        assert json.loads(json.dumps(data)) == data
    (plain,) = pets.retriever("keyword", top_k=1).retrieve(question)
    assert isinstance(plain, Hit)
    assert plain.highlights or question == "emploee CAFE"


def test_a_hit_without_words_of_the_question_has_the_nearest_sentence(pets: KnowledgeBase) -> None:
    result = pets.search("a puppy makes noise", "vector")
    (highlight,) = result[0].highlights
    assert (highlight.text, highlight.by) == ("The dog barks loudly.", "meaning")
    assert result[0].text[highlight.start : highlight.end] == highlight.text
    assert "<mark>barks</mark>" in result._repr_html_()
    unknown = Hit(node=TextNode(text=TALK))
    assert (unknown.highlights, "highlights" in unknown.to_dict()) == ((), False)
    lexical = answered(unknown, "", "all barking")  # without a static model
    assert [each.text for each in lexical.highlights] == ["barks"]
    assert [each.text for each in answered(unknown, "", "doggish").highlights] == [
        "The dog barks loudly."
    ]
    assert answered(Hit(node=TextNode(text="...")), "", "dog").highlights == ()


def test_a_search_does_not_compute_highlights(
    pets: KnowledgeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(highlighting, "without_broken_words", never)
    result = pets.search("annual leave")
    with pytest.raises(AssertionError):
        _ = result[0].highlights


def test_changing_the_json_of_a_hit_does_not_change_the_node() -> None:
    found = Hit(node=full_node(), score=0.5)
    metadata = found.to_dict()["metadata"]
    assert isinstance(metadata, dict)
    metadata.clear()
    assert found.node.metadata == {"kb_id": "handbook", "year": 2024}
