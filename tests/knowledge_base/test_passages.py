"""Passages know where they stand in their document, and are cut along its outline."""

import gc
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser
from llama_index.core.node_parser.text.utils import split_by_sentence_tokenizer
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode

from llama_retrieval_ext.knowledge_base import documents, passages, splitting
from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.passages import (
    PassageParser,
    for_long_texts,
    in_blocks,
    paragraphs_in,
)
from llama_retrieval_ext.knowledge_base.readers.outline import markdown_outline, sections_of
from llama_retrieval_ext.testing.fakes import FakeEmbedding
from tests.cases import cases
from tests.knowledge_base.nodes import LONG as SHORT_TEXT
from tests.knowledge_base.nodes import found
from tests.programs import run_program
from tests.quick import examples

Open = Callable[..., KnowledgeBase]
PARSER = PassageParser(chunk_size=512, chunk_overlap=64)
SMALL = PassageParser(chunk_size=60, chunk_overlap=10)
LONG = "Every employee has twenty-five days of annual leave, which are granted on request. " * 6
HEADINGS = ("# Handbook", "## Leave", "### Sick leave", "## Expenses")
HANDBOOK = "".join(f"{heading}\n\n{LONG}\n\n" for heading in HEADINGS)


def page(text: str, name: str = "page.md", **metadata: object) -> Document:
    return Document(id_="page", text=text, metadata={"file_name": name, **metadata})


def cut(parser: PassageParser, document: Document) -> list[TextNode]:
    return [node for node in parser([document]) if isinstance(node, TextNode)]


def position(node: TextNode) -> slice:
    return slice(node.start_char_idx, node.end_char_idx)


LINES = st.sampled_from(
    [
        *("# Leave", "## Sick leave", "#### Deep", "Title", "=====", "---", "```", "~~~", ""),
        *(
            "| a | b |",
            "|---|---|",
            "| 1 | 2 |",
            "  indented",
            "25 days. Or 30? Ask!",
            "same",
            "same",
        ),
        *("年假二十五天。病假另计。", "word " * 30, "x" * 200, "😀" * 20, "\t\r", "title: A"),
    ]
)


@pytest.mark.slow
@examples(150)
@given(
    st.lists(LINES, max_size=60).map("\n".join), st.sampled_from(["page.md", "page.rst", "a.txt"])
)
def test_a_passage_is_the_text_of_its_document_at_its_position(text: str, name: str) -> None:
    nodes = cut(SMALL, page(text, name))
    assert [text[position(node)] for node in nodes] == [node.text for node in nodes]
    starts = [node.start_char_idx or 0 for node in nodes]
    assert starts == sorted(starts)
    ends = [node.end_char_idx or 0 for node in nodes]
    assert ends == sorted({*ends})  # no passage only repeats the end of the one before it
    covered = {at for node in nodes for at in range(*position(node).indices(len(text)))}
    assert all(text[at].isspace() for at in range(len(text)) if at not in covered)


@examples(60)
@given(st.lists(LINES, max_size=60).map("\n".join))
def test_a_document_without_an_outline_has_the_nodes_of_the_sentence_splitter(text: str) -> None:
    document = page(text, "note.txt", title="Notes")
    expected = SentenceSplitter(chunk_size=60, chunk_overlap=10)([document])

    def without_ids(nodes: Sequence[BaseNode]) -> list[tuple[str, object]]:
        # Of white space the splitter makes a node that is the end of the one before it.
        found = [(node.get_content(), node.metadata) for node in nodes]
        return [
            (text, metadata)
            for (last, _), (text, metadata) in zip([("", None), *found], found, strict=False)
            if not last.endswith(text)
        ]

    assert without_ids(cut(SMALL, document)) == without_ids(expected)


def test_a_fence_in_the_front_matter_opens_no_block_of_code() -> None:
    text = f"---\n# a\n# b\n```\n{'many words ' * 40}\n---\n# Leave\n\n{'few words ' * 40}"
    nodes = cut(SMALL, page(text))
    assert nodes[-1].metadata["title"] == "Leave"


def test_a_path_that_is_not_embedded_does_not_move_the_borders_of_passages() -> None:
    def starts(path: str) -> list[int | None]:
        document = page(LONG * 3, "note.txt", file_path=path)
        document.excluded_embed_metadata_keys = ["file_path"]
        return [node.start_char_idx for node in cut(SMALL, document)]

    assert starts("/docs/note.txt") == starts("/archive" * 20 + "/note.txt")


