"""The calls of the knowledge retriever for construction plans: rules first, then cases."""

from collections.abc import Iterator

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext import (
    KGRetriever,
    KnowledgeRetriever,
    RetrievalItem,
    VectorRetriever,
    open_graph,
    open_store,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.samples.construction_safety import construction_safety
from llama_retrieval_ext.testing import FakeEmbedding, FixedRetriever
from tests.cases import cases

PIT = "深基坑开挖"
SAFETY = "ch08_safety"
CASES = [
    ("case", 0.9, "地铁深基坑开挖案例", {"engineering_type": "地铁"}),
    ("weak", 0.55, "另一个案例", {}),
    ("form", 0.8, "开挖方案模板", {"collection": "templates"}),
    ("twin", 0.7, "地铁深基坑开挖案例", {}),
]


@pytest.fixture(scope="module")
def rules() -> Iterator[KGRetriever]:
    graph = open_graph("graph::memory:")
    graph.upsert(*construction_safety())
    yield KGRetriever(graph)
    graph.close()


@pytest.fixture(scope="module")
def both(rules: KGRetriever) -> KnowledgeRetriever:
    return KnowledgeRetriever(FixedRetriever(CASES), rules)


@pytest.mark.slow
def test_rules_come_before_cases_and_cases_before_templates(both: KnowledgeRetriever) -> None:
    response = both.search(PIT, chapter=SAFETY, engineering_type="地铁", processes=[PIT])
    assert [item.priority for item in response.items] == sorted(
        item.priority for item in response.items
    )
    assert response.regulations
    assert {item.priority for item in response.regulations} == {1}
    assert [item.priority for item in response.cases] == [2]
    assert [item.source for item in response.items if item.priority == 3] == ["template"]
    expected = {"chapter": SAFETY, "engineering_type": "地铁", "processes": [PIT]}
    assert expected.items() <= response.query_context.items()
    texts = [item.content for item in response.items]
    assert len(texts) == len(set(texts))


@pytest.mark.slow
def test_the_engineering_type_alone_selects_its_processes(both: KnowledgeRetriever) -> None:
    subway = {item.content for item in both.retrieve_regulations("地铁")}
    water = {item.content for item in both.retrieve_regulations("水利")}
    assert subway
    assert water
    assert subway != water
    assert both.retrieve_regulations() == []


@pytest.mark.slow
def test_a_retriever_is_made_from_storage_and_closed() -> None:
    model = FakeEmbedding()
    with open_store("embedded::memory:") as store:
        store.add([TextNode(id_="a", text=PIT, embedding=model.get_text_embedding(PIT))])
        graph = open_graph("graph::memory:")
        graph.upsert(*construction_safety())
        retriever = KnowledgeRetriever.from_storage(store, graph=graph, embed_model=model)
        assert retriever.search(PIT, chapter=SAFETY).items
        retriever.close()
        assert VectorRetriever(store, embed_model=model).retrieve(PIT)
        graph.close()


@cases(
    "wrong", [{"score": 1.5}, {"score": -0.1}, {"priority": 0}, {"priority": 5}, {"source": "moon"}]
)
def test_an_item_checks_its_fields(wrong: dict[str, object]) -> None:
    fields: dict[str, object] = {"content": "x", "source": "vector", "priority": 2, "score": 0.5}
    with pytest.raises(ConfigurationError):
        RetrievalItem(**{**fields, **wrong})  # type: ignore[arg-type]
