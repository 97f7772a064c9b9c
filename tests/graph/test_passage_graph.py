"""Which passages are linked, and by what."""

from collections.abc import Sequence

import numpy as np
import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.graph.elements import Edge, GraphNode
from llama_retrieval_ext.graph.passage_graph import PassageGraph
from llama_retrieval_ext.graph.passage_links import PassageLinks, passage_rows
from tests.cases import cases
from tests.graph.passages import FILLER, graph_of


def linked(graph: PassageGraph, first: str, second: str) -> bool:
    """Whether a walk can go from one passage to the other, directly or by a term they share."""
    here, there = graph.place_of[first], graph.place_of[second]
    is_direct = bool(graph.transitions[[there], [here]].any())
    return is_direct or bool(graph.terms_of(here) & graph.terms_of(there))


def test_a_passage_is_linked_to_the_one_whose_title_it_names() -> None:
    graph = graph_of(
        [
            ("film", "Night Train (film)", "A film, directed by ANNE LISTER in 1950."),
            ("anne", "Anne Lister", "Born in Leeds."),
            ("train", "Trains", "There are night trains. The night train to Leeds."),
            *FILLER,
        ]
    )
    assert linked(graph, "film", "anne")
    assert linked(graph, "train", "film")  # without its disambiguation, in small letters
    assert not linked(graph, "train", "anne")


def test_the_longest_title_counts_and_words_are_whole() -> None:
    graph = graph_of(
        [
            ("york", "York", "A city."),
            ("newyork", "New York", "Another."),
            ("yorker", "Magazines", "the new yorker is one"),
            ("a", "A town", "He went to New York."),
            *FILLER,
        ],
        PassageLinks(phrases=False),
    )
    assert linked(graph, "a", "newyork")
    assert not linked(graph, "a", "york")
    assert not linked(graph, "yorker", "newyork")


def test_an_acronym_is_linked_in_capitals_and_a_name_without_its_accents() -> None:
    graph = graph_of(
        [
            ("who", "WHO", "An organisation of health."),
            ("bare", "Bears", "who knows what a bear eats"),
            ("said", "Wolves", "The WHO says what a wolf eats"),
            ("zurich", "Zürich", "A city of lakes."),
            ("train", "Trains", "the last one to zurich"),
            *FILLER,
        ],
        PassageLinks(phrases=False),
    )
    assert linked(graph, "said", "who")
    assert not linked(graph, "bare", "who")
    assert linked(graph, "train", "zurich")
    assert graph.named_titles("who eats").keys() == set()
    assert graph.named_titles("what of the WHO").keys() == {graph.place_of["who"]}
    entity = GraphNode("e", "Team", "IT", {"aliases": ["WHO"]})
    passages = [GraphNode(f"p{n}", text="of any text") for n in range(2)]
    named = PassageGraph([entity, *passages], [Edge.of("p0", "MENTIONS", "e")], PassageLinks())
    assert named.named_terms("who said what it is") == {}
    assert len(named.named_terms("what IT is")) == len(named.named_terms("the WHO")) == 1


def test_generic_titles_link_nothing() -> None:
    shared = [(f"o{n}", "Overview", f"text {n}") for n in range(6)]
    popular = [(f"p{n}", f"page {n}", "See the Glossary.") for n in range(8)]
    graph = graph_of(
        [*shared, *popular, ("g", "Glossary", "Words."), ("x", "X1", "An overview."), *FILLER]
    )
    assert not any(linked(graph, "x", f"o{n}") for n in range(6))
    assert not any(linked(graph, f"p{n}", "g") for n in range(8))
    assert graph.named_titles("the overview") == {}


def test_titles_are_those_of_documents_however_many_passages_they_have() -> None:
    chunks = [
        TextNode(
            id_=f"c{n:02}",
            text=f"part {n}",
            metadata={"file_name": "site_rules.md"},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="rules")},
        )
        for n in range(20)
    ]
    other = TextNode(id_="x", text="see the site rules", metadata={"file_name": "x.md"})
    links = PassageLinks()
    graph = PassageGraph(*passage_rows([*chunks, other], links), links)
    found = [n for n in range(20) if linked(graph, "x", f"c{n:02}")]
    assert found == list(range(8))


