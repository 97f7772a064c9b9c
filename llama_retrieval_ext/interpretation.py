"""`Interpreter`: the filters in a question, by fields and their values, without an LLM."""
# ruff: noqa: RUF001 - Chinese punctuation on purpose

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import zip_longest
from typing import Final, NamedTuple

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilters

from llama_retrieval_ext.filter_syntax import Scalar, as_metadata_filters, describe_filters
from llama_retrieval_ext.filter_words import (
    Amount,
    Field,
    Token,
    inflections,
    is_document,
    is_name,
    tokens,
)
from llama_retrieval_ext.filters import AllOf, AnyOf, Condition, Not
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.text.gazetteer import Gazetteer
from llama_retrieval_ext.text.segmentation import has_unspaced
from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS

# Longer texts are no questions.
_LONGEST: Final = 400

# Phrases in the classes of `filter_words`: a time or a number; a list of values.
_PHRASE: Final = re.compile(
    r"(?P<time>(?P<not>(?:!g?)?)[wr]?[aT]{0,2}(?P<field>F[ep]{0,2}[aT]{0,2})?"
    r"(?:[bp]?T?[nyd]-T?[nyd]|bT?[nyd]&T?[nyd]|mT?[nyd]j|cT?n[,&]{1,2}cT?n(?(field)(?!p?F)|(?=p?F))"
    r"|p?[ct](?:T?F)?T?[nyd]|p?[nyd]s|(?P<equal>(?:p(?:T?F)?)?T?[nyd](?:[&|,]p?[yd])*))"
    r"(?:(?<=n)p?F|(?<=ns)F|(?<=[yds])F(?=k))?)"
    r"|(?P<values>(?P<no>!)?[aT]{0,2}(?P<role>(?:[wp]?[aT]{0,2}F[ep]?!?|[wp])?)[aT]{0,3}(?P<v>[vN])"
    r"(?(no)(?:(?:,(?P=v))*,?[&|][aT]?(?P=v))?|(?:,?[&|]?[aT]?(?P=v))*))"
    r"(?P<behind>(?:k{0,2}g|!?[ke]?F)?z?)"
)
_FUNCTION_WORDS: Final = ENGLISH_STOP_WORDS | {"will", "may", "might", "must"}
_DESCRIPTION: Final = 4  # words before a kind of documents: "time travel films"
# Values side by side, and other filters after them.
_LISTING: Final = re.compile(r"[aT]*(?:[vN][,&|]{0,2}T?)+k?g?[a,]*(?:[Fctbpwrmynds&-][T,]*)*[vNjF]?")
_NEAR: Final = 16  # classes that are looked at before and after a phrase
# A filter behind a phrase: one of times or numbers, of names, or a negated one.
_FILTER: Final = (
    r"F?[ctb]|p[ct]|r?p[aT]?[yd]|w[aT]?[vNF]|p[aT]?v?F|wa?c|[,&|]?!p?[aT]?[vNFydw]|F[ep]?[nvN]"
)
_BEFORE_FILTER: Final = re.compile(_FILTER)
# What stands before and after a kind of document that is one common word, such as "drama".
_BEFORE_KIND: Final = re.compile(r"(?:^|[gV,])[ark&|]*$|o[^,]{1,8}k$")
_AFTER_KIND: Final = re.compile(rf"a*$|[,zor]|k[vNg]|[aT]?[yd]|[nyd]s|{_FILTER}")
_AFTER_KINDS: Final = re.compile(r"$|[^xeqk]")
_AFTER_DESCRIBED_KIND: Final = re.compile(r"t|wa?c|F?c|,?!|wF?[vN]|F[ep]?[vN]")
_AFTER_DESCRIBED_KINDS: Final = re.compile(rf"[or]|{_FILTER}")
_BEFORE_DOCUMENT: Final = re.compile(
    r"a{0,2}[gvN](?!x)|(?:[rF]?k|o[^,]{0,8}?k)[^,]{0,8}?[gvN]|F[ep]?c[nyd]s?k?[gv]"
)
_AFTER_DOCUMENT: Final = re.compile(r"[gV]r?[a&,]*$")
_END: Final = re.compile(r"T?(?:$|[,&|!zkgwcbtForN]|p[aT]?[ydvNct])")
# Classes of words that no search looks for.
_SUBJECT: Final = re.compile(r"[^VagTkor&|,pw]")
_EDGES: Final = re.compile(
    r"^(?:[\s,;:.!?&，。；：？！、的]|(?:and|but|or|with|by|in|from|of)\b)+"
    r"|(?:[\s,;:&，；：、的]|\b(?:and|but|or|with|by|in|from|of|the|a|an))+$",
    re.IGNORECASE,
)


