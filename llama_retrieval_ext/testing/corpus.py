"""Twelve short documents of two tenants, in English and Chinese, with queries and conditions."""
# ruff: noqa: RUF001 - the Chinese documents have Chinese punctuation

from collections.abc import Mapping

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not
from llama_retrieval_ext.scope import Scope

ACME = Scope("acme")
GLOBEX = Scope("globex")

# Each query finds nodes of both tenants, by words and by embedding.
SAMPLE_QUERIES = ("annual leave days", "员工年假", "parse_filters function", "canteen lunch")

# Tenant, name, knowledge base, title, language, year, score and tags; the texts are below.
_METADATA: tuple[tuple[str, str, str, str, str, int, float, list[str]], ...] = (
    ("acme", "leave", "handbook", "Leave", "en", 2024, 0.9, ["hr", "leave"]),
    ("acme", "sick", "handbook", "Sick leave", "en", 2022, 0.4, ["hr"]),
    ("acme", "leave-zh", "handbook", "年假", "zh", 2023, 0.75, ["hr", "leave"]),
    ("acme", "code", "engineering", "Filters", "en", 2024, 1.5, ["code", "python"]),
    ("acme", "safety-zh", "engineering", "施工安全", "zh", 2021, 0.0, []),
    ("acme", "lunch", "handbook", "Canteen", "en", 2020, -0.5, ["food"]),
    ("globex", "leave", "handbook", "Leave policy", "en", 2020, 0.6, ["leave", "policy"]),
    ("globex", "leave-zh", "handbook", "年假制度", "zh", 2020, 0.6, ["leave"]),
    ("globex", "code", "engineering", "Errors", "en", 2023, 2.25, ["code"]),
    ("globex", "travel", "handbook", "Travel", "en", 2019, 0.3, ["policy", "travel"]),
    ("globex", "lunch", "handbook", "Lunch", "en", 2021, 0.1, ["food"]),
)
_LUNCH = "Lunch is served when the canteen doors open at noon."
_TEXTS = {
    "acme-leave": "Every employee has 25 days of annual leave; five carry over to March.",
    "acme-sick": "On sick leave, hand in a doctor's note after three days.",
    "acme-leave-zh": "员工每年享有二十五天年假，其中五天可以结转至次年三月。",
    "acme-code": "The function parse_filters turns MetadataFilters into a tree of conditions.",
    "acme-safety-zh": "施工单位应当为员工提供安全帽，并定期检查脚手架。",
    "acme-lunch": _LUNCH,
    "globex-leave": "Annual leave is 20 days; days not taken are lost at the end of the year.",
    "globex-leave-zh": "员工年假为二十天，年底未休的年假作废。",
    "globex-code": "parse_filters refuses an empty group: the function raises InvalidFilterError.",
    "globex-travel": "Book travel two weeks ahead; trains come before planes.",
    "globex-lunch": _LUNCH,
    "stray-note": "A note on annual leave that nobody filed.",
}


def sample_nodes(embed_model: BaseEmbedding | None = None) -> list[TextNode]:
    """Return the sample documents, one node each; new objects at every call.

    Metadata: ``tenant_id`` (acme or globex), ``kb_id`` (handbook or engineering), ``title``,
    ``lang``, ``year`` (whole number), ``score`` (number with a fraction), ``tags`` (list of
    strings, once empty). The node ``stray-note`` has only a title: it has no owner, and every scope
    excludes it. Two nodes have the same text, so their scores tie.

    Args:
        embed_model: Embeds the text of each node; None for nodes without embeddings.

    Returns:
        The same nodes in the same order every time.

    Examples:
        >>> len(sample_nodes())
        12

    """
    metadata: dict[str, dict[str, object]] = {"stray-note": {"title": "Note"}}
    for tenant, name, kb, title, lang, year, score, tags in _METADATA:
        fields = {"title": title, "lang": lang, "year": year, "score": score, "tags": list(tags)}
        metadata[f"{tenant}-{name}"] = {"tenant_id": tenant, "kb_id": kb, **fields}
    nodes = [
        TextNode(
            id_=node_id,
            text=text,
            metadata=metadata[node_id],
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"{node_id}.md")},
        )
        for node_id, text in _TEXTS.items()
    ]
    if embed_model is not None:
        for node in nodes:
            node.embedding = embed_model.get_text_embedding(node.text)
    return nodes


CORPUS_SIZE = len(sample_nodes())

