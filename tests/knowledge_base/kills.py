"""Kills a process that adds to a knowledge base, again and again, and looks at what is left.

Run by `test_kill.py`, as a process of its own: a fork of the test's process would have its threads'
locks and none of its threads. Each round is a fork, so that nothing is imported twice.

    python kills.py URL ROUNDS SEED LONGEST_S [GRAPH]
"""

import os
import random
import select
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_retrieval_ext.knowledge_base import storage
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.testing.fakes import FakeEmbedding

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.knowledge_base.graphs import LINKS, check_in_step

DOCUMENTS = [f"d{number}" for number in range(6)]


def expected(ref: str, version: int) -> dict[str, str]:
    """Texts by node id: some ids come and go from version to version, and some stay."""
    storage = DOCUMENTS.index(ref)
    numbers = range((version + storage) % 3, (version + storage) % 3 + 4)
    return {f"{ref}-{n}": f"leave in version {version}, part {n}" for n in numbers}


def nodes(version: int) -> list[TextNode]:
    return [
        TextNode(
            id_=id_,
            text=text,
            metadata={"version": version, "tags": [f"version {version}", f"part {id_[-1]}"]},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=ref)},
        )
        for ref in DOCUMENTS
        for id_, text in expected(ref, version).items()
    ]


def opened(url: str) -> KnowledgeBase:
    storage._PATIENCE_S = 0.0  # whoever wrote before is dead
    graph = sys.argv[5] if len(sys.argv) > 5 else None
    links = LINKS if graph else None
    return KnowledgeBase.open(url, embed_model=FakeEmbedding(dim=8), graph=graph, links=links)


def write_until_killed(url: str, first: int, acknowledge: Callable[[int], object]) -> None:
    kb = opened(url)
    for version in range(first, first + 10_000):
        kb.add(nodes(version), show_progress=False).raise_for_failures()
        acknowledge(version)


def check(url: str, acknowledged: int) -> None:
    """Each document is whole, in the version that was acknowledged or in the one after it."""
    with opened(url) as kb:
        kb.delete("none")  # who writes next settles, where others may write, too
        found: dict[str, dict[str, str]] = {}
        by_vector = kb.retriever("vector", top_k=1000).retrieve("leave")
        by_keyword = kb.retriever("keyword", top_k=1000).retrieve("leave")
        assert {hit.node_id for hit in by_vector} == {hit.node_id for hit in by_keyword}
        for hit in by_keyword:
            found.setdefault(str(hit.node.ref_doc_id), {})[hit.node_id] = hit.text
        allowed = [acknowledged, acknowledged + 1]
        for ref in DOCUMENTS:
            assert found.get(ref) in [expected(ref, each) if each else None for each in allowed]
        listed = {document.document_id: document.n_nodes for document in kb.documents()}
        assert listed == {ref: len(texts) for ref, texts in found.items()}
        if kb.graph is not None:
            check_in_step(kb)


def forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - it is printed
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def killed_in_the_middle(url: str, first: int, delay_s: float) -> int:
    """The last version that was acknowledged before the process was killed."""
    reader, writer = os.pipe()
    child = forked(
        lambda: write_until_killed(
            url, first, lambda version: os.write(writer, version.to_bytes(4, "big"))
        )
    )
    os.close(writer)
    select.select([reader], [], [], 30)  # it has begun
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not url.startswith("embedded:"):
        time.sleep(1)  # a server carries out the last request without its client
    acknowledged = first - 1
    while version := os.read(reader, 4):
        acknowledged = int.from_bytes(version, "big")
    os.close(reader)
    return acknowledged


def is_torn(url: str) -> bool:
    """Whether the process was killed while something was half written, as far as files tell."""
    engine, _, directory = url.partition(":")
    if engine != "embedded":
        return False
    with closing(sqlite3.connect(f"{directory}/ledger.sqlite3")) as ledger:
        query = "SELECT count(*) FROM records WHERE since IS NOT NULL"
        return bool(ledger.execute(query).fetchone()[0])


def main(url: str, rounds: int, seed: int, longest_s: float) -> None:
    engine = url.partition(":")[0]
    if engine in ("qdrant", "elasticsearch"):  # not in each fork again
        import_module(f"llama_retrieval_ext.stores.{engine}.store")
    rng = random.Random(seed)
    version = torn = 0
    for _ in range(rounds):
        version = killed_in_the_middle(url, version + 1, rng.uniform(0, longest_s))
        torn += is_torn(url)
        _, status = os.waitpid(forked(partial(check, url, version)), 0)
        if status:
            sys.exit(f"after version {version} was acknowledged, not all was as it must be")
    print(f"{rounds} rounds, {version} versions, {torn} torn")  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
