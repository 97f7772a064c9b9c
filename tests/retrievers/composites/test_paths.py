"""Details and missing parts of a result are named with the legs on the way to them."""

from collections.abc import Callable

import pytest
from llama_index.core.schema import IndexNode, QueryBundle
from llama_index.core.storage.docstore import SimpleDocumentStore

from llama_retrieval_ext.execution.legs import Leg
from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.pipeline.retriever import Retriever
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.results import SearchResult
from llama_retrieval_ext.retrievers.auto_merging import AutoMergingRetriever
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.intent import IntentAdaptiveRetriever, IntentProfile
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.retrievers.query_fusion import QueryFusionRetriever
from llama_retrieval_ext.retrievers.recursive import RecursiveRetriever
from llama_retrieval_ext.retrievers.rerank import RerankRetriever
from llama_retrieval_ext.retrievers.retrieval_pipeline import RetrievalPipeline
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.selectors import RouteRule, RuleSelector
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.stages.rerank.rules import RuleRerank
from llama_retrieval_ext.stages.selection import Top
from llama_retrieval_ext.testing.fakes import FakeRetriever, FixedRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
from tests.cases import cases
from tests.instrumentation import recorded
from tests.retrievers.references import finding
from tests.searching import Searched


def source() -> FakeRetriever:
    return FakeRetriever([("a", 0.9), ("b", 0.5)])


def names(routes: object) -> list[object]:
    assert isinstance(routes, list)
    return [route["name"] for route in routes]


def inner_router(route: str) -> RouterRetriever:
    routes = {route: Route(source(), "what there is")}
    return RouterRetriever(RuleSelector([RouteRule(route, any_of=["leave"])]), routes)


def test_a_nested_router_does_not_overwrite_the_outer_ones_routes(searched: Searched) -> None:
    routes = {"law": Route(inner_router("civil"), "law"), "food": Route(source(), "food")}
    outer = RouterRetriever(RuleSelector([RouteRule("law", any_of=["leave"])]), routes)
    details = searched(outer, "annual leave").details
    assert names(details["routes"]) == ["law"]
    assert names(details["law/routes"]) == ["civil"]


def test_routers_side_by_side_keep_their_routes_apart(searched: Searched) -> None:
    fused = branches(one=inner_router("civil"), two=inner_router("penal")) >> RRF()
    details = searched(fused, "annual leave").details
    assert names(details["one/routes"]) == ["civil"]
    assert names(details["two/routes"]) == ["penal"]
    assert names(details["routes"]) == ["civil", "penal"]


def test_rewriting_retrievers_side_by_side_keep_their_details_apart(searched: Searched) -> None:
    multi = MultiQueryRetriever(source(), ScriptedLLM(["days off"]), num_queries=1)
    hyde = HyDERetriever(source(), ScriptedLLM(["Staff have 25 days."]))
    result = searched(branches(multi=multi, hyde=hyde) >> RRF(), "annual leave")
    queries = {
        name: [detail["query"] for detail in result.details[f"{name}/retrieval_details"]]  # type: ignore[attr-defined]
        for name in ("multi", "hyde")
    }
    assert queries == {
        "multi": ["annual leave", "days off"],
        "hyde": ["annual leave", "Staff have 25 days."],
    }
    both = result.details["retrieval_details"]
    assert isinstance(both, list)
    assert len(both) == 4
    assert result.details["multi/generated_queries"] == ["days off"]
    assert result.to_dict()["multi/queries_count"] == 2


