"""Knowledge bases that move to another embedding model, without their documents."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode

from llama_retrieval_ext.embeddings.local import LocalEmbedding
from llama_retrieval_ext.errors import ModelMismatchError
from llama_retrieval_ext.knowledge_base.copy import copy_knowledge_base
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.scope import Scope
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.knowledge_base.conftest import PickyEmbedding

OLD = LocalEmbedding()
ACME = Scope("acme")
LONG = " ".join(f"Sentence number {number} is about leave." for number in range(200))


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    return [f"embedded:{tmp_path / name}" for name in ("old", "new")]


@pytest.fixture
def new() -> PickyEmbedding:
    return PickyEmbedding(dim=16)


def documents(n: int = 3) -> list[BaseNode]:
    made = [
        Document(id_=f"d{number}", text=f"Page {number} about rule {number * 7}.")
        for number in range(n)
    ]
    return [Document(id_="long", text=LONG, metadata={"title": "Leave"}), *made]


def fill(url: str, model: Any, nodes: Sequence[BaseNode], **options: Any) -> None:
    with KnowledgeBase.open(url, embed_model=model, **options) as kb:
        kb.add(nodes, scope=ACME, show_progress=False).raise_for_failures()


def vectors(url: str) -> dict[str, list[float]]:
    with EmbeddedVectorStore(url.partition(":")[2]) as store:
        return {node.node_id: node.get_embedding() for node in store.get_nodes()}


def test_texts_embedded_anew_are_those_of_a_fresh_build(
    urls: list[str], new: PickyEmbedding, tmp_path: Path
) -> None:
    fill(urls[0], OLD, documents())
    report = copy_knowledge_base(*urls, embed_model=new, show_progress=False)
    assert (report.copied, report.failures) == (4, {})
    fresh = f"embedded:{tmp_path / 'fresh'}"
    fill(fresh, new, documents())
    assert vectors(urls[1]) == vectors(fresh)
    with KnowledgeBase.open(urls[1], embed_model=new) as kb:
        assert kb.info().dimension == 16
        assert kb.add(documents(), scope=ACME, show_progress=False).unchanged == 4
        assert kb.search("Page 2 about rule 14.", "vector", top_k=1, scope=ACME)[0].text.endswith(
            "rule 14."
        )


# Killed while the texts of a batch are embedded, and between the nodes of a batch and the ledger.
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from llama_retrieval_ext.knowledge_base.copy import copy_knowledge_base
from llama_retrieval_ext.stores.embedded.store import EmbeddedVectorStore
from tests.knowledge_base.conftest import PickyEmbedding

places = {"embed": (PickyEmbedding, "_embed"), "store": (EmbeddedVectorStore, "add")}
kind, method = places[sys.argv[2]]
original, left = getattr(kind, method), [int(sys.argv[3])]

def killing(*args, **kwargs):
    result = original(*args, **kwargs)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(kind, method, killing)
model = PickyEmbedding(dim=16)
copy_knowledge_base(*sys.argv[4:], embed_model=model, show_progress=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize(("where", "at"), [("embed", 130), ("store", 2)])
def test_a_copy_whose_process_was_killed_goes_on(
    urls: list[str], new: PickyEmbedding, where: str, at: int
) -> None:
    fill(urls[0], OLD, documents(150))
    root = str(Path(__file__).parents[2])
    given = [sys.executable, "-c", KILLED, root, where, str(at), *urls]
    killed = subprocess.run(given, capture_output=True, text=True, timeout=100, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    report = copy_knowledge_base(*urls, embed_model=new, show_progress=False)
    assert (report.copied + report.unchanged, report.failures) == (151, {})
    assert report.unchanged > 0
    made = vectors(urls[1])
    assert len(new.calls) <= len(made) - 90  # a batch that was stored is not embedded again
    with EmbeddedVectorStore(urls[0].partition(":")[2]) as store:
        texts = {node.node_id: node.get_content(MetadataMode.EMBED) for node in store.get_nodes()}
    assert made.keys() == texts.keys()
    for id_, text in texts.items():
        assert made[id_] == pytest.approx(new.get_text_embedding(text))


@pytest.mark.slow
def test_the_estimate_is_shown_before_and_with_the_time_after_a_hundred_nodes(
    urls: list[str], new: PickyEmbedding, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(urls[0], OLD, documents(110))
    copy_knowledge_base(*urls, embed_model=new)
    first, second, *_ = [line for line in capsys.readouterr().err.splitlines() if "about" in line]
    n_nodes = len(vectors(urls[1]))
    assert first.startswith(f"Embedding {n_nodes} nodes, about ")
    assert first.endswith(" tokens with PickyEmbedding")
    assert second.startswith(first + ", about ")
    assert second.endswith(" s more")


def test_documents_that_the_new_model_cannot_embed_are_reported(
    urls: list[str], new: PickyEmbedding
) -> None:
    picture = TextNode(id_="picture", text="", embedding=[0.5] * 256)
    fill(urls[0], OLD, [*documents(), Document(id_="bad", text="unembeddable"), picture])
    report = copy_knowledge_base(*urls, embed_model=new, show_progress=False)
    failures = {name.partition(" ")[0]: str(error) for name, error in report.failures.items()}
    assert report.copied == 4
    assert failures["bad"] == "the model did not answer"
    assert "has a node without text" in failures["picture"]


def test_the_same_model_copies_its_embeddings(urls: list[str]) -> None:
    fill(urls[0], OLD, documents())
    report = copy_knowledge_base(*urls, embed_model="local", show_progress=False)
    assert report.copied == 4
    assert vectors(urls[0]) == vectors(urls[1])


def test_a_target_of_another_model_is_refused(urls: list[str], new: PickyEmbedding) -> None:
    fill(urls[0], OLD, documents())
    fill(urls[1], new, documents())
    with pytest.raises(ModelMismatchError, match="PickyEmbedding"):
        copy_knowledge_base(*urls, embed_model=FakeEmbedding(dim=8), show_progress=False)
