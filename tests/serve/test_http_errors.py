"""The status, kind and message of each error."""

from typing import Any

import pytest

from llama_retrieval_ext.serve import ServeLimits
from tests.serve.conftest import Connect


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
