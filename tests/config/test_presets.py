"""Presets: their stages, what they choose, and what they say when a part is missing."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_retrieval_ext import MMR, RRF, KnowledgeBase, RetrievalPipeline, Scope
from llama_retrieval_ext.arguments import arguments_of
from llama_retrieval_ext.config.parts import RegistryParts
from llama_retrieval_ext.config.registry import PRESETS, Registry
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.graph import PassageGraphs
from llama_retrieval_ext.retrievers import GraphRetriever
from llama_retrieval_ext.testing.fakes import EVERYTHING, FakeBackend, FakeEmbedding, FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.cases import cases

TEXTS = [
    *("Night Train was directed by Anne Lister.", "Anne Lister was born in York."),
    *("York has a minster.", "The code E1205 is a paper jam.", "A paper jam stops the printer."),
]
VECTOR = FakeRetriever([("a", 0.9, "sick leave"), ("b", 0.8, "annual leave"), ("c", 0.1, "lunch")])
WORDS = FakeRetriever([("b", 7.0, "annual leave"), ("d", 2.0, "annual report")])
LINKS = FakeRetriever([("e", 0.5, "the annual fair"), ("b", 0.4, "annual leave")])


class Backwards(BaseNodePostprocessor):
    """Reverses the order, or fails."""

    fails: bool = False

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        del query_bundle
        if self.fails:
            raise ConnectionError("down")
        return nodes[::-1]


@pytest.fixture(scope="module")
def kb() -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), graph="graph::memory:"
    ) as opened:
        documents = [Document(text=text, id_=str(n)) for n, text in enumerate(TEXTS)]
        opened.add(documents, scope=Scope("acme"), show_progress=False)
        yield opened


def ids(pipeline: RetrievalPipeline, query: str = "annual leave") -> list[str]:
    return [hit.node_id for hit in pipeline.retrieve(query)]


class Presets(Registry):
    """A registry whose searches are fakes."""

    def __init__(
        self,
        *,
        keyword: BaseRetriever | None = None,
        graph: BaseRetriever | None = None,
        **parts: Any,
    ) -> None:
        super().__init__()
        self._fakes = {"vector": VECTOR, "graph": graph}
        self._parts = RegistryParts(
            backend=FakeBackend([], features=replace(EVERYTHING, keyword=None)),
            keyword=keyword,
            graph=None if graph is None else PassageGraphs("graph::memory:"),
            **parts,
        )

    def make(self, name: str, params: Mapping[str, Any], parts: RegistryParts) -> BaseRetriever:
        return self._fakes.get(name) or super().make(name, params, parts)

    def preset(self, name: str, **options: object) -> RetrievalPipeline:
        made = self.get_retriever(name, **options)
        assert isinstance(made, RetrievalPipeline)
        return made


def test_each_preset_has_its_stages() -> None:
    presets = Presets(keyword=WORDS, graph=LINKS, embed_model=FakeEmbedding(), llm=ScriptedLLM([]))
    made = {name: presets.preset(name) for name in PRESETS}
    assert {name: (each.name, len(each.stages)) for name, each in made.items()} == {
        "basic": ("basic", 2),
        "advanced": ("advanced", 3),
        "semantic": ("semantic", 4),
        "auto": ("advanced", 3),
    }
    assert made["auto"].description == "auto chose 'advanced': there is a graph"
    assert ids(made["basic"])[0] == "b"
    assert set(ids(made["advanced"])) == {"a", "b", "c", "d", "e"}
    assert ids(made["advanced"])[0] == "b"


@cases(
    ("presets", "name", "options", "words"),
    [
        (Presets(), "basics", {}, "did you mean 'basic'"),
        (Registry(), "basic", {}, "'vector' needs a knowledge base"),
        (Presets(), "semantic", {"intent_by_llm": True}, "'intent_by_llm' needs an LLM"),
        (Presets(), "semantic", {"lambda": 0.5}, "did you mean 'lambda_param'"),
        (Presets(), "semantic", {"lambda_param": 1.5}, "between 0 and 1, got 1.5"),
        (Presets(), "basic", {"lambda_param": 0.5}, "has no parameter 'lambda_param'"),
        (Presets(), "basic", {"top_k": 0}, "whole number of at least 1"),
        (Presets(keyword=WORDS), "advanced", {"max_hops": 1}, "part 'graph' is missing"),
        (Presets(graph=LINKS), "advanced", {"max_hops": 1}, "GraphRetriever"),
        (Presets(graph=LINKS), "advanced", {"vector_weight": -1.0}, "'vector_weight'"),
    ],
)
def test_missing_parts_and_unknown_names_of_presets_are_named(
    presets: Registry, name: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        presets.get_retriever(name, **options)


def test_weights_and_diversity_are_what_options_say() -> None:
    presets = Presets(keyword=WORDS, graph=LINKS, embed_model=FakeEmbedding())
    (_, fusion, _) = presets.preset("advanced", graph_weight=0.9).stages
    assert arguments_of(fusion)["weights"] == {"vector": 0.6, "keyword": 0.3, "graph": 0.9}
    (*_, last) = presets.preset("semantic", lambda_param=0.2).stages
    assert isinstance(last, MMR)
    assert last.lambda_mult == 0.2


@cases(
    ("presets", "name", "reason"),
    [
        (Presets(graph=LINKS, keyword=WORDS), "advanced", "there is a graph"),
        (Presets(keyword=WORDS), "advanced", "there is keyword search"),
        (Presets(), "basic", "there is neither a graph nor keyword search"),
    ],
)
def test_auto_is_the_best_of_the_available_parts(presets: Presets, name: str, reason: str) -> None:
    made = presets.preset("auto")
    assert (made.name, made.description) == (name, f"auto chose {name!r}: {reason}")


def test_auto_by_rrf_does_not_count_keyword_search_which_it_does_not_use() -> None:
    made = Presets(keyword=WORDS).preset("auto", fusion="rrf")
    assert made.description == "auto chose 'basic': there is no graph, which RRF needs"


def test_advanced_by_rrf_fuses_vector_and_graph_with_weights_6_and_4() -> None:
    presets = Presets(keyword=WORDS, graph=LINKS)
    legs, fusion, _ = presets.preset("advanced", fusion="rrf").stages
    assert [leg.name for leg in legs.legs] == ["vector", "graph"]  # type: ignore[attr-defined]
    assert fusion == RRF(weights={"vector": 0.6, "graph": 0.4})


@cases(
    ("presets", "fusion", "missing"),
    [
        (Presets(), "weighted", "no graph and no keyword search"),
        (Presets(keyword=WORDS), "rrf", "no graph"),
    ],
)
def test_the_advanced_preset_without_other_legs_is_the_basic_one(
    presets: Presets, fusion: str, missing: str
) -> None:
    made = presets.preset("advanced", fusion=fusion)
    assert (made.name, len(made.stages)) == ("basic", 2)
    assert made.description == f"'advanced' is 'basic' here: there is {missing}"


def test_a_reranker_takes_the_place_of_rules_and_may_fail() -> None:
    assert ids(Presets(reranker=Backwards()).preset("basic")) == ["c", "b", "a"]
    failing = Presets().preset("basic", reranker=Backwards(fails=True))
    result = failing.search("annual leave")
    assert [hit.node_id for hit in result] == ["a", "b", "c"]
    assert "down" in result.degraded[0].reason


def test_intent_by_llm_calls_the_llm_only_if_no_rule_holds() -> None:
    llm = ScriptedLLM(["1"] * 9)
    presets = Presets(embed_model=FakeEmbedding(), llm=llm)
    presets.preset("semantic").retrieve("leave for the year")
    assert len(llm.prompts) == 0
    by_llm = presets.preset("semantic", intent_by_llm=True)
    by_llm.retrieve('the code "E1205"')
    assert len(llm.prompts) == 0
    by_llm.retrieve("leave for the year")
    assert len(llm.prompts) == 1


@pytest.mark.slow
def test_a_knowledge_base_gives_presets_by_name(kb: KnowledgeBase) -> None:
    advanced = kb.retriever("advanced", top_k=3)
    hits = advanced.search("Where was the director of Night Train born?").hits
    assert len(hits) == 3
    assert {part.leg for hit in hits for part in hit.contributions} >= {"vector", "graph"}
    assert kb.retriever("auto").name == "advanced"
    for name in ("basic", "advanced", "semantic", "auto"):
        preset = kb.retriever(name)
        assert repr(preset.retrieve("paper jam")[0].text) in map(repr, TEXTS)
        assert kb.retriever(name, scope=Scope("globex")).retrieve("paper jam") == []
        assert preset.for_scope(Scope("globex")).retrieve("paper jam") == []
    (found,) = kb.retriever("semantic", top_k=1).retrieve("E1205")
    assert "E1205" in found.node.get_content(metadata_mode=MetadataMode.NONE)


def test_max_hops_and_enable_multi_hop_reach_the_graph_leg(kb: KnowledgeBase) -> None:
    pipeline = kb.retriever("advanced", max_hops=1, enable_multi_hop=False)
    (walk,) = [
        leg.retriever
        for leg in pipeline.stages[0].legs  # type: ignore[attr-defined]  # branches
        if isinstance(leg.retriever, GraphRetriever)
    ]
    assert (walk.max_hops, walk.enable_multi_hop) == (1, False)
    assert "max_hops=1" in repr(walk)
    with pytest.raises(ConfigurationError, match="'basic' has no parameter 'alpha'"):
        kb.retriever("basic", alpha=0.5)  # of `hybrid`
    with pytest.raises(ConfigurationError, match="did you mean 'advanced'"):
        kb.retriever("advancd")  # type: ignore[call-overload]  # no kind


def test_a_preset_requires_a_scope_where_its_knowledge_base_does() -> None:
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), require_scope=True
    ) as strict:
        for name in ("basic", "advanced", "semantic", "auto"):
            with pytest.raises(ScopeRequiredError):
                strict.retriever(name).retrieve("leave")
