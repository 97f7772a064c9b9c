"""What a notebook shows of an explanation: why each hit is where it is."""

import re

import pytest

from llama_retrieval_ext import MMR, RRF, Retriever, RuleRerank, Top, WeightedSum, branches
from llama_retrieval_ext.testing.fakes import FakeEmbedding, FixedRetriever

_WORDS = FixedRetriever([("a", 9.0), ("b", 4.0)], name="words")
_MEANING = FixedRetriever([("a", 0.9), ("b", 0.8)], name="meaning")
_FUSED = branches(words=_WORDS, meaning=_MEANING) >> RRF()


def _cards(retriever: Retriever) -> list[tuple[list[str], list[str]]]:
    """The visible and the folded chips of each card, as text."""
    html = retriever.explain("leave")._repr_html_()
    cards = html.partition("<summary>Steps")[0].split('class="card"')[1:]
    split = [card.partition("<details>") for card in cards]
    return [
        ([_text(chip) for chip in _chips(shown)], [_text(chip) for chip in _chips(folded)])
        for shown, _, folded in split
    ]


def _chips(html: str) -> list[str]:
    return re.findall(r'class="chip">(?:<i[^>]*></i>)?([^<]*)', html)


def _text(chip: str) -> str:
    return chip.partition(",")[0]


@pytest.mark.parametrize(
    ("retriever", "reordering"),
    [
        (_FUSED >> MMR(0.5, embed_model=FakeEmbedding()), ["MMR"]),
        (_FUSED >> RuleRerank(), ["previous rank"]),
        (
            _FUSED >> RuleRerank() >> MMR(0.5, embed_model=FakeEmbedding()) >> Top(2),
            ["previous rank", "MMR"],
        ),
    ],
)
def test_a_card_shows_the_legs_first_and_the_stages_that_reorder_after_them(
    retriever: Retriever, reordering: list[str]
) -> None:
    cards = _cards(retriever)
    assert len(cards) == 2
    for (shown, folded), rank in zip(cards, (1, 2), strict=True):
        assert shown[0].startswith(f"words #{rank} (")
        assert shown[1].startswith(f"meaning #{rank} (")
        names = [chip.partition(" #")[0] for chip in shown[2 : 2 + len(reordering)]]
        assert names == reordering
        assert all(chip.endswith("(0)") for chip in folded)


def test_a_leg_with_the_lowest_score_of_the_fusion_is_shown() -> None:
    fused = branches(words=_WORDS, meaning=_MEANING) >> WeightedSum()
    (_, _), (shown, folded) = _cards(fused)
    assert [chip.partition(" (")[0] for chip in shown] == ["words #2", "meaning #2"]
    assert not folded


def test_the_weight_is_the_one_that_was_multiplied() -> None:
    fused = branches(words=_WORDS, meaning=_MEANING) >> WeightedSum()
    line = next(line for line in str(fused.explain("leave")).splitlines() if "words #1" in line)
    multiplied = re.search(r"normalised 1, weight ([\d.]+), adds ([\d.]+)", line)
    assert multiplied is not None
    assert multiplied[1] == multiplied[2]