class Source(NamedTuple):
    """Words of a question that became a filter: their place in it, and the filter in words."""

    start: int
    end: int
    text: str
    filter: str


@dataclass(frozen=True, slots=True)
class Interpretation:
    """A question as a query and filters.

    Attributes:
        question: The question.
        query: The question without what became a filter; empty if nothing else is in it.
        filters: The filters; None without.
        sources: What each filter came from, in order.
        refused: Sentences on what is no filter because it has no field or value, or several.
    """

    question: str
    query: str
    filters: MetadataFilters | None = None
    sources: tuple[Source, ...] = ()
    refused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the interpretation as JSON."""
        return {
            "question": self.question,
            "query": self.query,
            "filters": None if self.filters is None else self.filters.model_dump(mode="json"),
            "sources": [source._asdict() for source in self.sources],
            "refused": list(self.refused),
        }


class _Meaning(NamedTuple):
    """What words may mean: a value of a field, the field itself, or without one a title."""

    field: str = ""
    value: str = ""
    is_plural: bool = False


class Interpreter:
    """Finds the filters in questions.

    Names, such as "Tom Hanks", are filters unless they are the title of a document, or stand beside
    other words, as in "tom hanks island", without "with" and the like. Common words, such as
    "drama", are filters where they name a kind of document: in the plural, before "films" and the
    like, with the name of their field, negated, or followed by another filter. Times without a
    field belong to the only field with dates or years, if they belong to documents: "films after
    2010", not "Berlin after 1945".

    Args:
        values: All values that a caller can see, by field.
        lists: The fields whose values are in lists.
        titles: The titles of documents.

    Examples:
        >>> fields = {"genres": ["Animation", "Comedy"], "year": [1994, 2022]}
        >>> found = Interpreter(fields).interpret("comedies after 2010 about clones, no animation")
        >>> found.query, [source.filter for source in found.sources]
        ('about clones', ["genres == 'Comedy'", 'year > 2010', "not (genres == 'Animation')"])

    """

    def __init__(
        self,
        values: Mapping[str, Sequence[Scalar]],
        *,
        lists: Collection[str] = (),
        titles: Iterable[str] = (),
    ) -> None:
        self.fields = {
            name: Field(name, listed, is_list=name in lists)
            for name, listed in values.items()
            if listed
        }
        self.titles = {*titles}
        self._meanings: dict[str, list[_Meaning]] = defaultdict(list)
        for spelling, meaning in self._spellings():
            self._meanings[spelling].append(meaning)
        self._gazetteer = Gazetteer((spelling, spelling) for spelling in self._meanings)

    def _spellings(self) -> Iterator[tuple[str, _Meaning]]:
        """Yield how a question may write each title, field and value, with what it means."""
        for title in self.titles:
            if " " in title or has_unspaced(title):  # more than a common word
                yield title, _Meaning()
        for field in self.fields.values():
            for word in field.words:
                yield word, _Meaning(field.name)
            for value in field.values if field.kind == "words" else ():
                if isinstance(value, str):
                    yield value, _Meaning(field.name, value)
                    for spelling, is_plural in inflections(field, value):
                        yield spelling, _Meaning(field.name, value, is_plural)

    def mentions(self, question: str) -> Iterator[Token]:
        """Yield the fields (F), names (N), other values (v) and titles (x) in a question."""
        for mention in self._gazetteer.find(question):
            meanings = [meaning for id_ in mention.ids for meaning in self._meanings[id_]]
            code = "x"
            if any(meaning.value for meaning in meanings):
                is_named = any(
                    m.value and self.fields[m.field].has_names and is_name(m.value)
                    for m in meanings
                )
                code = "N" if is_named else "v"
                meanings = [meaning for meaning in meanings if meaning.value or not meaning.field]
            elif any(meaning.field for meaning in meanings):
                code = "F"
            yield Token(mention.start, mention.end, code, meanings)

    def interpret(self, question: str, *, today: date | None = None) -> Interpretation:
        """Return the question as a query and filters.

        Args:
            question: The question; of more than 400 characters nothing is a filter.
            today: The day of "last year" and the like; None for that of the clock, in UTC.
        """
        if not self.fields or len(question) > _LONGEST:
            reason = f"filters are not looked for in more than {_LONGEST} characters"
            if not self.fields:
                reason = "no field to filter by has values; declare some: Schema(facets=['genres'])"
            return Interpretation(question, question, refused=(reason,))
        today = datetime.now(UTC).date() if today is None else today
        return _Reading(self, question, today).interpretation()


class _Reading:
    """One question, read from left to right."""

    def __init__(self, words: Interpreter, question: str, today: date) -> None:
        self._words, self._question, self._today = words, question, today
        self._tokens = tokens(question, words.mentions(question), today)
        codes = [token.code for token in self._tokens]
        for at, token in enumerate(self._tokens):
            if token.code == "F" and is_document(question[token.start : token.end]):
                is_field = codes[at + 1 : at + 2] in (["e"], ["v"], ["N"]) or (
                    codes[at - 1 : at] in (["v"], ["N"])
                )
                codes[at] = "F" if is_field else "g"
        self._codes = "".join(codes)
        self._names_documents = False  # so far
        self._is_listing = self._lists_values()
        self._refused: list[str] = []

    def interpretation(self) -> Interpretation:
        parts: list[Condition] = []
        sources: list[Source] = []
        at = 0
        while at < len(self._codes):
            match = _PHRASE.match(self._codes, at)
            condition, end = (None, at + 1) if match is None else self._phrase(match)
            if condition is not None:
                parts.append(condition)
                sources.append(self._source(at, end, condition))
                self._codes = f"{self._codes[:at]}{'V' * (end - at)}{self._codes[end:]}"
            self._names_documents |= condition is not None or "g" in self._codes[at:end]
            at = end
        refused = tuple(self._refused)
        if not parts:
            return Interpretation(self._question, self._question, refused=refused)
        query = without(self._question, sources) if _SUBJECT.search(self._codes) else ""
        filters = as_metadata_filters(AllOf(tuple(parts)))
        return Interpretation(self._question, query, filters, tuple(sources), refused)

    def _source(self, at: int, end: int, condition: Condition) -> Source:
        start, stop = self._tokens[at].start, self._tokens[end - 1].end
        shown = describe_filters(as_metadata_filters(condition))
        return Source(start, stop, self._question[start:stop], shown)

    def _phrase(self, match: re.Match[str]) -> tuple[Condition | None, int]:
        """Return what a phrase stands for, None for nothing, and where the next may begin."""
        if match["time"] is None:
            return self._values(match)
        condition = self._time(match)
        if condition is None:
            return None, match.start() + 1
        return Not(condition) if match["not"] else condition, match.end()

    def _time(self, match: re.Match[str]) -> Condition | None:
        """Return the condition of a time or a number."""
        words = self._tokens[match.start() : match.end()]
        named = {m.field for token in words if token.code == "F" for m in token.meaning}
        operands = [token.meaning for token in words if token.code in "nyd"]
        signs = [token.meaning.split() for token in words if token.code in "ctsj"]
        units = [operand for operand in operands if isinstance(operand, Amount)]
        if units:  # "20 to 30 minutes"
            operands = [units[0]._replace(number=n) if is_number(n) else n for n in operands]
        if not named:  # "cheaper than 300"
            named = {
                field.name
                for field in self._words.fields.values()
                if any(field.words.intersection(sign[1:]) for sign in signs)
            }
            is_bare = not named and not units and any(map(is_number, operands))
            is_compared = match["time"].strip("wpaT") == "cn" and self._ends(match.end())
            if not self._is_of_documents(match) or (is_bare and not is_compared):
                return None
        if match["equal"] and "n" in match["equal"] and not {*"ep"} & {*(match["field"] or "")}:
            return None  # "rated 8", "500 votes"
        fields = [
            field
            for field in self._words.fields.values()
            if field.kind != "words"
            if (field.name in named if named else field.spans(operands))
        ]
        if len(fields) != 1:
            if fields:
                names = ", ".join(field.name for field in fields)
                self._refused.append(f"{self._shown(match)} may be of {names}; write which")
            return None
        operators = [FilterOperator(sign[0]) for sign in signs]
        compared = partial(fields[0].compared, today=self._today)
        if match["equal"] or len(operators) > 1:  # "in 1991 or 2005", "over 5 and below 9"
            signed = zip_longest(operators, operands)
            parts = [compared(operator, [operand]) for operator, operand in signed]
            present = [part for part in parts if part]
            if len(present) < len(parts):
                return None
            return AllOf(tuple(present)) if operators else _any(present)
        return compared(operators[0] if operators else None, operands)

    def _shown(self, match: re.Match[str]) -> str:
        words = self._tokens[match.start() : match.end()]
        return repr(self._question[words[0].start : words[-1].end])

    def _is_of_documents(self, match: re.Match[str]) -> bool:
        """Return whether a time without a field is that of documents, not of a subject."""
        before, after = self._around(match.start(), match.end())
        time, equal = match["time"], match["equal"]
        if _BEFORE_DOCUMENT.match(after):
            word, document = self._tokens[match.end() - 1 : match.end() + 1]
            is_title = self._question[word.start : word.end] in self._words.titles
            is_one = document.code == "g" and self._question[document.end - 1] != "s"
            return not (is_title and is_one and time == "y")  # "the 2012 movie"
        is_near = _AFTER_DOCUMENT.search(before) is not None
        is_end = self._ends(match.end())
        if equal and time.strip("!T")[0] in "yd":  # "films 2010", not "the full movie 2010"
            last = self._tokens[match.start() - 1]
            is_plural = before[-1:] == "V" or self._question[last.end - 1 : last.end] == "s"
            return is_near and is_end and is_plural
        is_from = any(
            t.code == "p" and t.meaning for t in self._tokens[match.start() : match.end()]
        )
        is_told = self._names_documents and "q" not in self._codes and before[-1:] != "o"
        is_far = is_told and is_end and (not equal or "r" in time or is_from)
        return is_near or is_far or (not before.strip("aT") and not after)

    def _lists_values(self) -> bool:
        """Return whether a question has nothing but filters: values of several fields."""
        if not _LISTING.fullmatch(self._codes):
            return False
        words = [token for token in self._tokens if token.code in "vN"]
        fields = [{meaning.field for meaning in token.meaning} for token in words]
        attributes = {
            name for names in fields for name in names if name and not self._words.fields[name].is_list
        }
        # Labels and the like may be of a subject: "customer billing".
        is_named = any(
            token.code == "N"
            or self._question[token.start].isupper()
            or any(meaning.is_plural for meaning in token.meaning)
            for token in words
        )
        return len(set().union(*fields)) > 1 and (is_named or len(attributes) > 1)

    def _asks_before(self, end: int) -> bool:
        """Return whether a question word stands before, in the same sentence."""
        return "q" in self._codes[:end].rpartition(",")[2]

    def _ends(self, end: int) -> bool:
        """Return whether a phrase may end here, and is not part of a longer one."""
        return _END.match(self._codes, end) is not None

    def _around(self, start: int, end: int) -> tuple[str, str]:
        """Return the classes before and after a phrase."""
        return self._codes[max(0, start - _NEAR) : start], self._codes[end : end + _NEAR]

    def _values(self, match: re.Match[str]) -> tuple[Condition | None, int]:
        """Return the condition of a list of values, and where the next phrase may begin."""
        end, behind = match.end("values"), match["behind"]
        words = self._tokens[match.start() : end]
        items = [token.meaning for token in words if token.code in "vN"]
        fields = {meaning.field for item in items for meaning in item} - {""}
        named = {m.field for token in words if token.code == "F" for m in token.meaning}
        if "F" in behind:  # "comedy genre", but not "comedies directed by"
            named_behind = {
                m.field for m in self._tokens[match.end() - 1 - behind.count("z")].meaning
            }
            behind = behind if fields & named_behind else ""
            named |= fields & named_behind
        if match["v"] == "N" and self._codes[match.end() : match.end() + 1] == "x":
            behind = ""  # 第三条规定了
        end += len(behind)
        meant = [[m for m in item if m.field in (named or fields)] for item in items]
        if not all(meant):
            return None, match.start() + max(1, len(match["role"]))
        is_negated = bool(match["no"]) or bool({*"!z"} & {*match["role"], *behind})
        is_title = any(not meaning.field for item in items for meaning in item)
        text = self._question[words[-1].start : words[-1].end]
        if named:  # "explain the western genre" has none
            is_filter = "F" in match["role"] or not self._asks_before(match.start())
        elif match["v"] == "N":
            before, after = self._around(match.start(), end)
            # Beside other words a name may be one of a subject; Chinese has no spaces to tell.
            is_subject = (before[-1:] == "x" or after[:1] == "x") and not has_unspaced(text)
            # "will young customers ..."
            is_subject |= text.islower() and text.split()[0] in _FUNCTION_WORDS
            is_filter = bool(match["role"]) or is_negated or not (is_title or is_subject)
        elif any(self._words.fields[field].has_names for field in fields):
            # "with Cher", not "with rain"
            is_filter = match["role"] == "w" and text[0].isupper()
        elif len(text) == 1:
            is_filter = False  # 高, C
        else:
            is_filter = is_negated > bool(match["no"]) or self._is_kind(match, meant, behind, end)
        roles = {token.meaning for token in words if token.code == "w"}
        if not is_filter:
            return None, end
        joined = self._joined(match["values"], meant, roles, is_negated=is_negated)
        return Not(joined) if is_negated else joined, end

    def _is_kind(
        self, match: re.Match[str], items: Sequence[Sequence[_Meaning]], behind: str, end: int
    ) -> bool:
        """Return whether common words name a kind of document, without their field."""
        before, after = self._around(match.start(), end)
        if match["role"]:  # "guides for Milvus", "laptops by Lenovo"; not "films with music"
            words = self._tokens[match.start() : end]
            is_cast = any(token.meaning == "cast" for token in words)
            is_with = is_cast and not self._question[words[-1].start].isupper()
            is_document = re.search("(?:^|[gV]),?$" if match["no"] else "[gV]$", before) is not None
            return is_document and not is_with and self._ends(end)
        if match["no"]:
            is_of_documents = self._names_documents or "g" in behind or not before
            is_kind = after[:1] == "v" or _AFTER_KIND.match(after.lstrip("a")) is not None
            return is_of_documents and is_kind
        is_first = _BEFORE_KIND.search(before) is not None
        is_described = not before.strip("ax")  # "korean thrillers"
        is_first |= re.fullmatch("a*x{1,3}k", before) is not None  # 不辣的川菜
        is_question = self._asks_before(match.start())
        if self._is_listing:
            return True
        if "g" in behind:
            is_close = is_described and before.count("x") <= _DESCRIPTION
            return is_first or (is_close and not is_question)
        if any(meaning.is_plural for item in items for meaning in item):
            is_kind = is_first and _AFTER_KINDS.match(after) is not None
            is_kind |= is_described and _AFTER_DESCRIBED_KINDS.match(after) is not None
            is_kind |= before.endswith("V")  # "low priority bugs nobody ..."
        else:
            is_first |= is_described and _AFTER_DESCRIBED_KIND.match(after) is not None
            is_alone = not before.strip("a") and not after.strip(",")
            is_one = is_alone or before.endswith("T") or "T" in match["values"]
            is_kind = is_first and not is_one and _AFTER_KIND.match(after) is not None
        return is_kind and (not is_question or _BEFORE_FILTER.match(after) is not None)

    def _joined(
        self, codes: str, items: Sequence[Sequence[_Meaning]], roles: set[str], *, is_negated: bool
    ) -> Condition:
        """Return the condition of lists of values side by side: of each any, or all."""
        lists: list[tuple[list[Sequence[_Meaning]], str]] = []
        for joint, item in zip(re.findall("([,&|]*)[aT]?[vN]", codes), items, strict=True):
            fields = {meaning.field for listed in (lists or [([], "")])[-1][0] for meaning in listed}
            is_same = not fields.isdisjoint(meaning.field for meaning in item)
            if lists and joint and (is_same or "|" in joint):
                listed, joints = lists[-1]
                lists[-1] = ([*listed, item], joints + joint)
            else:  # "horror comedies", "Sony or Bose, black"
                lists.append(([item], ""))
        is_any = is_negated or "e" in codes
        parts = [self._list(listed, roles, is_any=is_any or "|" in joints) for listed, joints in lists]
        if len(parts) == 1 or is_negated:
            return _any(parts)
        return AllOf(tuple(parts))

    def _list(
        self, items: Sequence[Sequence[_Meaning]], roles: set[str], *, is_any: bool
    ) -> Condition:
        names = {meaning.field for item in items for meaning in item}
        if len(names) == 1 and len(items) > 1:
            field = self._words.fields[names.pop()]
            # A document has one author, and "comedies and dramas" are two kinds of it.
            is_any |= not field.is_list or any(m.is_plural for item in items for m in item)
            if is_any:
                return field.among(meaning.value for item in items for meaning in item)
        parts = [self._among(item, roles) for item in items]
        return _any(parts) if is_any or len(parts) == 1 else AllOf(tuple(parts))

    def _among(self, meanings: Sequence[_Meaning], roles: set[str]) -> Condition:
        """Return the condition that a field has one of some values; of several fields, any."""
        fields = {meaning.field: self._words.fields[meaning.field] for meaning in meanings}
        # A cast has several names, and an author one: "with" and "by".
        fitting = [
            field
            for field in fields.values()
            if {"author", "cast"} & roles and field.is_list is ("cast" in roles)
        ]
        return _any(
            [
                field.among(m.value for m in meanings if m.field == field.name)
                for field in fitting or fields.values()
            ]
        )


def without(question: str, sources: Iterable[Source]) -> str:
    """Return what is left of a question without some of its words."""
    pieces, end = [], 0
    for source in sorted(sources):
        pieces.append(question[end : source.start])
        end = max(end, source.end)
    return _EDGES.sub("", " ".join(" ".join([*pieces, question[end:]]).split()))


def _any(parts: Sequence[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))
