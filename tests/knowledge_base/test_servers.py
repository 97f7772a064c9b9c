"""A knowledge base on servers, which can be away."""

from collections.abc import Callable, Iterator

import pytest
from llama_index.core.schema import Document

from llama_retrieval_ext.errors import ConfigurationError, StoreUnavailableError
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.servers.forwarder import Forwarder

pytestmark = pytest.mark.slow

Open = Callable[..., KnowledgeBase]
ON_SERVERS = pytest.mark.parametrize(
    "engine", ["qdrant-server", "milvus-server", "elasticsearch"], indirect=True
)


@pytest.mark.parametrize("many_tenants", [False, True])
def test_many_tenants_cannot_be_changed_after_the_first_document(
    open_kb: Open, many_tenants: bool
) -> None:
    open_kb(many_tenants=many_tenants).close()
    with open_kb() as kb:
        kb.add([Document(id_="d", text="leave")])
        assert kb.info().many_tenants is many_tenants
    with open_kb(many_tenants=many_tenants) as kb:
        assert kb.count() == 1
    with pytest.raises(ConfigurationError, match=r"many_tenants.*leave |leave .*many_tenants"):
        open_kb(many_tenants=not many_tenants)


class Line:
    """A server's line that can be cut."""

    def __init__(self, url: str, forwarder: Forwarder) -> None:
        scheme, _, rest = url.partition("://")
        collection = rest.partition("/")[2]
        self.url = f"{scheme}://127.0.0.1:{forwarder.port}/{collection}?timeout_s=10"
        self.cut, self.mend = forwarder.down, forwarder.up


@pytest.fixture
def line(url: str) -> Iterator[Line]:
    port = url.partition("://")[2].partition("/")[0].rpartition(":")[2]
    with Forwarder(int(port)) as forwarder:
        yield Line(url, forwarder)


@ON_SERVERS
def test_an_outage_of_the_server_raises_and_loses_no_document(line: Line) -> None:
    model = FakeEmbedding(dim=16)
    line.cut()
    with pytest.raises(StoreUnavailableError):
        KnowledgeBase.open(line.url, embed_model=model)
    line.mend()
    with KnowledgeBase.open(line.url, embed_model=model) as kb:
        kb.add([Document(id_="d", text="annual leave")])
        line.cut()
        calls: list[Callable[[], object]] = [
            lambda: kb.add([Document(id_="e", text="sick leave")]),
            lambda: kb.delete("d"),
            kb.documents,
            lambda: kb.retriever("keyword").retrieve("leave"),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailableError):
                call()
        assert "StoreUnavailableError" in repr(kb)
        line.mend()
        assert [document.document_id for document in kb.documents()] == ["d"]
        assert kb.add([Document(id_="e", text="sick leave")]).added == 1
        assert len(kb.retriever("keyword").retrieve("leave")) == kb.count() == 2


@pytest.mark.parametrize("engine", ["qdrant-server", "milvus-server"], indirect=True)
def test_add_update_delete_and_search_on_a_server(open_kb: Open) -> None:
    documents = [Document(id_=f"d{number}", text=f"leave {number}") for number in range(70)]
    with open_kb() as kb:
        assert kb.add(documents).added == 70
        changed = Document(id_="d7", text="canteen")
        assert kb.add([changed]).updated == 1
        assert kb.delete("d8") == 1
    kb = open_kb()
    assert kb.count() == 69
    assert kb.add(documents).unchanged == 68
    assert len(kb.retriever("keyword", top_k=100).retrieve("leave")) == 70