_EQ, _NE, _IN, _NIN = FilterOperator.EQ, FilterOperator.NE, FilterOperator.IN, FilterOperator.NIN
_GT, _GTE, _LT, _LTE = FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE
_ANY, _ALL, _CONTAINS = FilterOperator.ANY, FilterOperator.ALL, FilterOperator.CONTAINS
_TEXT, _FOLDED = FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE
_EMPTY = FilterOperator.IS_EMPTY

_ENGLISH = Compare("lang", _EQ, "en")
_OLD = Compare("year", _LT, 2021)
_LEAVE = Compare("tags", _CONTAINS, "leave")

SAMPLE_CONDITIONS: Mapping[str, Condition] = {
    "EQ a string": _ENGLISH,
    "EQ a Chinese string": Compare("title", _EQ, "年假"),
    "EQ a whole number": Compare("year", _EQ, 2020),
    "EQ a number with a fraction": Compare("score", _EQ, 0.6),
    "EQ zero": Compare("score", _EQ, 0),
    "EQ a whole number written with a fraction": Compare("year", _EQ, 2020.0),
    "EQ a number written as a string": Compare("year", _EQ, "2020"),
    "EQ part of a string": Compare("title", _EQ, "Leave"),
    "EQ on a list": Compare("tags", _EQ, "leave"),
    "EQ on a field that no node has": Compare("colour", _EQ, "red"),
    "EQ a string with quotes": Compare("title", _EQ, """O'Brien" or "1"=="1' -- \\"""),
    "NE": Compare("lang", _NE, "en"),
    "NE a number": Compare("year", _NE, 2020),
    "NE on a field that no node has": Compare("colour", _NE, "red"),
    "IN strings": Compare("title", _IN, ("Leave", "Lunch", "none")),
    "IN numbers": Compare("year", _IN, (2019, 2024)),
    "IN nothing": Compare("lang", _IN, ()),
    "NIN strings": Compare("title", _NIN, ("Leave", "Lunch")),
    "NIN numbers": Compare("year", _NIN, (2019, 2020)),
    "NIN nothing": Compare("lang", _NIN, ()),
    "GT": Compare("year", _GT, 2021),
    "GTE": Compare("year", _GTE, 2021),
    "LT": Compare("score", _LT, 0.4),
    "LTE": Compare("score", _LTE, 0.4),
    "GT a number with a fraction": Compare("year", _GT, 2020.5),
    "LT on strings": Compare("title", _LT, 2021),
    "ANY": Compare("tags", _ANY, ("food", "code", "none")),
    "ALL": Compare("tags", _ALL, ("hr", "leave")),
    "ALL on a string": Compare("lang", _ALL, ("en",)),
    "CONTAINS": _LEAVE,
    "CONTAINS part of an item": Compare("tags", _CONTAINS, "lea"),
    "CONTAINS on a string": Compare("title", _CONTAINS, "Leave"),
    "TEXT_MATCH": Compare("title", _TEXT, "leave"),
    "TEXT_MATCH within a word": Compare("title", _TEXT, "rave"),
    "TEXT_MATCH in Chinese": Compare("title", _TEXT, "年假"),
    "TEXT_MATCH with a wildcard": Compare("title", _TEXT, "%e_v*"),
    "TEXT_MATCH on a list": Compare("tags", _TEXT, "leave"),
    "TEXT_MATCH_INSENSITIVE": Compare("title", _FOLDED, "LEAVE"),
    "IS_EMPTY where it is missing": Compare("lang", _EMPTY, None),
    "IS_EMPTY where the list is empty": Compare("tags", _EMPTY, None),
    "both": AllOf((_ENGLISH, _OLD)),
    "either": AnyOf((_OLD, _LEAVE)),
    "not": Not(_ENGLISH),
    "not a number": Not(_OLD),
    "neither": Not(AnyOf((_OLD, _LEAVE))),
    "not both": Not(AllOf((_ENGLISH, _LEAVE))),
    "not not": Not(Not(_ENGLISH)),
    "either of two pairs": AnyOf((AllOf((_ENGLISH, _LEAVE)), AllOf((Not(_ENGLISH), _OLD)))),
    "both of two choices": AllOf((AnyOf((_OLD, _LEAVE)), AnyOf((Not(_ENGLISH), Not(_LEAVE))))),
    "everything": AllOf(()),
    "nothing": AnyOf(()),
}