class Down(FakeRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[object]:  # type: ignore[override]
        raise OSError(query_bundle.query_str)


def test_a_router_lists_the_routes_it_tried_one_after_the_other(searched: Searched) -> None:
    routes = {"law": Route(Down(), "law"), "food": Route(source(), "food")}
    router = RouterRetriever(RuleSelector([RouteRule("law", any_of=["leave"])]), routes)
    assert names(searched(router, "annual leave").details["routes"]) == ["law", "food"]


def test_paths_lead_through_all_legs_on_the_way(searched: Searched) -> None:
    inside = FallbackRetriever(inner_router("civil"), source())
    details = searched(branches(outer=inside) >> RRF(), "annual leave").details
    assert [name for name in details if name.endswith("/routes")] == ["outer/router/routes"]


def named(result: SearchResult) -> list[str]:
    return [part.where for part in result.degraded]


def half_down() -> Retriever:
    down = FixedRetriever(error=ConnectionError("down"))
    return branches(up=FixedRetriever([("a", 0.9)]), down=down) >> RRF()


@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_a_failed_leg_of_the_outermost_composite_is_named_without_a_path(
    searched: Searched, timeout_s: float | None
) -> None:
    query = Query("q", timeout_s=timeout_s)
    assert named(searched(half_down() >> Top(3), query)) == ["down"]
    assert named(searched(RerankRetriever(half_down(), RuleRerank()), query)) == ["down"]


def test_legs_inside_legs_are_named_from_the_outside_in(searched: Searched) -> None:
    middle = branches(inner=half_down() >> Top(3), other=FixedRetriever([("b", 0.9)])) >> RRF()
    outer = branches(outer=middle, down=half_down()) >> RRF()
    assert sorted(named(searched(outer, "q"))) == ["down/down", "outer/inner/down"]


def test_a_failure_behind_an_index_node_is_named_with_the_id_of_the_reference(
    searched: Searched,
) -> None:
    link = finding(IndexNode(text="more", index_id="more"))
    retriever = RecursiveRetriever("root", {"root": link, "more": half_down()})
    assert named(searched(retriever, "q")) == ["more/down"]


def test_the_event_of_a_degraded_leg_names_the_path_to_it() -> None:
    with recorded() as recording:
        (branches(outer=half_down()) >> RRF()).retrieve("q")
    assert [getattr(event, "where", None) for event in recording.events].count("outer/down") == 1


def deep(top_k: int = 10) -> FixedRetriever:
    return FixedRetriever([(f"n{place:02}", 1 / (1 + place)) for place in range(80)], top_k=top_k)


def routed(leg: Retriever | Leg) -> Retriever:
    rules = RuleSelector([RouteRule("x", pattern="leave")])
    return RouterRetriever(rules, {"x": Route(leg, "x"), "y": Route(deep(), "y")})


COMPOSITES: dict[str, Callable[[FixedRetriever], Retriever]] = {
    "fusion": lambda leg: branches(leg, leg) >> RRF(),
    "query fusion": lambda leg: QueryFusionRetriever([leg], num_queries=1),
    "pipeline": lambda leg: leg >> RuleRerank(),
    "step by step": lambda leg: RetrievalPipeline("named").add_stage(leg),
    "rerank": lambda leg: RerankRetriever(leg, RuleRerank()),
    "router": routed,
    "fallback": lambda leg: FallbackRetriever(leg, deep()),
    "hyde": lambda leg: HyDERetriever(leg, ScriptedLLM(["Two weeks."])),
    "multi-query": lambda leg: MultiQueryRetriever(leg, ScriptedLLM(["days off"])),
    "recursive": lambda leg: RecursiveRetriever("root", {"root": leg}),
    "auto-merging": lambda leg: AutoMergingRetriever(leg, SimpleDocumentStore()),
    "intent": lambda leg: IntentAdaptiveRetriever(
        {"x": leg}, profiles={"general": IntentProfile("any")}
    ),
    "nested": lambda leg: routed(
        RerankRetriever(branches(leg >> RuleRerank()) >> RRF() >> RuleRerank(), RuleRerank())
    ),
}


@cases("make", COMPOSITES.values())
def test_a_larger_top_k_of_the_query_reaches_the_legs_and_a_smaller_one_does_not(
    searched: Searched, make: Callable[[FixedRetriever], Retriever]
) -> None:
    for top_k, of_legs in ((50, 50), (3, 10)):
        leg = deep()
        assert len(searched(make(leg), Query("leave", top_k=top_k)).hits) == top_k
        assert {call.top_k for call in leg.calls} == {of_legs}


def test_the_top_k_of_a_composite_does_not_change_that_of_its_legs(searched: Searched) -> None:
    leg = deep()
    assert (
        len(
            searched(
                QueryFusionRetriever([leg], num_queries=1, similarity_top_k=50), Query("q")
            ).hits
        )
        == 10
    )
    assert len(searched(RerankRetriever(leg, RuleRerank(), top_k=50), Query("q")).hits) == 10


def test_the_top_k_of_a_composite_leg_reaches_the_legs_inside(searched: Searched) -> None:
    inner = deep()
    fused = QueryFusionRetriever([inner], num_queries=1)
    assert (
        len(searched(branches(Leg("many", fused, top_k=30)) >> RRF(), Query("q", top_k=20)).hits)
        == 20
    )
    assert {call.top_k for call in inner.calls} == {30}


def test_a_cut_inside_a_leg_holds_whatever_the_query_requests(searched: Searched) -> None:
    assert len(searched(branches(deep() >> Top(5)) >> RRF(), Query("q", top_k=50)).hits) == 5


def test_fetch_k_grows_with_the_top_k_of_the_query(searched: Searched) -> None:
    leg = deep()
    retriever = RerankRetriever(leg, RuleRerank(), top_k=5, fetch_k=20)
    assert len(searched(retriever, Query("q")).hits) == 5
    assert len(searched(retriever, Query("q", top_k=50)).hits) == 50
    assert [call.top_k for call in leg.calls] == [20, 50]
