"""What stages add to a result is kept by the path of the stage."""

from llama_index.core.schema import QueryBundle

from llama_retrieval_ext.pipeline.branches import branches
from llama_retrieval_ext.retrievers.fallback import FallbackRetriever
from llama_retrieval_ext.retrievers.llm_queries import HyDERetriever, MultiQueryRetriever
from llama_retrieval_ext.retrievers.routing.router import Route, RouterRetriever
from llama_retrieval_ext.retrievers.routing.rule_selector import RouteRule, RuleSelector
from llama_retrieval_ext.stages.fusion import RRF
from llama_retrieval_ext.testing.fakes import FakeRetriever
from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
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
        name: [each["query"] for each in result.details[f"{name}/retrieval_details"]]  # type: ignore[attr-defined]
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
