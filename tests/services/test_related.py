"""Names in passages that are related to a subject, without a graph."""
# ruff: noqa: RUF001 - Chinese punctuation on purpose

import pytest
from llama_index.core.schema import TextNode

from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.services.related import related_in_passages


def related(text: str, subject: str) -> list[str]:
    hits = [Hit(node=TextNode(id_="n", text=text), score=1.0, source="vector")]
    return [hit.name for hit in related_in_passages(hits, subject, ner=None)]


@pytest.mark.parametrize(
    "text",
    [
        "The leave budget is 12,345 EUR.",
        "# Leave\nEvery employee has annual leave; we said so to every employee.",
        "- Max leave is a week\n| Max | leave |",
        "Ticket HR-4711 is about leave, and so is INC0012 of 2026-05-04.",
        "All asked for leave. Nobody came.",
    ],
)
def test_numbers_sentence_starts_and_ticket_ids_are_no_names(text: str) -> None:
    assert related(text, "leave") == []


def test_capitalised_words_inside_a_sentence_are_names() -> None:
    text = "On leave, Ada Stone met Siemens and (IBM) at North Quay 12."
    assert sorted(related(text, "leave")) == ["Ada Stone", "IBM", "North Quay", "Siemens"]


def test_names_of_persons_in_chinese_are_found_without_a_ner() -> None:
    text = "张伟和李娜昨天检查了塔吊，由欧阳修按《安全生产法》审核，许可证齐全。"
    assert sorted(related(text, "塔吊")) == ["安全生产法", "张伟", "李娜", "欧阳修"]


def test_the_subject_is_not_related_to_itself() -> None:
    assert related("张伟和李娜检查了塔吊。", "张伟做了什么？") == ["李娜"]
