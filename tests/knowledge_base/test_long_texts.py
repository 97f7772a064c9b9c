"""Long texts are split into sentences block by block, with the result of one call."""

import gc
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser
from llama_index.core.node_parser.text.utils import split_by_sentence_tokenizer
from llama_index.core.schema import Document, TextNode

from llama_retrieval_ext.knowledge_base import documents, passages, splitting
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.long_texts import for_long_texts, in_blocks, paragraphs_in
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.knowledge_base.conftest import PickyEmbedding
from tests.knowledge_base.nodes import LONG, found
from tests.quick import examples

Open = Callable[..., KnowledgeBase]

SPLIT = split_by_sentence_tokenizer()
WORDS = ["leave", "Dr. Lee", "e.g.", "3.5", "is", "Anna", "noon", "U.S.", "the", "why"]
ENDS = [". ", "? ", "!\n\n", ".\n", ' (see p. 3). "', "... "]


def prose(seed: int, sentences: int) -> str:
    choice = random.Random(seed)
    return "".join(
        " ".join(choice.choices(WORDS, k=choice.randint(2, 9))).capitalize() + choice.choice(ENDS)
        for _ in range(sentences)
    )


@pytest.mark.parametrize("block", [300, 5000])
def test_blocks_give_the_sentences_of_the_whole_text(block: int) -> None:
    text = "\n " + prose(0, 300)
    assert in_blocks(SPLIT, block=block)(text) == SPLIT(text)


@examples(50)
@given(st.text(st.sampled_from("aB .,\n。"), max_size=300), st.integers(5, 60))
def test_no_text_is_lost_in_blocks(text: str, block: int) -> None:
    whole = "".join(in_blocks(SPLIT, block=block)(text))
    assert whole.rstrip() == text.rstrip()  # NLTK leaves out space alone


@pytest.mark.parametrize(
    "text", ["年假二十五天、病假另计。" * 40, "word " * 90, "x" * 500, " " * 500]
)
def test_a_block_without_the_end_of_a_sentence_is_cut(text: str) -> None:
    def limited(part: str) -> list[str]:
        assert len(part) <= 100
        return SPLIT(part)

    assert "".join(in_blocks(limited, block=100)(text)).rstrip() == text.rstrip()


def test_transformations_of_the_user_are_copied_and_not_changed() -> None:
    splitter = SentenceSplitter(chunk_size=100, chunk_overlap=10)
    bounded = for_long_texts(splitter)
    assert isinstance(bounded, SentenceSplitter)
    assert splitter._split_fns[1] is not bounded._split_fns[1]
    assert bounded.split_text("Annual leave. " * 99) == splitter.split_text("Annual leave. " * 99)
    window = for_long_texts(SentenceWindowNodeParser.from_defaults(window_size=2))
    assert isinstance(window, SentenceWindowNodeParser)
    assert (
        window.sentence_splitter is not SentenceWindowNodeParser.from_defaults().sentence_splitter
    )
    assert for_long_texts(bounded) is bounded


def test_the_progress_bar_of_a_long_text_moves_with_each_block() -> None:
    text = "".join(f"Sentence {number:04}. " for number in range(1000))
    done: list[float] = []
    in_blocks(SPLIT, block=1000, watch=done.append)(text)
    assert len(done) >= len(text) // 1000
    assert len(text) - 1000 <= sum(done) <= len(text)


def test_paragraphs_begin_with_their_separators() -> None:
    text = "--a--b----c--"
    parts = [text[start:end] for start, end in paragraphs_in(text, "--", 0, len(text))]
    assert parts == ["--a", "--b", "--", "--c", "--"]
    assert [text[slice(*each)] for each in paragraphs_in(text, "--", 2, 6)] == ["a", "--b"]