def test_sections_have_the_title_and_the_headings_above_them() -> None:
    nodes = cut(PARSER, page(HANDBOOK))
    paths = [(node.metadata["title"], node.metadata.get("heading_path")) for node in nodes]
    assert paths == [
        ("Handbook", None),
        ("Handbook", "Leave"),
        ("Handbook", "Leave > Sick leave"),
        ("Handbook", "Expenses"),
    ]
    assert nodes[2].text.startswith("### Sick leave\n")


def test_title_and_headings_are_searched_but_are_no_part_of_the_text() -> None:
    node = cut(PARSER, page(HANDBOOK))[2]
    assert "Handbook" not in node.text
    assert "Leave > Sick leave" in node.get_content(MetadataMode.EMBED)


def test_the_title_in_the_metadata_of_a_document_is_kept() -> None:
    nodes = cut(PARSER, page(HANDBOOK, title="Rules"))
    assert {node.metadata["title"] for node in nodes} == {"Rules"}
    assert nodes[0].metadata["heading_path"] == "Handbook"


@cases(
    ("text", "path"),
    [
        ("# Leave\n\n## Annual\n\n25 days.\n\n## Sick\n\nCall at nine.\n", ("Leave",)),
        ("# Leave\n\n## Annual\n\n25 days.\n", ("Leave", "Annual")),
        ("## Annual\n\n25 days.\n\n## Sick\n\nAt nine.\n\n## Carry-over\n\nFive days.\n", ()),
        ("# Leave\n\n25 days.\n\n## Carry-over\n\nFive.\n", ("Leave",)),
        ("# Leave\n\n## Annual\n\n### Rest\n\n# Fees\n\n## Taxi\n\n# Food\n\n## Lunch\n", ()),
    ],
)
def test_short_sections_are_joined_under_the_headings_that_they_share(
    text: str, path: tuple[str, ...]
) -> None:
    assert sections_of(text, markdown_outline(text)) == [(0, len(text), path)]


@cases("n_words", range(30, 110, 4))
def test_no_passage_ends_in_a_heading(n_words: int) -> None:
    text = (
        f"# Manual\n\n{'few ' * 20}\n\n## 3.1. Overview\n\n### 3.1.1. Leave\n\n{'day ' * n_words}."
    )
    nodes = cut(PassageParser(chunk_size=120, chunk_overlap=20), page(text))
    last_lines = [node.text.rpartition("\n")[2] for node in nodes]
    assert not any(line.startswith("#") for line in last_lines)


def test_parts_of_a_table_repeat_its_header_and_caption_apart_from_the_text() -> None:
    rows = "".join(f"| employee {number} | {number} days of leave |\n" for number in range(30))
    text = (
        f"# Leave\n\nTable 1: days a year\n\n| who | how long |\n|---|---|\n{rows}\nAsk the office."
    )
    first, *others = cut(SMALL, page(text))
    assert "table" not in first.metadata
    assert others[0].metadata["table"] == "Table 1: days a year\n| who | how long |\n|---|---|"
    assert "how long" not in others[0].text
    assert all(node.text.startswith("| employee") for node in others)


def test_a_block_of_code_is_cut_between_lines() -> None:
    code = "".join(f"value_{number} = compute(first, second, {number})\n" for number in range(40))
    nodes = cut(SMALL, page(f"# Code\n\n```python\n{code}```\n"))
    assert len(nodes) > 5
    assert all(node.text.endswith((")", "```")) for node in nodes[1:])


def test_metadata_that_fill_a_passage_are_an_error_that_says_what_to_do(kb: KnowledgeBase) -> None:
    report = kb.add([page("text", note="word " * 600)])
    assert "excluded_embed_metadata_keys" in str(report.failures["page"])


@pytest.mark.slow
@pytest.mark.parametrize("length", [1_000, 20_000])
def test_a_heading_of_any_length_leaves_room_for_the_text(kb: KnowledgeBase, length: int) -> None:
    report = kb.add([page(f"# Leave\n\n{LONG}\n\n## {'long ' * (length // 5)}\n\n{LONG}")])
    assert report.added == 1


def test_headings_count_in_the_keyword_search_of_each_engine(open_kb: Open) -> None:
    kb = open_kb()
    text = HANDBOOK.replace("## Expenses", "## Zeppelins\n" + LONG * 6)
    kb.add([page(text)], show_progress=False)
    hits = kb.retriever("keyword", top_k=2).search("zeppelins").hits
    assert [hit.metadata["heading_path"] for hit in hits] == ["Zeppelins", "Zeppelins"]
    assert ["Zeppelins" in hit.text for hit in hits].count(True) == 1
    assert all(text[hit.start : hit.end] == hit.text for hit in hits)


