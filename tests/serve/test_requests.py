"""Requests that are refused, with what to write instead, and the status of each kind of error."""

from time import process_time
from typing import Any

import pytest
from llama_index.core.vector_stores.types import FilterOperator
from pydantic import ValidationError

from llama_retrieval_ext.capabilities.tools import FieldCondition
from llama_retrieval_ext.serve import ServeLimits
from llama_retrieval_ext.serve.requests import Filters
from tests.cases import cases
from tests.serve.conftest import Connect

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"query": "leave", "topk": 2}, "body.topk: unknown name; write 'top_k'"),
        ("not an object", "send one with the header Content-Type: application/json"),
    ],
    ids=["wrong field", "no object"],
)
def test_a_wrong_body_is_answered_with_what_to_write(
    connect: Connect, body: object, words: str
) -> None:
    answer = connect().post("/v1/search", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "metadata",
    [
        {f"k{number}": 1 for number in range(20_000)},
        {"nested": {f"k{number}": 1 for number in range(20_000)}},
        {"list": [{f"k{number}": 1} for number in range(20_000)]},
    ],
    ids=["keys", "nested", "in a list"],
)
def test_a_document_with_very_many_keys_is_refused_before_it_costs_time(
    connect: Connect, metadata: dict[str, object]
) -> None:
    body = {"documents": [{"id": "d", "text": "leave", "metadata": metadata}]}
    client = connect()
    client.post("/v1/documents", json={})  # starts what the first request needs
    start = process_time()
    answer = client.post("/v1/documents", json=body)
    assert process_time() - start < 2
    assert answer.status_code == 422
    assert "documents.0.metadata: " in answer.json()["error"]["message"]
    assert "more than 1,000 keys" in answer.json()["error"]["message"]


@cases("value", [["a"], [1], [1.5]])
def test_the_values_of_a_condition_are_limited(value: list[object]) -> None:
    assert FieldCondition(key="k", operator=FilterOperator.IN, value=value * 100).to_filter()  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="at most 100 items"):
        FieldCondition(key="k", operator=FilterOperator.IN, value=value * 101)  # type: ignore[arg-type]


def test_the_conditions_of_a_request_are_limited_in_all() -> None:
    year: dict[str, object] = {"key": "year", "value": 2025}
    half = {"filters": [year] * 50}
    assert Filters.model_validate({"filters": [half, half]}).to_filters()
    with pytest.raises(ValidationError, match="more than 100 conditions"):
        Filters.model_validate({"filters": [half, half, {"filters": [year]}]})


def test_a_request_that_fails_has_a_status_and_a_kind_of_error(
    connect: Connect, subtests: pytest.Subtests
) -> None:
    client = connect(limits=ServeLimits(max_body_bytes=2000))
    requests: list[tuple[dict[str, Any], int, str]] = [
        ({"json": {"query": "leave", "top_k": 101}}, 422, "too_many"),
        ({"json": {"query": "leave", "mode": "graph"}}, 422, "bad_request"),
        (
            {"json": {"query": "leave", "filters": {"filters": [{"key": "a", "values": 1}]}}},
            422,
            "bad_request",
        ),
        ({"json": {"query": "leave", "scope": {"kb_ids": [" "]}}}, 422, "bad_request"),
        ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 422, "bad_request"),
        ({"json": {"query": "leave"}, "headers": {"X-Deadline-S": "nan"}}, 422, "bad_deadline"),
        ({"content": iter([b"x" * 1500, b"x" * 1500])}, 413, "too_large"),
        ({"json": {"query": "broken", "mode": "vector"}}, 500, "internal"),
        (
            {"json": {"query": "slow", "mode": "vector"}, "headers": {"X-Deadline-S": ".05"}},
            504,
            "",
        ),
    ]
    for request, status, kind in requests:
        with subtests.test(request=request):
            answer = client.post("/v1/search", **request)
            assert answer.status_code == status, answer.text
            error = answer.json()["error"]
            assert error["type"] == (kind or "deadline_exceeded")
            assert error["message"]
            assert "broken" not in answer.text


def test_a_wrong_method_is_answered_with_those_that_are_allowed(connect: Connect) -> None:
    answer = connect().get("/v1/search")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert answer.json()["error"]["type"] == "method_not_allowed"
