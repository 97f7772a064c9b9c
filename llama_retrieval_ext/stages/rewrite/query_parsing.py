"""Parsing of queries in the answer of a language model."""
# ruff: noqa: RUF001 - dashes, quotes and full-width punctuation on purpose

import re
from collections.abc import Sequence
from typing import Final

from llama_retrieval_ext.execution.context import note_details
from llama_retrieval_ext.llm.parsing import cleaned, has_words, is_refusal, texts_in_json, unfenced
from llama_retrieval_ext.pipeline.query_variants import distinct, keeps_language, reworded
from llama_retrieval_ext.query import Query

_HAN = "[一二三四五六七八九十]{1,2}"
_MARK: Final = re.compile(
    r"[-*+–—]\s+|[•‣◦▪●○·①-⑳]\s*"
    rf"|[(\[（【](?:\d{{1,2}}|{_HAN})[)\]）】][.:：、]?\s*"
    # Not the beginning of "3.11", "3.x" or "24:00".
    r"|\d{1,2}\s*[.:](?=[\s\"'“「*]|[^\x00-\x7f])\s*"
    rf"|\d{{1,2}}\s*[)）：、．]\s*|{_HAN}[、．.]\s*"
    r"|(?:(?:search|step-?back|alternative|rewritten) )?"
    r"(?:query|question|sub-?question|variant|variation|alternative|version|q"
    r"|子?问题|查询|检索词|变体)\s*"
    rf"(?:#?(?:\d{{1,2}}|{_HAN})?\s*[.:：)](?!\d)|#?\d{{1,2}}\s+[-–]\s)\s*",
    re.IGNORECASE,
)
_QUOTES: Final = dict(zip("\"'`*“‘「『«", "\"'`*”’」』»", strict=True))
_QUOTED_THEN_EXPLAINED: Final = re.compile(r"[\"“「](.+?)[\"”」]\s*[-–—(（:：]")
_TALK: Final = re.compile(
    r"(?:sure|certainly|of course|absolutely|okay|ok|great|yes)\b\s*(?:[,.!:—-]|here|$)"
    r"|here(?: (?:are|is)|['’]s)\b|below (?:are|is)\b|the following (?:are|quer|question)"
    r"|i(?:['’]ve| have) (?:\w+ly )?(?:re\w+ed|rewritten|written|created|listed|made)\b"
    r"|(?:i )?hope (?:this|these|that|it)\b|let me know\b|feel free\b|would you like\b"
    r"|(?:these|those|each|all of (?:these|them))\b.{0,30}\b"
    r"(?:quer|question|variant|variation|alternative|version|rephras|search)|note(?: that|:)"
    r"|(?:好的|当然|没问题)(?:[，,。！!]|$)|(?:以下|下面|以上)(?:是|为)"
    r"|希望(?:这|以上|对您|对你)|(?:这些|上述)(?:查询|问题|检索)|注意?[：:]",
    re.IGNORECASE,
)
_SENTENCE_ENDS: Final = (".", "。", "!", "！")
# Not after abbreviations: "U.S. law", "Dr. No".
_MORE_THAN_A_SENTENCE: Final = re.compile(r"[a-z\d)]{3}[.!]\s+[A-Z]|[。！]\s*\S")
# Layers such as **1. "query",** are removed one by one.
_LAYERS: Final = 5
# A longer line is prose, not a query.
_LONGEST: Final = 300


def queries_in(answer: str) -> list[str]:
    r"""Return the queries that a model lists in its answer.

    Lists may be numbered, bulleted, labelled, quoted, fenced, or JSON. If some lines have such
    a mark, the others are ignored. If none has one, all lines count except headings, refusals, and
    remarks before and after.

    Examples:
        >>> queries_in('Here you are:\n1. "annual leave"\n2. days off\nI hope this helps!')
        ['annual leave', 'days off']
        >>> queries_in("<think>two?</think>0")
        []

    """
    text = unfenced(cleaned(answer))
    texts = [_unwrapped(each)[0] for each in texts_in_json(text)] or _listed(text.splitlines())
    return [query for query in texts if has_words(query) and len(query) <= _LONGEST]


def _listed(lines: Sequence[str]) -> list[str]:
    parsed = [_unwrapped(line) for line in lines]
    # A heading may have a mark too: "- **Queries:**". A line that starts with a brace is JSON.
    queries = [
        (text, marked)
        for text, marked in parsed
        if has_words(text)
        and not (text.startswith("{") or text.endswith((":", "：")) or is_refusal(text))
    ]
    return [text for text, marked in queries if marked] or _without_remarks(
        [text for text, _ in queries]
    )


def _without_remarks(lines: Sequence[str]) -> list[str]:
    queries = [
        line for line in lines if not (_TALK.match(line) or _MORE_THAN_A_SENTENCE.search(line))
    ]
    # If the queries have no full stop, lines with one are remarks.
    return [line for line in queries if not line.endswith(_SENTENCE_ENDS)] or queries


def _unwrapped(line: str) -> tuple[str, bool]:
    """Return a line without marks and quotes, and whether it had any."""
    text, marked = line.replace("**", "").strip().lstrip("#> "), False
    for _ in range(_LAYERS):
        before = text
        mark = _MARK.match(text)
        if mark is not None:
            text, marked = text[mark.end() :], True
        explained = _QUOTED_THEN_EXPLAINED.match(text) if marked else None
        if explained is not None:
            text = explained[1]
        text, quoted = _unquoted(text.rstrip(",;，； "))
        marked = marked or quoted
        if text == before:
            break
    return text, marked


def _unquoted(text: str) -> tuple[str, bool]:
    closing = _QUOTES.get(text[:1])
    inner = text[1:-1]
    # A query may begin and end with a quotation: "sick leave" or "annual leave".
    if closing is None or not text.endswith(closing) or closing in inner or text[0] in inner:
        return text, False
    return inner.strip(), True


def wordings(answer: str, query: Query) -> list[str]:
    r"""Return the distinct queries in a model's answer that are in the language of the query.

    Examples:
        >>> wordings("1. 年假有几天\n2. annual leave", Query("员工年假"))
        ['年假有几天']

    """
    kept = [text for text in queries_in(answer) if keeps_language(text, query.query_str)]
    return distinct(kept)


def fanned_out(query: Query, texts: Sequence[str], *, include_original: bool = True) -> list[Query]:
    """Return the query in all its wordings, and record them in the result's details."""
    queries = [query] if include_original or not texts else []
    queries += [reworded(query, text) for text in texts]
    note_details(is_total=True, generated_queries=[*texts], queries_count=len(queries))
    return queries
