# ruff: noqa: RUF001 - Chinese punctuation on purpose
from dataclasses import fields
from string import Formatter

import pytest

from llama_retrieval_ext.capabilities import OutputTexts, RAGGenerator
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.testing import FakeRetriever, ScriptedLLM
from tests.cases import cases

ENGLISH = "The documents do not answer this question."
CHINESE = "现有文档无法回答这个问题。"


@cases(
    ("question", "language", "text"),
    [
        ("How much leave?", None, ENGLISH),
        ("年假有几天？", None, CHINESE),
        ("年假有几天？", "en", ENGLISH),
    ],
)
def test_no_answer_is_in_the_language_of_the_question_or_of_the_argument(
    question: str, language: str | None, text: str
) -> None:
    rag = RAGGenerator(FakeRetriever([]), llm=ScriptedLLM([]))
    assert rag.generate(question, language=language).text == text
    fixed = RAGGenerator(FakeRetriever([]), llm=ScriptedLLM([]), language=language)
    assert str(fixed.query(question)) == text


def test_a_language_without_texts_is_refused_before_a_model_is_called() -> None:
    llm = ScriptedLLM([])
    rag = RAGGenerator(FakeRetriever([("leave", 0.9, "25 days")]), llm=llm)
    with pytest.raises(ConfigurationError, match="'fr', but in en, zh"):
        rag.generate("How much leave?", language="fr")
    with pytest.raises(ConfigurationError, match="no texts in the language 'fr'"):
        RAGGenerator(FakeRetriever([]), llm=llm, language="fr")
    assert llm.prompts == []


@cases("name", [field.name for field in fields(OutputTexts)])
def test_a_chinese_text_has_the_fields_of_the_english_one(name: str) -> None:
    english, chinese = (getattr(OutputTexts.of(each), name) for each in ("en", "zh"))
    if isinstance(english, str):
        assert chinese != english
        assert _fields(chinese) == _fields(english)


def _fields(text: str) -> set[str]:
    return {field for _, field, *_ in Formatter().parse(text) if field}
