"""What documents a question looks for: an unknown word that names them, or nothing but values."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from llama_retrieval_ext.filter_fields import Field, plural
from llama_retrieval_ext.filter_words import SYNONYMS, Amount, Token
from llama_retrieval_ext.filters import Condition, comparisons
from llama_retrieval_ext.text.segmentation import has_unspaced

# The last part of a name, P, stands for it: "director Nolan", "with Pitt or Hanks", "Nolan films".
_PART_OF_NAME: Final = re.compile(
    "(?<=[Fw])P|(?<=F[ep])P|(?<=[Fw]P[&|,])P|(?<=P[&|])P(?=k?g)|P(?=(?:[&|]P)?k?g)"
)
_VERB: Final = re.compile("(?:[gydvN]|k!?)(x)(?=[aT]{0,2}[vNb]|[wp][aT]?[vNP])")
# The only words of a question that may name documents: "easy trails ...", ... 的演出.
_UNKNOWN: Final = re.compile(
    r"(?P<any>a*)T?(?:[vNF](?:[,&|]*|k))*x?(?P<x>x)(?!x)|[^x]*[kvNs](?P<y>x{1,4})$"
)
_ATTRIBUTES: Final = {form for row in SYNONYMS for word in row for form in (word, plural(word))}
# Classes of words that a question for documents has beside filters, and what it is about.
_DOCUMENTS: Final = re.compile("(?:o[^V,]*|^a*x(?=g)|[VagTkor&|,pw])*")
_MANY: Final = 2
# Values side by side, and other filters after them.
_LISTING: Final = re.compile(r"[aT]*(?:F[ep]?)?!?[vN][^xqo]*")


def in_context(question: str, words: Sequence[Token]) -> list[Token]:
    """Return words with the classes that they have beside others: parts of names, and verbs.

    The verb before a value is like "with", as in "advisories affecting Windows", or like "made",
    as in "episodes hosted by Will Power".
    """
    codes = _PART_OF_NAME.sub("N", "".join(token.code for token in words)).replace("P", "x")
    for match in _VERB.finditer(codes):
        at = match.start(1)
        text = question[words[at].start : words[at].end]
        code = "w" if match[0][0] == "k" or text.endswith("ing") else "x"
        code = "r" if text.endswith("ed") and match[0][0] != "k" else code
        codes = f"{codes[:at]}{code}{codes[at + 1 :]}"
    return [
        token._replace(code=code, meaning=token.meaning if code in (token.code, "N") else None)
        for token, code in zip(words, codes, strict=True)
    ]


def unknown_document(question: str, words: Sequence[Token], codes: str) -> tuple[int, int] | None:
    """Return the places of the words that may name documents, as "trails", if any may."""
    match = _UNKNOWN.match(codes)
    if match is None or "q" in codes:
        return None
    first, end = match.span("x" if match["x"] else "y")
    text = question[words[first].start : words[end - 1].end]
    is_participle = text.endswith(("ing", "ed"))
    if is_participle and codes[:first].endswith("x"):  # "doctors accepting ..."
        first, end = first - 1, end - 1
        text = question[words[first].start : words[end - 1].end]
    is_kind = has_unspaced(text) or match["any"] or text.endswith("s")
    return (first, end) if is_kind and text.casefold() not in _ATTRIBUTES else None


def is_evident(
    question: str, words: Sequence[Token], codes: str, filters: Sequence[tuple[Condition, int, int]]
) -> bool:
    """Return whether a question is of filters alone, whose number or form tells that they are.

    It is a unit, a field, a comparison that names one ("cheaper"), or "that are not"; of two
    filters, a capital or a negation; or three filters. A time is no more than a third one.

    Args:
        question: The question.
        words: Its words by class.
        codes: The classes, V for those of filters.
        filters: The filters, with the places of their words.
    """
    if codes.count("g") > 1 or not _DOCUMENTS.fullmatch(codes):
        return False
    names, times, has_mark = set[str](), 0, False
    for condition, start, end in filters:
        phrase = words[start:end]
        classes = {token.code for token in phrase}
        is_stated = any(isinstance(token.meaning, Amount) for token in phrase)
        is_stated |= any(token.code in "cj" and " " in token.meaning for token in phrase)
        is_stated &= phrase[0].code != "p"  # "eggs for 5 minutes"
        if is_stated or "F" in classes or (phrase[0].code == "!" and codes[:start][-1:] == "k"):
            return True
        is_time = classes.isdisjoint("vN")
        times += is_time
        names |= set() if is_time else {compare.key for compare in comparisons(condition)}
        has_mark |= "!" in classes or question[phrase[-1].start].isupper()
    return len(names) > 1 and (has_mark or len(names) + times > _MANY)


def lists_values(
    question: str, words: Sequence[Token], codes: str, fields: Mapping[str, Field]
) -> bool:
    """Return whether a question has nothing but filters: values of several fields."""
    of = any(question[token.start : token.end] == "of" for token in words)  # "economy of Rome"
    if of or question.startswith(("a ", "an ")) or not _LISTING.fullmatch(codes):
        return False
    definite = (match.end() - 1 for match in re.finditer(".T[vN]", codes))
    if any(question[words[at].start].islower() for at in definite):  # "new year in the city"
        return False
    values = [token for token in words if token.code in "vN"]
    names = set().union(*({meaning.field for meaning in token.meaning} for token in values))
    labels = [{meaning.field for meaning in t.meaning} for t in words if t.code == "F"]
    is_compared = has_unspaced(question) or not {*"nyd"}.isdisjoint(codes)
    if not is_compared and any(map(names.isdisjoint, labels)):  # "low prices in France"
        return False
    attributes = {name for name in names if name and not fields[name].is_list}
    # Labels and the like may be of a subject: "customer billing".
    is_named = any(
        token.code == "N"
        or question[token.start].isupper()
        or any(meaning.is_plural for meaning in token.meaning)
        for token in values
    )
    return len(names) > 1 and (is_named or len(attributes) > 1)
