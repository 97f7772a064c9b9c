"""What the stages that have queries written by a language model do alike."""

from collections.abc import Sequence

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.details import note_details
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.stages.rewriting.llm_queries import queries_in
from llama_retrieval_ext.stages.rewriting.query_variants import distinct, keeps_language, reworded


def wordings(answer: str, query: Query) -> list[str]:
    r"""The queries in a model's answer, each once, in the language of the query.

    Examples:
        >>> wordings("1. 年假有几天\n2. annual leave", Query("员工年假"))
        ['年假有几天']

    """
    kept = [text for text in queries_in(answer) if keeps_language(text, query.query_str)]
    return distinct(kept)


def fanned_out(query: Query, texts: Sequence[str], *, include_original: bool = True) -> list[Query]:
    """The query in all its wordings, noted in the result's details.

    Args:
        query: The original; it is asked when there is nothing else to ask.
        texts: What the model made of it.
        include_original: Whether it is asked beside them.
    """
    asked = [query] if include_original or not texts else []
    asked += [reworded(query, text) for text in texts]
    note_details(is_total=True, generated_queries=[*texts], queries_count=len(asked))
    return asked


def check_number(number: int, *, of: str) -> int:
    """The same number, if so many of something can be asked for.

    Raises:
        ConfigurationError: It is not a whole number of at least 1.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigurationError(f"{of} must be a whole number of at least 1, got {number!r}")
    return number
