"""The MCP server, by the official client: its tools, and the scope that none of them leaves."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from starlette.testclient import TestClient

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.capabilities.tools import FilterFields
from llama_retrieval_ext.graph import Edge, GraphNode
from llama_retrieval_ext.serve import ApiKeys, ServeLimits, create_app, create_mcp_server
from llama_retrieval_ext.testing import FakeEmbedding
from tests.serve.conftest import ACME, KEYS, LOCAL, SECRETS, bearer

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

pytestmark = pytest.mark.slow


RULE = """
rules:
  - id: hazards
    match:
      - {node: process}
      - {follow: HAS_HAZARD, node: hazard}
      - {follow: MITIGATED_BY, node: measure}
    then: "{process} requires {measure}"
"""


@pytest.fixture
def graph_kb() -> Iterator[KnowledgeBase]:
    """Tenants whose graphs differ in what mitigates a hazard."""
    with KnowledgeBase.open(
        "embedded::memory:", embed_model=FakeEmbedding(), graph="graph::memory:", require_scope=True
    ) as kb:
        assert kb.graph is not None
        for tenant, measure in (("acme", "bracing"), ("globex", "sheet piling")):
            properties = {"tenant_id": tenant}
            names = ("digging", "collapse", measure)
            nodes = [GraphNode(name, "entity", name, properties) for name in names]
            edges = [
                Edge.of("digging", "HAS_HAZARD", "collapse", properties),
                Edge.of("collapse", "MITIGATED_BY", measure, properties),
            ]
            kb.graph.upsert(nodes, edges)
        yield kb


def connected(server: Any) -> "Client":
    from mcp import Client  # noqa: PLC0415 - slow to import

    return Client(server)


def data(result: "CallToolResult") -> dict[str, Any]:
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def error(result: "CallToolResult") -> str:
    (content,) = result.content
    assert result.is_error
    assert content.type == "text"
    return content.text


async def test_a_model_counts_by_values_and_reads_the_next_page(kb: KnowledgeBase) -> None:
    async with connected(create_mcp_server(kb, scope=ACME)) as client:
        facets = data(await client.call_tool("facets", {"fields": ["year"], "query": "leave"}))
        assert facets["facets"]["year"]["values"]
        for tool in (await client.list_tools()).tools:
            is_asked = tool.name != "read_document"
            assert ({"as_of", "known_at"} <= {*tool.input_schema["properties"]}) == is_asked
        wrong = await client.call_tool("facets", {"fields": ["year"], "as_of": "soon"})
        assert "as_of must be a date" in error(wrong)
        asked = {"query": "annual leave", "top_k": 1}
        first = data(await client.call_tool("search", asked))
        second = data(await client.call_tool("search", {**asked, "cursor": first["cursor"]}))
        assert first["passages"][0]["text"] != second["passages"][0]["text"]


async def test_tools_search_and_read(kb: KnowledgeBase, caplog: pytest.LogCaptureFixture) -> None:
    async with connected(create_mcp_server(kb, scope=ACME, about="Rules of Acme.")) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"search", "search_many", "facets", "read_document"}
        description = tools["search"].description or ""
        assert "Rules of Acme." in description
        assert 'Fields to filter by: "year" (2024, 2025).' in description
        assert "A page of a PDF" in (tools["read_document"].description or "")
        found = data(await client.call_tool("search", {"query": "annual leave", "top_k": 1}))
        (passage,) = found["passages"]
        assert set(passage["metadata"]) == {"year"}
        read = data(await client.call_tool("read_document", {"document_id": "hr/leave"}))
        assert (read["n_passages"], read["passages"]) == (
            1,
            ["Annual leave at acme in hr is 25 days."],
        )
        condition = {"key": "year", "operator": ">=", "value": 2025}
        late = await client.call_tool("search", {"query": "leave", "filters": [condition]})
        assert [each["document_id"] for each in data(late)["passages"]] == ["it/leave"]
        queries = {"queries": ["leave", "broken"], "filters": [condition], "mode": "vector"}
        one, failed_one = data(await client.call_tool("search_many", queries))["results"]
        assert one["query"] == "leave"
        assert [each["document_id"] for each in one["passages"]] == ["it/leave"]
        assert (failed_one["passages"], failed_one["degraded"]) == ([], ["vector failed"])
        nothing = await client.call_tool("read_document", {"document_id": "none"})
        assert "there is no document 'none'" in error(nothing)
        broken = await client.call_tool("search", {"query": "broken", "mode": "vector"})
        assert error(broken).endswith("the request failed; the log has its id")
    failed = [vars(r)["facts"] for r in caplog.records if r.name == "llama_retrieval_ext.serve"]
    assert [(each["tool"], each["error"]) for each in failed] == [("search", "RuntimeError")]
    assert "cannot embed" not in caplog.text


async def test_typing_errors_are_corrected_unless_the_tool_is_told_not_to(
    kb: KnowledgeBase,
) -> None:
    async with connected(create_mcp_server(kb, scope=ACME)) as client:
        typed = {"query": "anual leave"}
        corrected = data(await client.call_tool("search", typed))["corrected"]
        assert corrected["words"] == {"anual": "annual"}
        as_typed = data(await client.call_tool("search", {**typed, "correct": False}))
        assert as_typed["corrected"] is None


@pytest.mark.parametrize("scope", [ACME, Scope("acme", ["hr"])], ids=repr)
async def test_no_argument_widens_the_scope(kb: KnowledgeBase, scope: Scope) -> None:
    widened: list[dict[str, Any]] = [
        {"scope": {"tenant_id": "globex"}},
        {"kb_ids": ["it"]},
        {"filters": [{"key": "tenant_id", "value": "globex"}]},
        {"filters": [{"key": "tenant_id", "operator": "in", "value": ["acme", "globex"]}]},
        {"filters": [{"key": "kb_id", "value": "it"}]},
        {"top_k": 100},
    ]
    seen = {hit.text for hit in kb.search("leave", top_k=10, scope=scope)}
    async with connected(create_mcp_server(kb, scope=scope)) as client:
        listed = json.dumps([tool.input_schema for tool in (await client.list_tools()).tools])
        assert "tenant" not in listed
        assert "scope" not in listed
        for arguments in widened:
            result = await client.call_tool("search", {"query": "leave globex", **arguments})
            if set(arguments) <= {"filters", "top_k"}:
                texts = {passage["text"] for passage in data(result)["passages"]}
                assert texts <= seen, arguments
            else:
                assert "unknown name" in error(result)
        mine = await client.call_tool("read_document", {"document_id": "hr/leave"})
        assert data(mine)["passages"] == ["Annual leave at acme in hr is 25 days."]
        extra = {"document_id": "hr/leave", "tenant_id": "globex"}
        assert "unknown name" in error(await client.call_tool("read_document", extra))


async def test_documents_of_a_scope_are_read_some_at_a_time(kb: KnowledgeBase) -> None:
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="long")}
    nodes = [TextNode(id_=f"n{i}", text=f"Part {i}.", relationships=source) for i in range(3)]
    kb.add(nodes, scope=ACME, show_progress=False)
    async with connected(create_mcp_server(kb, scope=ACME)) as client:
        for offset in (0, 1):
            arguments = {"document_id": "long", "offset": offset, "limit": 1}
            read = data(await client.call_tool("read_document", arguments))
            assert (read["n_passages"], read["passages"]) == (3, [f"Part {offset}."])


async def test_text_that_is_no_unicode_is_sent_as_well(kb: KnowledgeBase) -> None:
    node = TextNode(text="lost", metadata={"k": "a\ud800", "\ud800": 1})
    kb.add([node], scope=ACME, show_progress=False)
    async with connected(create_mcp_server(kb, scope=ACME)) as client:
        assert '"k" ("a\ufffd")' in str((await client.list_tools()).tools[0].description)
        found = data(await client.call_tool("search", {"query": "lost", "top_k": 1}))
        assert found["passages"][0]["metadata"] == {"k": "a\ufffd", "\ufffd": 1}


async def test_tools_are_described_by_what_everyone_can_see_when_they_are_listed(
    kb: KnowledgeBase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects = (("y", "Borealis"), ("z", "Cygnus"))
    notes = [TextNode(id_=id_, text="merger", metadata={"project": name}) for id_, name in projects]
    server = create_mcp_server(kb, scope=ACME)
    async with connected(server) as client:

        async def fields() -> str:
            description = str((await client.list_tools()).tools[0].description)
            return description.partition("Fields to filter by: ")[2]

        assert await fields() == '"year" (2024, 2025).'
        kb.add(notes, scope=ACME, show_progress=False).raise_for_failures()
        assert await fields() == '"project" ("Borealis", "Cygnus"); "year" (2024, 2025).'
        kb.share("y", allowed=["group:board"], scope=ACME)
        assert await fields() == '"project" ("Cygnus"); "year" (2024, 2025).'
        kb.delete("z", scope=ACME)
        assert await fields() == '"year" (2024, 2025).'
        kb.share("y", allowed=None, scope=ACME)
        assert "Borealis" in await fields()

        def fail(*_: object) -> None:
            raise RuntimeError("the store of secrets is away")

        monkeypatch.setattr(FilterFields, "plan", fail)
        assert await fields() == ""
    assert [vars(r)["facts"]["error"] for r in caplog.records if r.msg == "fields"] == [
        "RuntimeError"
    ]


async def test_a_wrong_argument_is_answered_in_one_line_without_links(kb: KnowledgeBase) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("search", {"query": "leave", "topk": 3}, "topk: unknown name; write 'top_k'"),
        ("search", {"query": "leave", "mode": "hybird"}, "mode: Input should be 'vector'"),
        ("search", {"query": "x" * 10_001}, "query: String should have at most 10000 characters"),
        ("read_document", {}, "document_id: Field required"),
    ]
    async with connected(create_mcp_server(kb, scope=ACME)) as client:
        for tool, arguments, expected in wrong:
            message = error(await client.call_tool(tool, arguments))
            assert expected in message
            assert "http" not in message
            assert len(message.splitlines()) == 1


async def test_an_unknown_name_in_a_condition_is_not_taken_for_an_argument(
    kb: KnowledgeBase,
) -> None:
    filters = [{"key": "page", "value": 1, "mod": "in"}]
    async with connected(create_mcp_server(kb, scope=ACME)) as client:
        result = await client.call_tool("search", {"query": "leave", "filters": filters})
        assert error(result).endswith("filters.0.mod: unknown name")


async def test_a_deadline_ends_a_call(kb: KnowledgeBase, gate: Event) -> None:
    server = create_mcp_server(kb, scope=ACME, limits=ServeLimits(timeout_s=0.2))
    async with connected(server) as client:
        late = await client.call_tool("search", {"query": "slow", "mode": "vector"})
    assert "the deadline ran out" in error(late)
    gate.set()


async def test_tools_of_a_graph_stay_in_the_scope(graph_kb: KnowledgeBase) -> None:
    for tenant, measure in (("acme", "bracing"), ("globex", "sheet piling")):
        async with connected(create_mcp_server(graph_kb, scope=Scope(tenant))) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [
                "search",
                "search_many",
                "facets",
                "read_document",
                "neighbours",
                "rules",
            ]
            near = data(await client.call_tool("neighbours", {"entity": "Collapse"}))
            assert {tuple(each.values()) for each in near["relations"]} == {
                ("collapse", "MITIGATED_BY", measure),
                ("digging", "HAS_HAZARD", "collapse"),
            }
            other = {"bracing": "sheet piling"}.get(measure, "bracing")
            unknown = await client.call_tool("neighbours", {"entity": other})
            assert f"the graph has no entity {other!r}" in error(unknown)
            arguments = {"question": "What does digging require?"}
            (conclusion,) = data(await client.call_tool("rules", arguments))["conclusions"]
            assert measure in conclusion["text"]
            assert conclusion["proof"] == [
                "digging -HAS_HAZARD-> collapse",
                f"collapse -MITIGATED_BY-> {measure}",
            ]


def test_the_graph_of_a_tenant_is_searched_over_http(graph_kb: KnowledgeBase) -> None:
    with TestClient(create_app(graph_kb, keys=ApiKeys.parse(KEYS))) as client:
        body = {"query": "What does digging require?", "mode": "kg_rule"}
        for tenant, measure in (("acme", "bracing"), ("globex", "sheet piling")):
            answer = client.post("/v1/search", json=body, headers=bearer(tenant))
            (hit,) = answer.json()["hits"]
            assert measure in hit["text"]
            assert [edge["target"] for edge in hit["proof"]] == ["collapse", measure]


async def test_rules_of_a_file_are_run_by_the_tool(graph_kb: KnowledgeBase, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULE, encoding="utf-8")
    async with connected(create_mcp_server(graph_kb, scope=ACME, rules=file)) as client:
        found = data(await client.call_tool("rules", {"question": "digging"}))
    assert [(each["rule"], each["text"]) for each in found["conclusions"]] == [
        ("hazards", "digging requires bracing")
    ]


@asynccontextmanager
async def over_http(
    kb: KnowledgeBase, *, keys: ApiKeys | None, headers: dict[str, str]
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application, in this process."""
    from llama_retrieval_ext.serve.mcp_server import mcp_app  # noqa: PLC0415 - slow to import

    limits = ServeLimits()
    app = mcp_app(create_mcp_server(kb, scope=ACME), scope=ACME, keys=keys, limits=limits)
    started, stopping = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if started.is_set():
            await stopping.wait()
            return {"type": "lifespan.shutdown"}
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        started.set()

    lifespan = asyncio.ensure_future(app({"type": "lifespan"}, receive, send))
    await started.wait()
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=LOCAL, headers=headers) as client:
        yield client
    stopping.set()
    await lifespan


