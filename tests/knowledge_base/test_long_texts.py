"""Long texts are split into sentences block by block, with the result of one call."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.node_parser import SentenceSplitter, SentenceWindowNodeParser
from llama_index.core.node_parser.text.utils import split_by_sentence_tokenizer
from llama_index.core.schema import Document

from llama_retrieval_ext.knowledge_base.knowledge_base import KnowledgeBase
from llama_retrieval_ext.knowledge_base.long_texts import for_long_texts, in_blocks
from tests.quick import examples

SPLIT = split_by_sentence_tokenizer()
WORDS = ["leave", "Dr. Lee", "e.g.", "3.5", "is", "Anna", "noon", "U.S.", "the", "why"]
ENDS = [". ", "? ", "!\n\n", ".\n", ' (see p. 3). "', "... "]


def prose(seed: int, sentences: int) -> str:
    choice = random.Random(seed)
    return "".join(
        " ".join(choice.choices(WORDS, k=choice.randint(2, 9))).capitalize() + choice.choice(ENDS)
        for _ in range(sentences)
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("block", [300, 1000, 5000])
def test_blocks_give_the_sentences_of_the_whole_text(seed: int, block: int) -> None:
    text = "\n " + prose(seed, 300)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(prose(7, 8000), id="English"),
        pytest.param("年假二十五天、病假另计。" * 25_000, id="Chinese"),
    ],
)
def test_a_long_text_has_the_nodes_of_llama_index(kb: KnowledgeBase, text: str) -> None:
    kb.add([Document(id_="long", text=text)], show_progress=False)
    expected = SentenceSplitter(chunk_size=512, chunk_overlap=64).split_text(text)
    assert sorted(node.get_content() for node in kb.get("long")) == sorted(expected)


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
