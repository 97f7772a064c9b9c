"""Fan-outs to queries by a language model, and the parsing of its answers."""

# ruff: noqa: RUF001 - dashes, quotes and full-width punctuation on purpose
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal

from llama_retrieval_ext.execution.context import note_details
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.llm.model import SEARCH_TIMEOUT_S, LanguageModel, check_prompt, filled
from llama_retrieval_ext.llm.parsing import cleaned, has_words, is_refusal, texts_in_json, unfenced
from llama_retrieval_ext.parameters import Count, Seconds
from llama_retrieval_ext.pipeline.stages import FanOut
from llama_retrieval_ext.query import Query, reworded
from llama_retrieval_ext.text.normalization import RANGES, Script, dominant_script, normal


def distinct(texts: Sequence[str], *, of: str = "") -> list[str]:
    """Return the texts that differ in more than case, spaces and final punctuation.

    Examples:
        >>> distinct(["Annual  leave?", "annual leave", "days off"], of="Days off")
        ['Annual  leave?']

    """
    seen = {"", _spoken(of)}
    kept: list[str] = []
    for text in texts:
        spoken = _spoken(text)
        if spoken not in seen:
            seen.add(spoken)
            kept.append(text)
    return kept


def keeps_language(text: str, query: str) -> bool:
    """Return whether a text is in a language of the query, based on their scripts.

    The main script of each must occur in the other, so that variants of a Chinese query about
    ``parse_filters`` can contain more or less Latin.

    Examples:
        >>> keeps_language("年假有几天", "员工年假"), keeps_language("annual leave", "员工年假")
        (True, False)
        >>> keeps_language("parse_filters 的用法", "parse_filters 怎么用")
        True

    """
    scripts = dominant_script(query), dominant_script(text)
    return "none" in scripts or (_has(scripts[0], text) and _has(scripts[1], query))


def _spoken(text: str) -> str:
    return "".join(normal(text).casefold().split()).rstrip(".?!。,;、？！，；")


def _has(script: Script | Literal["none"], text: str) -> bool:
    # Japanese also uses Han.
    named = ("han", "kana") if script == "kana" else (script,)
    letters = "".join(ranges for name, ranges in RANGES.items() if name in named)
    return re.search(f"[{letters}]", normal(text)) is not None


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
    listed = texts_in_json(text)
    texts = _listed(text.splitlines()) if listed is None else [_unwrapped(t)[0] for t in listed]
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WrittenQueries(FanOut):
    """Base of fan-outs to queries that a language model writes.

    The list may be numbered, quoted, fenced, JSON, or between other lines. Queries that repeat the
    original or are in another language are dropped. If the LLM fails, times out or gives no usable
    answer, only the original is searched and the answer is marked degraded. The result's details
    have ``generated_queries`` and ``queries_count``, which includes the original.

    Args:
        llm: Any LlamaIndex LLM, or a function from prompt to text, sync or async.
        n: Maximum number of queries, at least 1; each costs a retrieval.
        include_original: Whether to search the original query as well.
        prompt: Template with ``{query}`` and ``{n}``; other braces are kept. LlamaIndex's
            ``{num_queries}`` is another name of ``{n}``.
        timeout_s: Time limit of the LLM in seconds, within half of the query's remaining time.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    llm: AnyLLM
    _: KW_ONLY
    n: Count
    include_original: bool = True
    prompt: str
    timeout_s: Seconds = SEARCH_TIMEOUT_S
    _model: LanguageModel = field(init=False)

    def __post_init__(self) -> None:
        check_prompt(self.prompt, "query")
        object.__setattr__(self, "_model", LanguageModel(self.llm, self.timeout_s))

    def fan_out_plan(self, query: Query) -> Plan[list[Query]]:
        """Return the plan for the query and those that the model writes."""
        text = query.query_str
        if not text.strip():
            return [query]
        written = yield from self._model.answers(
            type(self).__name__,
            filled(self.prompt, query=text, n=self.n, num_queries=self.n),
            lambda answer: self._usable(answer, query),
            scope=query.scope,
        )
        texts = [wording for wordings in written for wording in distinct(wordings, of=text)][
            : self.n
        ]
        queries = [query] if self.include_original or not texts else []
        queries += [reworded(query, text) for text in texts]
        note_details(is_total=True, generated_queries=[*texts], queries_count=len(queries))
        return queries

    def _usable(self, answer: str, query: Query) -> list[str]:
        """Return the queries in an answer, which may repeat the original; empty is a failure."""
        return wordings(answer, query)


MULTI_QUERY_PROMPT: Final = """\
A search engine is to find documents for the question below. Write {n} other queries that would \
find them: use synonyms and the words such documents use, and look at the question from several \
sides.
Write one query per line and nothing else, in the language of the question.
每行只写一个查询，不写其他内容；查询使用与问题相同的语言。

Question: {query}
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MultiQuery(WrittenQueries):
    r"""Fan-out to rewordings of the query: ``MultiQuery(llm) >> retriever >> RRF()``.

    It takes the arguments of `WrittenQueries`; ``n`` is the number of variants.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> MultiQuery(ScriptedLLM(["annual leave\ndays off"]), n=2)
        MultiQuery(ScriptedLLM(...), n=2)

    """

    _: KW_ONLY
    n: Count = 3
    prompt: str = MULTI_QUERY_PROMPT

    def _usable(self, answer: str, query: Query) -> list[str]:
        return distinct(wordings(answer, query), of=query.query_str)


DECOMPOSE_PROMPT: Final = """\
Divide the question below into at most {n} simpler questions that can be looked up one by one, and \
that together answer it. Each must make sense on its own: name what it is about. If the question \
asks one thing only, repeat it.
Write one question per line and nothing else, in the language of the question.
每行只写一个问题，不写其他内容；使用与原问题相同的语言。

Question: {query}
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Decompose(WrittenQueries):
    r"""Fan-out to the parts of a question: ``Decompose(llm) >> retriever >> RRF()``.

    A question with one part stays unchanged.

    It takes the arguments of `WrittenQueries`; ``n`` is the maximum number of parts.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> Decompose(ScriptedLLM(["How long is sick leave?\nWho pays?"]))
        Decompose(ScriptedLLM(...))

    """

    _: KW_ONLY
    n: Count = 4
    prompt: str = DECOMPOSE_PROMPT


STEP_BACK_PROMPT: Final = """\
Take a step back from the question below: write the one more general question about the concept, \
rule or principle behind it, whose answer helps to answer it.
Write only that question, on one line, in the language of the question. If it is general already, \
repeat it.
只写一行，只写那个更一般的问题；使用与问题相同的语言。

Question: {query}
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepBack(WrittenQueries):
    """Fan-out to a broader question: ``StepBack(llm) >> retriever >> RRF()``.

    It takes the arguments of `WrittenQueries` except ``n`` and ``include_original``.

    Source:
        Zheng et al., Take a Step Back, ICLR 2024, https://arxiv.org/abs/2310.06117. The
        paper reads the passages of both questions; this class fuses their rankings.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> StepBack(ScriptedLLM(["How is leave regulated?"]))
        StepBack(ScriptedLLM(...))

    """

    _: KW_ONLY
    n: int = field(default=1, init=False)
    include_original: bool = field(default=True, init=False)
    prompt: str = STEP_BACK_PROMPT

    def _usable(self, answer: str, query: Query) -> list[str]:
        return wordings(answer, query)[:1]
