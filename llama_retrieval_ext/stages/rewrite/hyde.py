"""HyDE: hypothetical documents by a language model that might answer a query."""

import re
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from llama_retrieval_ext.execution.context import note_details
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.llm.functions import AnyLLM
from llama_retrieval_ext.llm.model import SEARCH_TIMEOUT_S, LanguageModel, check_prompt, filled
from llama_retrieval_ext.llm.parsing import cleaned, has_words, is_cut_off, is_refusal
from llama_retrieval_ext.parameters import Count, Seconds
from llama_retrieval_ext.pipeline.stages import FanOut, Rewrite
from llama_retrieval_ext.query import Query, reworded
from llama_retrieval_ext.stages.rewrite.multi_query import distinct

HYDE_PROMPT: Final = """\
Write a passage of about 100 words that answers the question below, as it would stand in the very \
document that answers it. Where you do not know a fact, make up a likely one.
Write only the passage, in the language of the question.
只写段落本身，使用与问题相同的语言。

Question: {query}
Passage:"""  # noqa: RUF001 - Chinese punctuation

_FENCED: Final = re.compile(r"(?:```|~~~)[^\n]*\n(.*?)\n?(?:```|~~~)?", re.DOTALL)
_LABEL: Final = re.compile(
    r"\W{0,3}(?:passage|answer|document|段落|回答|答案|文档)\W{0,2}[:：]\W{0,2}\s*",  # noqa: RUF001
    re.IGNORECASE,
)
# A line before the passage that ends in a colon and is at most this long is an introduction.
_LONGEST_HEADING: Final = 120


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HypotheticalDocuments:
    """Passages by a language model that might answer a query.

    Args:
        llm: Any LlamaIndex LLM, or a function from prompt to text, sync or async.
        n: Number of passages, at least 1; requested concurrently. Duplicates count once, so more
            than one needs an LLM with a temperature above 0.
        include_original: Whether to use the query itself as well.
        prompt: Template with ``{query}``; other braces are kept.
        max_tokens: Passed to the LLM; None for its own limit.
        timeout_s: Time limit of the LLM in seconds, within half of the query's remaining time.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    llm: AnyLLM
    _: KW_ONLY
    n: Count = 1
    include_original: bool = True
    prompt: str = HYDE_PROMPT
    max_tokens: Count | None = None
    timeout_s: Seconds = SEARCH_TIMEOUT_S
    _model: LanguageModel = field(init=False)

    def __post_init__(self) -> None:
        check_prompt(self.prompt, "query")
        model = LanguageModel(self.llm, self.timeout_s, max_tokens=self.max_tokens)
        object.__setattr__(self, "_model", model)

    def documents(self, query: Query) -> Plan[list[str]]:
        """Return the plan for the passages; empty, and degraded, if the LLM fails."""
        prompt = filled(self.prompt, query=query.query_str)
        written = yield from self._model.answers(
            "HyDE", prompt, passage_in, times=self.n, scope=query.scope
        )
        documents = distinct(written)
        note_details(is_total=True, hyde_queries=[*documents], hyde_queries_count=len(documents))
        return documents


def passage_in(answer: str) -> str:
    r"""Return the passage in a model's answer, without the remarks around it.

    Examples:
        >>> passage_in("<think>leave</think>Here is a passage:\n\nStaff have 25 days.")
        'Staff have 25 days.'
        >>> passage_in("I'm sorry, but I can't help with that.")
        ''

    """
    text = cleaned(answer)
    heading, _, remainder = text.partition("\n")
    announces = heading.rstrip("*_ ").endswith((":", "：")) and len(heading) <= _LONGEST_HEADING  # noqa: RUF001
    text = remainder.strip() if announces and remainder.strip() else text
    fenced = _FENCED.fullmatch(text)
    text = text if fenced is None else fenced[1].strip()
    label = _LABEL.match(text)
    text = text if label is None else text[label.end() :]
    is_half = text.startswith(("[", "{")) and is_cut_off(text)
    return text if has_words(text) and not is_refusal(text) and not is_half else ""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HyDE(HypotheticalDocuments, Rewrite):
    """Rewrite that embeds the query with hypothetical answers: ``HyDE(llm) >> retriever``.

    Vector search uses the mean of the embeddings of the query and of ``n`` documents that a
    language model writes. Keyword search uses the query's own words. A query with its own embedding
    keeps it, and the LLM is not called. If the LLM fails, times out or gives no usable answer, the
    query is unchanged and the answer is marked degraded. The result's details have
    ``hyde_queries`` and ``hyde_queries_count``.

    `HyDEFanOut` retrieves with each document and fuses the rankings instead.

    It takes the arguments of `HypotheticalDocuments`.

    Source:
        Gao et al., Precise Zero-Shot Dense Retrieval without Relevance Labels, ACL 2023,
        https://arxiv.org/abs/2212.10496, equation 8: the mean of ``n`` documents and the query.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> HyDE(ScriptedLLM(["Staff have 25 days of annual leave."]))
        HyDE(ScriptedLLM(...))

    """

    def rewrite_plan(self, query: Query) -> Plan[Query]:
        """Return the plan for a query that is embedded with its hypothetical answers."""
        if query.embedding is not None or not query.query_str.strip():
            return query
        documents = yield from self.documents(query)
        if not documents:
            return query
        original = query.embedding_strs if self.include_original else []
        return replace(query, custom_embedding_strs=[*original, *documents])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HyDEFanOut(HypotheticalDocuments, FanOut):
    """Fan-out to hypothetical answers: ``HyDEFanOut(llm) >> retriever >> RRF()``.

    A wrong document does less harm than in the mean of `HyDE`, but each document costs a
    retrieval. Keyword search also uses the documents' words. If the LLM fails, times out or gives
    no usable answer, only the query is searched and the answer is marked degraded. The result's
    details have ``hyde_queries`` and ``hyde_queries_count``.

    It takes the arguments of `HypotheticalDocuments`.

    Source:
        Gao et al., Precise Zero-Shot Dense Retrieval without Relevance Labels, ACL 2023,
        https://arxiv.org/abs/2212.10496. The paper averages embeddings; this class fuses rankings.

    Examples:
        >>> from llama_retrieval_ext.testing.scripted_llm import ScriptedLLM
        >>> HyDEFanOut(ScriptedLLM(["Staff have 25 days of annual leave."]))
        HyDEFanOut(ScriptedLLM(...))

    """

    def fan_out_plan(self, query: Query) -> Plan[list[Query]]:
        """Return the plan for the query and one more query for each hypothetical answer."""
        if not query.query_str.strip():
            return [query]
        documents = yield from self.documents(query)
        queries = [query] if self.include_original or not documents else []
        return queries + [reworded(query, document) for document in documents]
