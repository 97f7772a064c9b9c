"""Questions are linked to entities by a cascade, each scope to its own."""

import asyncio
from collections.abc import Iterator
from threading import Event, Semaphore, get_ident
from time import process_time
from typing import Any

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding

from llama_retrieval_ext import Scope
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution import Call
from llama_retrieval_ext.graph import EntityLinker, GraphNode, entity_linking
from llama_retrieval_ext.graph.embedded import EmbeddedGraph
from llama_retrieval_ext.testing import FakeEmbedding, ScriptedLLM
from llama_retrieval_ext.text.gazetteer import Gazetteer
from tests.cases import cases

ACME = {"tenant_id": "acme"}
SCOPE = Scope("acme")


@pytest.fixture
def graph() -> Iterator[EmbeddedGraph]:
    with EmbeddedGraph(":memory:") as graph:
        nodes = [
            GraphNode("pit", name="foundation pit", properties={**ACME, "aliases": ["基坑"]}),
            GraphNode("crane", name="tower crane", properties=ACME),
        ]
        graph.upsert(nodes, [])
        yield graph


def linked(graph: EmbeddedGraph, query: str, **options: Any) -> list[tuple[str, str]]:
    linker = EntityLinker(graph, **options)
    found = linker.link(query, scope=SCOPE)
    assert asyncio.run(linker.alink(query, scope=SCOPE)) == found
    return [(each.node_id, each.by) for each in found]


def test_names_aliases_and_typos_are_linked(graph: EmbeddedGraph) -> None:
    assert linked(graph, "a Foundation Pit with a tower crain") == [
        ("pit", "exact"),
        ("crane", "fuzzy"),
    ]
    assert linked(graph, "基坑支护") == [("pit", "exact")]
    assert linked(graph, "a tower crain", fuzzy=None) == []


class Model:
    """As spaCy and GLiNER find names."""

    def extract(self, text: str) -> list[dict[str, str]]:
        return [{"text": "foundation pit"}] if "hole" in text else []


@pytest.mark.parametrize("ner", [Model(), lambda text: ["foundation pit"]])
def test_a_ner_model_is_called_if_no_name_is_in_the_text(graph: EmbeddedGraph, ner: Any) -> None:
    assert linked(graph, "the hole", ner=ner) == [("pit", "ner")]
    assert linked(graph, "the tower crane", ner=ner) == [("crane", "exact")]


def test_a_name_that_means_the_same_is_linked(graph: EmbeddedGraph) -> None:
    options = {"fuzzy": None, "embed_model": FakeEmbedding(), "min_similarity": 0.9}
    assert linked(graph, "crane tower", **options) == [("crane", "embedding")]
    assert linked(graph, "parental leave", **options) == []


def test_a_model_without_async_methods_embeds_the_names_in_a_thread(graph: EmbeddedGraph) -> None:
    threads: list[int] = []

    class Blocks(FakeEmbedding):
        _aget_text_embedding = BaseEmbedding._aget_text_embedding

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            threads.append(get_ident())
            return super()._get_text_embeddings(texts)

    linker = EntityLinker(graph, fuzzy=None, embed_model=Blocks())
    assert asyncio.run(linker.alink("crane tower", scope=SCOPE))
    (thread,) = threads
    assert thread != get_ident()


@pytest.mark.slow
def test_an_llm_links_entities_if_nothing_else_does(graph: EmbeddedGraph) -> None:
    for answer in ("<think>hm</think>- foundation pit\n", '["foundation pit"]'):
        llm = ScriptedLLM([answer] * 2)
        assert linked(graph, "the hole in the ground", llm=llm) == [("pit", "llm")]
    endless = "\n".join(["foundation pit", *map(str, range(60))])
    for answer in ('["foundation pit", "cra', 'Entities: ["foundation pit", "cra', endless):
        assert linked(graph, "the hole in the ground", llm=ScriptedLLM([answer] * 2)) == []


def test_names_found_in_a_question_are_bounded(graph: EmbeddedGraph) -> None:
    too_late = [*(f"thing {n}" for n in range(50)), "foundation pit"]
    too_long = "foundation pit " * 60
    assert linked(graph, "the hole", ner=lambda _: [too_long, "tower crane"]) == [("crane", "ner")]
    assert linked(graph, "the hole", ner=lambda _: too_late) == []


@cases("name", ["中" * 10_000, "i" * 10_000, "ab " * 3_000, "-" * 10_000])
def test_a_long_name_is_never_linked_and_takes_no_time(graph: EmbeddedGraph, name: str) -> None:
    names = [name, *(name[: 1_250 - n] for n in range(20))]
    graph.upsert([GraphNode(f"n{n}", name=x, properties=ACME) for n, x in enumerate(names)], [])
    start = process_time()
    assert linked(graph, f"the foundation pit {name}") == [("pit", "exact")]
    assert process_time() - start < 2


def test_names_that_come_too_late_for_one_question_are_there_for_the_next(
    graph: EmbeddedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go = Semaphore(0), Event()

    def gazetteer(names: list[tuple[str, str]]) -> Gazetteer:
        entered.release()
        go.wait()
        return Gazetteer(names)

    monkeypatch.setattr(entity_linking, "Gazetteer", gazetteer)
    linker = EntityLinker(graph)

    async def too_late() -> None:
        task = asyncio.create_task(linker.alink("the foundation pit", scope=SCOPE))
        await asyncio.to_thread(entered.acquire)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.05)
        go.set()
        while not linker._names:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.01)

    asyncio.run(too_late())
    assert linker.link("the foundation pit", scope=SCOPE)
    assert not entered.acquire(blocking=False)


def test_names_that_are_written_later_are_found(graph: EmbeddedGraph) -> None:
    linker = EntityLinker(graph)
    assert linker.link("the shoring", scope=SCOPE) == []
    graph.upsert([GraphNode("shoring", properties=ACME)], [])
    assert [e.node_id for e in linker.link("the shoring", scope=SCOPE)] == ["shoring"]


def test_a_refresh_while_names_are_read_is_not_lost(
    graph: EmbeddedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    linker = EntityLinker(graph)
    read = graph.plan_names
    scopes: list[Scope | None] = []

    def plan_names(*, scope: Scope | None) -> Call[list[tuple[str, str]]]:
        scopes.append(scope)
        linker.refresh()
        return read(scope=scope)

    monkeypatch.setattr(graph, "plan_names", plan_names)
    for _ in range(2):
        linker.link("the shoring", scope=SCOPE)
    assert scopes == [SCOPE, SCOPE]


def test_another_tenants_names_are_not_found(graph: EmbeddedGraph) -> None:
    linker = EntityLinker(graph)
    assert linker.link("tower crane", scope=Scope("globex")) == []
    before = linker.link("a tower crain", scope=SCOPE)
    other = GraphNode("x", name="tower crain", properties={"tenant_id": "globex"})
    graph.upsert([other], [])
    assert linker.link("a tower crain", scope=SCOPE) == before


def test_an_object_that_finds_no_names_is_refused_as_ner(graph: EmbeddedGraph) -> None:
    with pytest.raises(ConfigurationError, match="ner is a function"):
        EntityLinker(graph, ner=object())  # type: ignore[arg-type]