async def test_mcp_over_http_refuses_keys_that_do_not_reach_its_scope(kb: KnowledgeBase) -> None:
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - slow to import

    keys = ApiKeys.parse(KEYS)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer not-a-key-0123456789"}, 401),
        (bearer("globex"), 403),
        (bearer("acme-hr"), 403),
    ):
        async with over_http(kb, keys=keys, headers=headers) as http:
            assert (await http.post("/mcp", json=ping)).status_code == status
    async with over_http(kb, keys=keys, headers=bearer("acme")) as http:
        assert (await http.get("/mcp")).status_code == 405
    for name in ("acme", "reader", "root"):
        async with over_http(kb, keys=keys, headers=bearer(name)) as http:
            transport = streamable_http_client(f"{LOCAL}/mcp", http_client=http)
            async with connected(transport) as client:
                found = data(await client.call_tool("search", {"query": "leave"}))
        assert {each["text"] for each in found["passages"]} == {
            f"Annual leave at acme in {kb_id} is 25 days." for kb_id in ("hr", "it")
        }


async def test_mcp_over_http_without_keys_answers_this_machine_only(kb: KnowledgeBase) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with over_http(kb, keys=None, headers={}) as http:
        for headers in ({"Host": "rebound.example"}, {"Origin": "https://page.example"}):
            assert (await http.post("/mcp", json=ping, headers=headers)).status_code == 403


async def test_mcp_answers_for_the_principals_of_each_key(kb: KnowledgeBase) -> None:
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - slow to import

    kb.share("hr/leave", allowed=["user:ann"], scope=Scope("acme", ["hr"]))
    keys = ApiKeys.parse(
        f"keys: [{{name: ann, key: {SECRETS['acme']}, tenant_id: acme, principals: ['user:ann']}},"
        f" {{name: bob, key: {SECRETS['reader']}, tenant_id: acme, principals: []}}]"
    )
    for name, expected in (("acme", {"hr", "it"}), ("reader", {"it"})):
        async with over_http(kb, keys=keys, headers=bearer(name)) as http:
            transport = streamable_http_client(f"{LOCAL}/mcp", http_client=http)
            async with connected(transport) as client:
                found = data(await client.call_tool("search", {"query": "leave"}))
                read = await client.call_tool("read_document", {"document_id": "hr/leave"})
                described = str(await client.list_tools())
        assert {each["document_id"][:2] for each in found["passages"]} == expected
        assert read.is_error is ("hr" not in expected)
        assert "2024" not in described  # a value of the hidden document
