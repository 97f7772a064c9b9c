"""A knowledge base in memory and one on each engine, with an embedding model that can fail."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.knowledge_base.engines import SERVERS, place, start
from tests.quick import in_turn
from tests.servers.elasticsearch import elasticsearch_url
from tests.servers.milvus import milvus_url

__all__ = ["elasticsearch_url", "milvus_url"]


class PickyEmbedding(FakeEmbedding):
    """Fails for every batch with a text that has a bad word in it; NaN for another word."""

    def _embed(self, text: str) -> list[float]:
        if "unembeddable" in text:
            raise TimeoutError("the model did not answer")
        vector = super()._embed(text)
        return [float("nan")] * self.dim if "not-a-number" in text else vector


@pytest.fixture
def model() -> PickyEmbedding:
    return PickyEmbedding(dim=16)


@pytest.fixture(params=["embedded", *in_turn(*SERVERS)])
def engine(request: pytest.FixtureRequest) -> str:
    """The embedded engine and one of the others; tests of some mark themselves, as `BESIDE`."""
    name: str = request.param
    start(name, request)
    return name


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> None:
    """All engines, ready."""
    for server in SERVERS:
        start(server, request)


@pytest.fixture
def url(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    with place(engine, tmp_path, request) as made:
        yield made


@pytest.fixture
def open_kb(url: str, model: PickyEmbedding) -> Iterator[Callable[..., KnowledgeBase]]:
    """Opens the knowledge base on disk, as often as needed."""
    opened: list[KnowledgeBase] = []

    def open_(**options: Any) -> KnowledgeBase:
        opened.append(KnowledgeBase.open(url, **{"embed_model": model, **options}))
        return opened[-1]

    yield open_
    for kb in opened:
        kb.close()


@pytest.fixture
def kb(model: PickyEmbedding) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open("embedded::memory:", embed_model=model) as kb:
        yield kb
