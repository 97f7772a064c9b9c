import json
import time

from llama_index.core.schema import NodeWithScore, TextNode

from llama_retrieval_ext.trace import Trace


def hits(number: int) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(id_=str(n), text=""), score=1.0) for n in range(number)]


def test_a_step_takes_its_time() -> None:
    trace = Trace("root")
    time.sleep(0.01)
    trace.end()
    assert trace.duration_s is not None
    assert 0.01 <= trace.duration_s < 2


def test_only_hits_are_counted() -> None:
    counts = []
    for result in (hits(2), [], [0.5, 0.5], "text", None):
        trace = Trace("step")
        trace.end(result=result)
        counts.append(trace.count)
    assert counts == [2, 0, None, None, None]


def test_a_snapshot_stays_as_it_is() -> None:
    trace = Trace("root")
    child = trace.begin("leg")
    trace.end()
    snapshot = trace.snapshot()
    before = snapshot.to_dict()
    child.begin("more")
    child.notes["late"] = True
    child.end()
    trace.begin("another")
    trace.notes["late"] = True
    assert snapshot.to_dict() == before
    assert snapshot.children[0].duration_s is None


def test_a_trace_is_json_with_times_in_milliseconds_from_the_start() -> None:
    trace = Trace("root", started=100.0, duration_s=0.05, count=2, notes={"top": ["n1"]})
    trace.children.append(Trace("leg", started=100.02, duration_s=0.0301))
    trace.children[0].children.append(Trace("deep", started=100.03, error="OSError: down"))
    data = json.loads(json.dumps(trace.to_dict()))
    assert data == {
        "name": "root",
        "start_ms": 0.0,
        "duration_ms": 50.0,
        "count": 2,
        "error": None,
        "notes": {"top": ["n1"]},
        "children": [
            {
                "name": "leg",
                "start_ms": 20.0,
                "duration_ms": 30.1,
                "count": None,
                "error": None,
                "notes": {},
                "children": [
                    {
                        "name": "deep",
                        "start_ms": 30.0,
                        "duration_ms": None,
                        "count": None,
                        "error": "OSError: down",
                        "notes": {},
                        "children": [],
                    }
                ],
            }
        ],
    }


def test_the_outline_has_a_line_a_step() -> None:
    trace = Trace("root", duration_s=0.05, count=2)
    trace.children = [Trace("leg", duration_s=0.0301, count=2), Trace("late", error="OSError")]
    trace.children[0].children = [Trace("deep", duration_s=0.001)]
    assert trace.outline() == (
        "root: 50.0 ms, 2 hits\n  leg: 30.1 ms, 2 hits\n    deep: 1.0 ms\n"
        "  late: unfinished, OSError"
    )


def test_the_legs_of_one_request_have_no_time_of_their_own() -> None:
    trace = Trace("request")
    trace.end_legs({"vector": [("a", 1.0)], "keyword": []})
    trace.end(result=hits(1))
    first, *legs = trace.outline().splitlines()
    assert first.endswith(" ms, 1 hit")
    assert legs == ["  vector: 1 hit", "  keyword: 0 hits"]


def test_a_step_that_only_contains_one_of_its_name_is_shown_once() -> None:
    trace = Trace("hybrid")
    inner = trace.begin("hybrid")
    inner.begin("search")
    assert [(depth, step.name) for depth, step in trace.walk(folded=True)] == [
        (0, "hybrid"),
        (1, "search"),
    ]
    trace.begin("fusion")
    assert [depth for depth, _ in trace.walk(folded=True)] == [0, 1, 2, 1]


def test_a_step_with_an_error_of_its_own_is_not_folded() -> None:
    leg = Trace("vector")
    leg.begin("vector")  # abandoned when the time of the leg was over
    leg.end(error=TimeoutError("late"))
    first, second = leg.lines()
    assert first.endswith("TimeoutError: late")
    assert second == "  vector: unfinished"
