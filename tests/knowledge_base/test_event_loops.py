"""Every engine can be searched from a script, threads, one event loop after another, uvloop, and
code that runs in a loop, as the cells of a notebook do."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop
from llama_index.core.schema import Document

from llama_retrieval_ext import KnowledgeBase, Retriever
from llama_retrieval_ext.testing import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.engines import place, start
from tests.quick import in_turn

pytestmark = pytest.mark.slow

ENGINES: Final = ["embedded", "qdrant", "qdrant-server", "milvus", "milvus-server", "elasticsearch"]
_TEXT: Final = "25 days of annual leave"
_QUERY: Final = "annual leave"


@pytest.fixture(scope="module", params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A knowledge base that is not there yet."""
    start(request.param, request)
    with place(request.param, tmp_path_factory.mktemp("kb"), request) as made:
        yield made


def _options(url: str) -> dict[str, Any]:
    replicas = {"store_params": {"number_of_replicas": 0}}
    return replicas if url.startswith("elasticsearch") else {}


@pytest.fixture(scope="module")
def kb(url: str) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(url, embed_model=FakeEmbedding(), **_options(url)) as opened:
        opened.add([Document(text=_TEXT, id_="leave")], show_progress=False)
        yield opened


def _sync(retriever: Retriever) -> list[str]:
    return [hit.node.get_content() for hit in retriever.retrieve(_QUERY)]


async def _async(retriever: Retriever) -> list[str]:
    both = await asyncio.gather(*[retriever.aretrieve(_QUERY) for _ in range(3)])
    assert len({len(hits) for hits in both}) == 1
    return [hit.node.get_content() for hit in both[0]]


async def _sync_in_a_loop(retriever: Retriever) -> list[str]:
    assert _sync(retriever) == await _async(retriever)
    return _sync(retriever)


def _in_threads(retriever: Retriever) -> list[str]:
    with ThreadPoolExecutor(4) as threads:
        synchronous = [threads.submit(_sync, retriever) for _ in range(4)]
        loops = [threads.submit(asyncio.run, _async(retriever)) for _ in range(4)]
        first, *others = [each.result() for each in (*synchronous, *loops)]
    assert others == [first] * 7
    return first


def _twice(run: Callable[[Coroutine[Any, Any, list[str]]], list[str]]) -> Callable[..., list[str]]:
    def run_twice(retriever: Retriever) -> list[str]:
        assert run(_async(retriever)) == run(_async(retriever))
        return run(_sync_in_a_loop(retriever))

    return run_twice


WAYS: Final[dict[str, Callable[[Retriever], list[str]]]] = {
    "this thread": _sync,
    "threads": _in_threads,
    "one asyncio.run after another": _twice(asyncio.run),
    "uvloop": _twice(uvloop.run),
    "a running loop": lambda retriever: asyncio.run(_sync_in_a_loop(retriever)),
}


@cases("way", WAYS.values())
def test_search_works_from_every_kind_of_program(
    kb: KnowledgeBase, way: Callable[[Retriever], list[str]]
) -> None:
    assert way(kb.retriever("hybrid", top_k=1)) == [_TEXT]


async def test_add_and_search_work_in_a_running_event_loop(kb: KnowledgeBase) -> None:
    await kb.aadd([Document(text="travel by train", id_="travel")], show_progress=False)
    hits = await kb.retriever("hybrid", top_k=1).aretrieve("train")
    assert [hit.node.ref_doc_id for hit in hits] == ["travel"]
    kb.delete("travel")


_SCRIPT: Final = """
    import asyncio
    from llama_index.core import Document
    from llama_retrieval_ext import KnowledgeBase
    from llama_retrieval_ext.testing.fakes import FakeEmbedding

    kb = KnowledgeBase.open({url!r}, embed_model=FakeEmbedding(), **{options!r})
    kb.add([Document(text={text!r}, id_="leave")], show_progress=False)
    retriever = kb.retriever("hybrid", top_k=1)
    first = retriever.retrieve({query!r})
    second = asyncio.run(retriever.aretrieve({query!r}))
    print(*[hit.node.get_content() for hit in (*first, *second)], sep="|")
"""


@pytest.mark.parametrize("engine", ["embedded", *in_turn("milvus", "elasticsearch")])
def test_a_plain_script_runs_and_ends(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    start(engine, request)
    with place(engine, tmp_path, request) as url:
        output = _output(_SCRIPT.format(url=url, options=_options(url), text=_TEXT, query=_QUERY))
    assert output == f"{_TEXT}|{_TEXT}"


def _output(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.strip()
