"""Check of the citations in an answer: whether the cited passages support it."""
# ruff: noqa: RUF001 - Chinese punctuation on purpose

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from llama_retrieval_ext.results import Hit
from llama_retrieval_ext.text.near_duplicates import shingles
from llama_retrieval_ext.text.normalization import dominant_script

# [1], [1, 2], [1][2], 【3】
_CITED: Final = re.compile(r"[\[【]\s*(\d{1,3}(?:\s*[,，;、]\s*\d{1,3})*)\s*[\]】]")
# The end of a statement, with the citations after it.
_STATEMENT: Final = re.compile(
    r".+?(?:[.!?](?=\s|[\[【]|$)|[。！？；]|\n|$)(?:\s*[\[【][\d\s,，;、]+[\]】])*", re.DOTALL
)
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
# List item numbers do not count as numbers of the statement.
_ENTRY: Final = re.compile(r"^\s*(?:\d{1,3}[.)、]|[-*•])\s+")


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation that names a passage of the prompt.

    Attributes:
        number: The number in the answer, from 1.
        hit: The hit behind it.
        statement: The statement that cites it.
    """

    number: int
    hit: Hit
    statement: str

    @property
    def node_id(self) -> str:
        """Id of the cited node."""
        return self.hit.node_id


@dataclass(frozen=True, slots=True)
class Citations:
    """The citations of an answer.

    Attributes:
        valid: Citations that name a passage, in the order of the answer.
        problems: Reasons why other citations or the answer are not valid; empty if all are.
    """

    valid: tuple[Citation, ...]
    problems: tuple[str, ...]


def check_citations(answer: str, hits: Sequence[Hit]) -> Citations:
    """Return the citations of an answer, and the problems of those that are not valid.

    A citation is valid if there is a passage with its number, every number in its statement occurs
    in a cited passage, and statement and passage share a word if they are in the same script. This
    finds invented sources and figures; it does not prove that a passage supports the statement. An
    answer without citations is not valid.

    Args:
        answer: The text.
        hits: The passages by number, from 1.

    Examples:
        >>> from llama_retrieval_ext.capabilities.generation.passages import as_hits
        >>> passages = as_hits(["Annual leave is 25 days."])
        >>> check_citations("Leave is 25 days [1].", passages).problems
        ()
        >>> check_citations("Leave is 30 days [1].", passages).problems
        ("'Leave is 30 days': 30 is not in [1]",)

    """
    valid: list[Citation] = []
    problems: list[str] = []
    for statement, numbers in _statements(answer):
        unknown = [number for number in numbers if not 1 <= number <= len(hits)]
        problems += [f"{statement!r}: there is no passage [{number}]" for number in unknown]
        cited = [Citation(n, hits[n - 1], statement) for n in numbers if n not in unknown]
        problem = _unsupported(statement, cited)
        if problem:
            problems.append(f"{statement!r}: {problem}")
        else:
            valid += cited
    if not valid and not problems:
        problems.append("the answer cites no passage")
    return Citations(tuple(valid), tuple(problems))


def _statements(answer: str) -> Iterator[tuple[str, list[int]]]:
    """Yield the statements that have citations, without these, and the numbers they cite."""
    for match in _STATEMENT.finditer(answer):
        numbers = [
            int(number)
            for cited in _CITED.findall(match.group())
            for number in re.findall(r"\d+", cited)
        ]
        if numbers:
            yield _words_of(match.group()), list(dict.fromkeys(numbers))


def _words_of(statement: str) -> str:
    text = _CITED.sub("", _ENTRY.sub("", statement)).strip().rstrip(".。!！?？ ")
    return re.sub(r"\s+([.,;:])", r"\1", text)


def _unsupported(statement: str, cited: Sequence[Citation]) -> str:
    """Return why the cited passages cannot support a statement; empty if they may."""
    if not cited:
        return ""
    text = " ".join(f"{each.hit.node.get_content()} {_metadata(each.hit)}" for each in cited)
    names = "".join(f"[{each.number}]" for each in cited)
    known = set(map(_plain, _NUMBER.findall(text)))
    missing = [each for each in _NUMBER.findall(statement) if _plain(each) not in known]
    if missing:
        return f"{', '.join(missing)} is not in {names}"
    words = shingles(statement)
    if dominant_script(statement) == dominant_script(text) and words and not words & shingles(text):
        return f"it has no word in common with {names}"
    return ""


def _plain(number: str) -> str:
    """Return the number without separators: 1,000 is 1000."""
    return number.replace(",", "")


def _metadata(hit: Hit) -> str:
    return " ".join(str(value) for value in hit.node.metadata.values())