SPLIT = split_by_sentence_tokenizer()
WORDS = ["leave", "Dr. Lee", "e.g.", "3.5", "is", "Anna", "noon", "U.S.", "the", "why"]
ENDS = [". ", "? ", "!\n\n", ".\n", ' (see p. 3). "', "... "]


def prose(seed: int, sentences: int) -> str:
    choice = random.Random(seed)
    return "".join(
        " ".join(choice.choices(WORDS, k=choice.randint(2, 9))).capitalize() + choice.choice(ENDS)
        for _ in range(sentences)
    )


@pytest.mark.slow
@pytest.mark.parametrize("block", [300, 5000])
def test_blocks_give_the_sentences_of_the_whole_text(block: int) -> None:
    text = "\n " + prose(0, 300)
    assert in_blocks(SPLIT, block=block)(text) == SPLIT(text)


@cases("text", ["年假二十五天、病假另计。" * 40, "word " * 90, "x" * 500, " " * 500])
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


# NLTK rejects files with several hard links, as uv makes them, each at its first use.
LINKED = """
import os, shutil, sys
from pathlib import Path
from llama_index.core import MockEmbedding, __file__ as core
from llama_index.core.schema import Document
from llama_retrieval_ext import KnowledgeBase
from llama_retrieval_ext.knowledge_base import documents, passages

place = Path(sys.argv[1])
shutil.copytree(Path(core).parent / "_static" / "nltk_cache", place / "copy")
shutil.copytree(place / "copy", place / "linked", copy_function=os.link)
os.environ["NLTK_DATA"] = str(place / "linked")
documents.LONG = passages.LONG = int(sys.argv[2])
text = "Sentence about leave. " * 1_000
with KnowledgeBase.open("embedded::memory:", embed_model=MockEmbedding(4)) as kb:
    kb.add([Document(id_="d", text=text)], show_progress=False).raise_for_failures()
"""


@pytest.mark.slow
@pytest.mark.parametrize("long", [3_000, 2_000_000])
def test_the_first_text_of_a_process_is_split_with_files_of_nltk_that_have_hard_links(
    tmp_path: Path, long: int
) -> None:
    done = run_program(LINKED, tmp_path, long)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts above 3,000 characters are long, and two nodes are a group."""
    monkeypatch.setattr(documents, "LONG", 3000)
    monkeypatch.setattr(passages, "LONG", 3000)
    monkeypatch.setattr(splitting, "GROUP", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_long_document_is_added_updated_and_deleted_as_any_other(
    open_kb: Open, model: FakeEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    kb = open_kb()
    around = [Document(id_=name, text=f"leave of {name}") for name in "ab"]
    assert kb.add([around[0], Document(id_="long", text=SHORT_TEXT * 2), around[1]]).added == 3
    assert [entry.document_id for entry in kb.documents()] == ["a", "b", "long"]
    assert kb.add([Document(id_="long", text=SHORT_TEXT * 2)]).unchanged == 1
    before, n_texts = found(kb), len(model.calls)
    report = kb.add([Document(id_="long", text=SHORT_TEXT * 2 + " The end of leave.")])
    assert (report.updated, report.n_nodes) == (1, kb.count() - 2)
    assert len(model.calls) - n_texts < 3  # the last passage
    assert len(found(kb).keys() & before.keys()) >= len(before) - 2
    monkeypatch.setattr(documents, "LONG", 10**9)
    whole = Document(id_="other", text=SHORT_TEXT * 2 + " The end of leave.")
    kb.add([whole])
    long, other = ([node.get_content() for node in kb.get(name)] for name in ("long", "other"))
    assert sorted(long) == sorted(other)
    assert kb.delete("long") == 1
    assert kb.count() == report.n_nodes + 2


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_long_document_that_fails_leaves_what_was_there(kb: KnowledgeBase) -> None:
    kb.add([Document(id_="long", text=SHORT_TEXT)])
    before = found(kb)
    report = kb.add([Document(id_="long", text=SHORT_TEXT + " This is unembeddable.")])
    assert isinstance(report.failures["long"], TimeoutError)
    assert found(kb) == before
    assert kb.add([Document(id_="empty", text=" " * 5000)]).skipped == {"empty": "no text"}


@pytest.mark.usefixtures("small")
@pytest.mark.slow
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
        kb.add([Document(id_="long", text=SHORT_TEXT * 10)])
        assert kb.count() > 40
    assert max(counts) - before < 15


def test_paragraphs_begin_with_their_separators() -> None:
    text = "--a--b----c--"
    parts = [text[start:end] for start, end in paragraphs_in(text, "--", 0, len(text))]
    assert parts == ["--a", "--b", "--", "--c", "--"]
    assert [text[slice(*each)] for each in paragraphs_in(text, "--", 2, 6)] == ["a", "--b"]
