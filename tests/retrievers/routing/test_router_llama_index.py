"""The router with selectors, tools and arguments of LlamaIndex."""

import asyncio

import pytest
from llama_index.core.schema import IndexNode, TextNode
from llama_index.core.selectors import EmbeddingSingleSelector, LLMMultiSelector, LLMSingleSelector
from llama_index.core.tools import RetrieverTool

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.hits import node_ids
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.meeting import Meeting, met_by_the_loop
from tests.retrievers.references import finding
from tests.retrievers.routing.sample_routes import Picks, TheirPicks, names, routes
from tests.searching import Searched

SINGLE = '[{"choice": 2, "reason": "code"}, {"choice": 1, "reason": "leave"}]'


def test_a_single_selector_picks_one_route_though_the_llm_names_two(searched: Searched) -> None:
    selector = LLMSingleSelector.from_defaults(llm=ScriptedLLM([SINGLE]))
    assert names(searched(RouterRetriever(selector, routes()), "query")) == ["code"]
    most = LLMMultiSelector.from_defaults(llm=ScriptedLLM([SINGLE]), max_outputs=1)
    assert names(searched(RouterRetriever(most, routes()), "query")) == ["code"]
    several = LLMMultiSelector.from_defaults(llm=ScriptedLLM([SINGLE]))
    assert names(searched(RouterRetriever(several, routes()), "query")) == ["code", "leave"]


THEIR_ANSWERS: dict[str, tuple[ScriptedAnswer, list[str]]] = {
    "as it should be": ('[{"choice": 2, "reason": "code"}]', ["code"]),
    "zero": ('[{"choice": 0, "reason": "none"}]', ["food"]),
    "prose": ("I would choose 2", ["food"]),
    "an exception": (ConnectionError("LLM down"), ["food"]),
}


@pytest.mark.parametrize(("answer", "expected"), THEIR_ANSWERS.values(), ids=THEIR_ANSWERS)
@pytest.mark.parametrize("multi", [False, True])
def test_selectors_of_llama_index_are_followed_where_their_answer_makes_sense(
    answer: ScriptedAnswer, expected: list[str], multi: bool, searched: Searched
) -> None:
    kind = LLMMultiSelector if multi else LLMSingleSelector
    selector = kind.from_defaults(llm=ScriptedLLM([answer]))
    result = searched(RouterRetriever(selector, routes(), fallback="food"), "query")
    assert names(result) == expected
    assert bool(result.degraded) is (expected == ["food"])


def test_the_embedding_selector_of_llama_index_works(searched: Searched) -> None:
    selector = EmbeddingSingleSelector.from_defaults(embed_model=FakeEmbedding())
    result = searched(RouterRetriever(selector, routes()), "sick leave")
    assert names(result) == ["leave"]


def test_a_selector_whose_model_blocks_leaves_the_event_loop_free() -> None:
    class BlocksByName(FakeEmbedding):
        def _get_query_embedding(self, query: str) -> list[float]:
            meeting.join()
            return super()._get_query_embedding(query)

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)  # as HuggingFaceEmbedding's

    meeting = Meeting(2)
    selector = EmbeddingSingleSelector.from_defaults(embed_model=BlocksByName())
    result = asyncio.run(met_by_the_loop(RouterRetriever(selector, routes()), meeting))
    assert result.degraded == ()


def tools() -> list[RetrieverTool]:
    return [
        RetrieverTool.from_defaults(
            FakeRetriever([(name, 0.9)]), name=name, description=f"about {name}"
        )
        for name in ("leave", "code")
    ]


def test_the_arguments_of_llama_indexs_router_work_unchanged(searched: Searched) -> None:
    llm = ScriptedLLM(['[{"choice": 2, "reason": "code"}]'] * 2)
    selector = LLMSingleSelector.from_defaults(llm=llm)
    router = RouterRetriever(
        selector=selector,
        retriever_tools=tools(),
        llm=llm,
        objects=None,
        object_map=None,
        verbose=False,
    )
    assert node_ids(searched(router, "query").hits) == ["code"]
    assert "selector:prompt" in router.get_prompts()
    assert node_ids(searched(RouterRetriever.from_defaults(tools(), llm), "query").hits) == ["code"]


def test_from_defaults_picks_one_or_several() -> None:
    for multi, expected in ((False, ["code"]), (True, ["code", "leave"])):
        router = RouterRetriever.from_defaults(tools(), ScriptedLLM([SINGLE]), None, multi)
        assert names(router.search("query")) == expected
    router = RouterRetriever.from_defaults(tools(), selector=TheirPicks(0, 1))
    assert names(router.search("query")) == ["leave", "code"]
    with pytest.raises(ConfigurationError, match="selector= or llm="):
        RouterRetriever.from_defaults(tools())


def test_tools_of_the_same_name_are_separate_routes() -> None:
    unnamed = [
        RetrieverTool.from_defaults(FakeRetriever([(id_, 0.9)]), description=id_) for id_ in "ab"
    ]
    router = RouterRetriever(TheirPicks(1), unnamed)
    assert node_ids(router.retrieve("query")) == ["b"]
    assert len(router.legs) == 2


def test_a_router_follows_index_nodes_by_object_map() -> None:
    doors = finding(IndexNode(id_="door", text="door", index_id="section"))
    section = TextNode(id_="section", text="the whole section")
    router = RouterRetriever(
        Picks(["a"]), {"a": Route(doors, "a")}, object_map={"section": section}
    )
    assert node_ids(router.retrieve("query")) == ["section"]
