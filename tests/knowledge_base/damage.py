"""Trials of a damaged file of an embedded knowledge base, in processes that may end."""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Self

from llama_index.core import Document
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext import KnowledgeBase, Scope
from llama_retrieval_ext.errors import RetrievalExtError, StoreFormatError, StoreUnavailableError
from llama_retrieval_ext.stores.embedded.files import copy_folder
from llama_retrieval_ext.testing import FakeEmbedding
from tests.programs import CONTEXT

KINDS = ("bit", "truncated", "emptied", "missing")
ENDS = ("closed", "killed")
_SCOPES = [Scope(tenant, principals=[who]) for tenant in ("acme", "globex") for who in ("u1", "u2")]

_OF_2003 = MetadataFilters(filters=[MetadataFilter(key="year", value=2003)])


def open_in(folder: Path) -> KnowledgeBase:
    """The knowledge base in a folder."""
    return KnowledgeBase.open(
        f"embedded:{folder / 'kb'}",
        embed_model=FakeEmbedding(dim=16),
        graph=f"graph:{folder / 'graph'}",
    )


def build(folder: Path) -> None:
    """Build one of 60 documents twice: closed, and as it is while a process has it open."""
    source = folder / "source"
    with open_in(source) as kb:
        for tenant in ("acme", "globex"):
            documents = [
                Document(
                    id_=f"{tenant}-{n}",
                    text=f"Project {n} of {tenant} starts in week {n % 7}, see plan {n + 1}.",
                    metadata={
                        "title": f"plan {n}",
                        "year": 2000 + n % 9,
                        **({"allowed": [f"u{n % 2 + 1}"]} if n % 3 == 0 else {}),
                    },
                )
                for n in range(30)
            ]
            kb.add(documents, scope=Scope(tenant), show_progress=False)
        for name in ("kb", "graph"):
            copy_folder(source / name, folder / "killed" / name)
    source.rename(folder / "closed")
    for end in ENDS:  # the URL of the graph is recorded
        copied(folder, end)
        shutil.rmtree(source)


def copied(folder: Path, end: str) -> Path:
    """A new copy at the place where it was built."""
    shutil.rmtree(folder / "source", ignore_errors=True)
    copy_folder(folder / end, folder / "source")
    return folder / "source"


def answers(kb: KnowledgeBase) -> list[object]:
    """What searches, filters and lists answer."""
    shown: list[object] = []
    for scope in _SCOPES:
        for mode in ("dense", "keyword", "hybrid", "graph"):
            for query in ("project of acme week 3", "plan 7"):
                hits = kb.retriever(mode, top_k=30).search(query, scope=scope)
                shown.append([(hit.node_id, round(hit.score or 0, 4), hit.text) for hit in hits])
        shown.append(
            [(document.document_id, document.allowed) for document in kb.documents(scope=scope)]
        )
        hits = kb.search("project", "keyword", filters=_OF_2003, scope=scope)
        shown.append([hit.node_id for hit in hits])
    return shown


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damage a file."""
    content = bytearray(path.read_bytes())
    if kind == "bit":
        filled = [n for n, byte in enumerate(content) if byte] or [*range(len(content))]
        # Half of the bits are where data is: most of the engine's files are holes.
        place = rng.choice(filled) if rng.random() < 0.5 else rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
    elif kind == "truncated":
        del content[rng.randrange(len(content)) :]
    elif kind == "emptied":
        content.clear()
    if kind == "missing":
        path.unlink()
    else:
        path.write_bytes(content)


def outcome(folder: Path, expected: list[object]) -> str:
    """What a user gets from a damaged knowledge base."""
    try:
        with open_in(folder) as kb:
            return "same" if answers(kb) == expected else "wrong"
    except (StoreFormatError, StoreUnavailableError):
        return "error"
    except RetrievalExtError as error:
        return f"other error: {type(error).__name__}"
    except BaseException as error:  # noqa: BLE001 - a panic is no `Exception`
        return f"raw {type(error).__name__}: {error}"[:200]


def expected_of(folder: Path) -> list[object]:
    """The answers of an undamaged knowledge base."""
    with open_in(folder) as kb:
        return answers(kb)


class Trials:
    """Trials on copies of what `build` has built in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pool = self._new_pool()
        self._pool.submit(build, folder).result()
        self._expected = self._pool.submit(expected_of, copied(folder, "closed")).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(self, n: int, *, end: str, seed: int) -> Iterator[tuple[str, str, str]]:
        """Yield kind, file and outcome of each trial; every kind and each file in turn."""
        rng = random.Random(seed)
        root = self._folder / end
        files = sorted(f for f in root.rglob("*") if f.is_file() and f.stat().st_size)
        files = [f for f in files if f.name not in ("lock", "freeze", "reserve")]
        rng.shuffle(files)
        for number in range(n):
            kind, name = KINDS[number % len(KINDS)], files[number % len(files)].relative_to(root)
            folder = copied(self._folder, end)
            damage(folder / name, kind, rng)
            try:
                yield kind, str(name), self._pool.submit(outcome, folder, self._expected).result()
            except BrokenProcessPool:
                self._pool = self._new_pool()
                yield kind, str(name), "abort"

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=CONTEXT)


def counted(results: list[tuple[str, str, str]]) -> Counter[str]:
    """The number of trials by outcome."""
    return Counter(result for _, _, result in results)