def test_passages_are_linked_by_rare_phrases_in_capitals_or_known_from_elsewhere() -> None:
    graph = graph_of(
        [
            ("a", "a1", "He met Nicki Minaj there."),
            ("b", "b1", "a song by nicki minaj"),
            ("c", "c1", "The Crew met. However, nothing."),
            ("d", "d1", "The Queen spoke. However, nothing."),
            *FILLER,
        ]
    )
    assert linked(graph, "a", "b")
    assert not linked(graph, "c", "d")


@cases("text", ["根据《安全生产法》", "依照「安全生产法」执行", "深基坑安全生产法规"])
def test_chinese_passages_are_linked_by_quoted_and_recurring_text(text: str) -> None:
    chinese = [
        ("a", "一", "应当遵守《安全生产法》的规定"),
        ("b", "二", text),
        ("c", "三", "食堂十二点开饭"),
        *[(f"z{n}", str(n), "第" + chr(0x4E00 + 7 * n) + chr(0x5E00 + 11 * n)) for n in range(40)],
    ]
    graph = graph_of(chinese)
    assert linked(graph, "a", "b")
    assert not linked(graph, "a", "c")


def test_each_kind_of_evidence_has_a_switch() -> None:
    passages = [
        ("a", "a1", "Boso Elder wrote it."),
        ("b", "b1", "It was Boso Elder."),
        ("c", "c1", "see Old Rules"),
        ("d", "Old Rules", "none"),
        *FILLER,
    ]
    assert not linked(graph_of(passages, PassageLinks(phrases=False)), "a", "b")
    assert linked(graph_of(passages, PassageLinks(titles=False)), "a", "b")
    assert linked(graph_of(passages, PassageLinks(phrases=False)), "c", "d")
    assert not linked(graph_of(passages, PassageLinks(phrases=False, titles=False)), "c", "d")
    tagged = [TextNode(id_=id_, text="x", metadata={"tag": "pit"}) for id_ in "ab"]
    off = PassageLinks(entity_fields=["tag"], entities=False)
    assert not linked(PassageGraph(*passage_rows(tagged, off), off), "a", "b")
    on = PassageLinks(entity_fields=["tag"])
    assert linked(PassageGraph(*passage_rows(tagged, on), on), "a", "b")


def test_entities_that_a_model_extracted_link_passages() -> None:
    chunks = [GraphNode(id_, "text_chunk", text=f"text {id_}") for id_ in ("p", "q", "r")]
    entities = [GraphNode("pit", properties={"triplet_source_id": "p"}), GraphNode("crane")]
    edges = [
        Edge.of("pit", "USES", "crane", {"triplet_source_id": "q"}),
        Edge.of("q", "CITES", "r"),
    ]
    graph = PassageGraph([*chunks, *entities], edges, PassageLinks())
    assert linked(graph, "p", "q")
    assert linked(graph, "q", "r")
    assert not linked(graph, "p", "r")


def test_words_of_the_query_next_to_a_title_lead_the_walk() -> None:
    text = "A film directed by Anne Lister. It was shot in York and has music by Carl Bach."
    graph = graph_of(
        [("f", "Night Train", text), ("a", "Anne Lister", "x"), ("c", "Carl Bach", "y"), *FILLER]
    )
    restart = np.zeros(graph.node_count)
    restart[graph.place_of["f"]] = 1.0

    def better(query: str) -> str:
        scores = graph.walk(restart, query).scores
        return max("ac", key=lambda id_: scores[graph.place_of[id_]])

    assert better("who was the director of Night Train?") == "a"
    assert better("who made the music of Night Train?") == "c"


def test_metadata_gazetteer_and_ner_give_entities() -> None:
    links = PassageLinks(
        entity_fields=["tags"], gazetteer=["tower crane"], ner=lambda text: text.split()[:1]
    )
    node = TextNode(
        id_="n",
        text="Inspect every Tower Crane.",
        metadata={"tags": ["safety", 7], "tenant_id": "t"},
    )
    rows = passage_rows([node], links)
    assert {edge.id for edge in rows.edges} == {
        ("n", "MENTIONS", name) for name in ("Inspect", "safety", "tower crane")
    }
    assert all(node.properties["tenant_id"] == "t" for node in rows.nodes)


@cases("wrong", [{"entity_fields": "tags"}, {"gazetteer": [1]}, {"title_fields": "x"}, {"ner": 7}])
def test_passage_link_options_of_a_wrong_type_are_refused(wrong: dict[str, Sequence[str]]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        PassageLinks(**wrong)  # type: ignore[arg-type]