# NLTK rejects files with several hard links, as uv makes them, each at its first use.
LINKED = """
import os, shutil, sys
from pathlib import Path
from llama_index.core import MockEmbedding, __file__ as core
from llama_index.core.schema import Document
from llama_retrieval_ext import KnowledgeBase

place = Path(sys.argv[1])
shutil.copytree(Path(core).parent / "_static" / "nltk_cache", place / "copy")
shutil.copytree(place / "copy", place / "linked", copy_function=os.link)
os.environ["NLTK_DATA"] = str(place / "linked")
text = "Sentence about leave. " * int(sys.argv[2])
with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
    kb.add([Document(id_="d", text=text)], show_progress=False).raise_for_failures()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sentences", [1_000, 30_000])
def test_the_first_text_of_a_process_is_split_with_files_of_nltk_that_have_hard_links(
    tmp_path: Path, sentences: int
) -> None:
    subprocess.run([sys.executable, "-c", LINKED, str(tmp_path), str(sentences)], check=True)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts above 3,000 characters are long, and two nodes are a group."""
    monkeypatch.setattr(documents, "LONG", 3000)
    monkeypatch.setattr(passages, "LONG", 3000)
    monkeypatch.setattr(splitting, "GROUP", 2)


@pytest.mark.usefixtures("small")
def test_a_long_document_is_added_updated_and_deleted_as_any_other(
    open_kb: Open, model: FakeEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = open_kb()
    around = [Document(id_=name, text=f"leave of {name}") for name in "ab"]
    assert kb.add([around[0], Document(id_="long", text=LONG * 2), around[1]]).added == 3
    assert [entry.document_id for entry in kb.documents()] == ["a", "b", "long"]
    assert kb.add([Document(id_="long", text=LONG * 2)]).unchanged == 1
    before, n_texts = found(kb), len(model.calls)
    report = kb.add([Document(id_="long", text=LONG * 2 + " The end of leave.")])
    assert (report.updated, report.n_nodes) == (1, kb.count() - 2)
    assert len(model.calls) - n_texts < 3  # the last passage
    assert len(found(kb).keys() & before.keys()) >= len(before) - 2
    monkeypatch.setattr(documents, "LONG", 10**9)
    whole = Document(id_="other", text=LONG * 2 + " The end of leave.")
    kb.add([whole])
    long, other = ([node.get_content() for node in kb.get(name)] for name in ("long", "other"))
    assert sorted(long) == sorted(other)
    assert kb.delete("long") == 1
    assert kb.count() == report.n_nodes + 2


@pytest.mark.usefixtures("small")
def test_a_long_document_that_fails_leaves_what_was_there(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="long", text=LONG)])
    before = found(kb)
    report = kb.add([Document(id_="long", text=LONG + " This is unembeddable.")])
    assert isinstance(report.failures["long"], TimeoutError)
    assert found(kb) == before
    assert kb.add([Document(id_="empty", text=" " * 5000)]).skipped == {"empty": "no text"}


@pytest.mark.usefixtures("small")
def test_a_long_document_keeps_its_principals(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="long", text=LONG)], allowed=["ann"])
    kb.add([Document(id_="long", text=LONG + " More leave.")])
    assert {node.metadata["allowed"][0] for node in kb.get("long")} == {"ann"}
    assert kb.documents()[0].allowed == ("ann",)


@pytest.mark.usefixtures("small")
def test_a_long_file_in_another_folder_is_not_embedded_again(
    kb: KnowledgeBase, model: PickyEmbedding, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "long.txt").write_text(LONG)
    kb.sync(tmp_path)
    calls = len(model.calls)
    (tmp_path / "docs").rename(tmp_path / "moved")
    assert len(kb.sync(tmp_path).moved) == 1
    assert len(model.calls) == calls


@pytest.mark.usefixtures("small")
def test_few_nodes_of_a_long_document_are_in_memory_at_a_time() -> None:
    counts: list[int] = []

    class Counting(FakeEmbedding):
        def _embed(self, text: str) -> list[float]:
            if len(counts) % 10 == 0:
                counts.append(sum(type(thing) is TextNode for thing in gc.get_objects()))
            else:
                counts.append(0)
            return super()._embed(text)

    gc.collect()
    before = sum(type(thing) is TextNode for thing in gc.get_objects())
    with KnowledgeBase.open("embedded::memory:", embed_model=Counting(dim=8)) as kb:
        kb.add([Document(id_="long", text=LONG * 10)])
        assert kb.count() > 40
    assert max(counts) - before < 15
