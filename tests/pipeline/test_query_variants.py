"""Variants that are worth asking differ from the query and keep its language."""
# ruff: noqa: RUF001 - full-width punctuation on purpose

from llama_retrieval_ext.query import Query, Scope, reworded
from llama_retrieval_ext.stages.rewrite.multi_query import distinct, keeps_language
from tests.cases import each_case


def test_case_spaces_width_and_final_punctuation_make_no_difference() -> None:
    texts = [
        "Annual leave?",
        "annual  LEAVE",
        "ａｎｎｕａｌ　ｌｅａｖｅ",
        "annual leave.",
        "days off",
    ]
    assert distinct(texts) == ["Annual leave?", "days off"]
    assert distinct(["年假 天数？", "年假天数"]) == ["年假 天数？"]


def test_what_repeats_the_original_is_left_out() -> None:
    assert distinct(["ANNUAL LEAVE?", "days off"], of="annual leave") == ["days off"]


def test_signs_within_a_text_make_a_difference() -> None:
    assert distinct(["C++", "C#", "C"]) == ["C++", "C#", "C"]


def test_blank_texts_are_left_out() -> None:
    assert distinct(["", " ", "?"]) == []


@each_case(
    ("text", "query", "kept"),
    [
        ("年假有几天", "员工年假", True),
        ("annual leave", "员工年假", False),
        ("员工年假", "annual leave", False),
        ("what is BM25", "BM25 是什么", False),
        ("BM25 的 k1 参数如何设置", "BM25 k1 参数", True),
        ("如何使用 parse_filters 函数", "how to use parse_filters", False),
        ("有給休暇", "ゆうきゅうは何日ですか", True),
        ("отпуск", "annual leave", False),
        ("vacances d'été", "summer leave", True),
        ("42 + 1", "员工年假", True),
        ("annual leave", "42?", True),
    ],
)
def test_a_variant_keeps_the_language_as_far_as_the_script_tells(
    text: str, query: str, *, kept: bool
) -> None:
    assert keeps_language(text, query) is kept


def test_a_reworded_query_keeps_all_but_what_was_embedded() -> None:
    query = Query(
        "leave",
        custom_embedding_strs=["leave"],
        embedding=[1.0],
        scope=Scope("acme"),
        top_k=3,
        context={"user": "ann"},
    )
    other = reworded(query, "days off")
    assert (other.query_str, other.embedding_strs, other.embedding) == (
        "days off",
        ["days off"],
        None,
    )
    assert (other.scope, other.top_k, other.context) == (query.scope, 3, {"user": "ann"})
    assert (query.query_str, query.embedding) == ("leave", [1.0])
