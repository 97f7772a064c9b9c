"""A language model that chooses routes, whatever it answers."""

from llama_retrieval_ext.retrievers.routing.llm_selector import LLMSelector
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.testing.fakes import FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedAnswer, ScriptedLLM
from tests.cases import cases
from tests.retrievers.routing.sample_routes import names, routes
from tests.searching import Searched

LLM_ANSWERS: dict[str, tuple[ScriptedAnswer, list[str], bool]] = {
    "a number": ("2", ["code"], False),
    "several": ("2, 1", ["code"], False),
    "prose": ("I would choose 2, because it is about code.", ["code"], False),
    "thoughts": ("<think>1 or 3? No: 1.</think>\n2", ["code"], False),
    "out of range": ("9", ["food"], True),
    "in range and out of it": ("9, 2", ["food"], True),
    "in Chinese": ("选择第2个来源", ["code"], False),
    "a fraction": ("Between 1.5 and 2.5", ["food"], True),
    "a name": ("**Code**", ["code"], False),
    "a name in JSON": ('{"sources": ["code"]}', ["code"], False),
    "JSON that was cut off": ('{"sources": [2, ', ["food"], True),
    "names in JSON that was cut off": ('["code", "fo', ["food"], True),
    "a name and another": ("code, zeppelins", ["food"], True),
    "a name inside prose": ("Not code.", ["food"], True),
    "none": ("none", ["food"], False),
    "none in Chinese": ("没有, 3 个都不合适", ["food"], False),
    "thoughts alone": ("<think>hmm, 1?", ["food"], True),
    "an exception": (ConnectionError("LLM down"), ["food"], True),
    "late": ((60.0, "2"), ["food"], True),
}


@cases(("answer", "expected", "degraded"), LLM_ANSWERS.values())
def test_any_answer_of_the_llm_leads_to_hits(
    answer: ScriptedAnswer, expected: list[str], degraded: bool, searched: Searched
) -> None:
    selector = LLMSelector(ScriptedLLM([answer]), timeout_s=0.5)
    result = searched(RouterRetriever(selector, routes(), fallback="food"), "parse it")
    assert names(result) == expected
    assert bool(result.degraded) is degraded
    assert result.hits


def test_max_routes_lets_the_llm_pick_several_routes() -> None:
    selector = LLMSelector(ScriptedLLM(["3, 1, 3, 2"]), max_routes=2)
    assert names(RouterRetriever(selector, routes()).search("query")) == ["food", "leave"]


def test_the_prompt_has_the_routes_and_the_question_unchanged() -> None:
    llm = ScriptedLLM(["1"])
    named = {"a": Route(FixedRetriever(), "about {query} and {choices}")}
    RouterRetriever(LLMSelector(llm), named).retrieve("what is {most}?")
    assert "1. a: about {query} and {choices}" in llm.prompts[0]
    assert "Question: what is {most}?" in llm.prompts[0]


def test_the_answer_none_of_the_routes_is_cached(searched: Searched) -> None:
    llm = ScriptedLLM(["none"])
    router = RouterRetriever(LLMSelector(llm), routes(), fallback="food")
    for _ in range(2):
        result = searched(router, "quantum chromodynamics")
        assert names(result) == ["food"]
        assert result.degraded == ()
    assert len(llm.prompts) == 1
