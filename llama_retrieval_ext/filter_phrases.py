"""`Reading`: one question, whose phrases are read as filters from left to right."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filter_documents import (
    in_context,
    is_evident,
    lists_values,
    unknown_document,
)
from llama_retrieval_ext.filter_fields import Field, any_of, any_or_all, fields_of
from llama_retrieval_ext.filter_patterns import (
    AFTER_DESCRIBED_KIND,
    AFTER_DESCRIBED_KINDS,
    AFTER_DOCUMENT,
    AFTER_KIND,
    AFTER_KINDS,
    BEFORE_DOCUMENT,
    BEFORE_KIND,
    BEFORE_NAMED,
    END,
    FILTER,
    HEAD,
    PHRASE,
    SUBJECT,
)
from llama_retrieval_ext.filter_syntax import as_metadata_filters, describe_filters
from llama_retrieval_ext.filter_words import Amount, Meaning, Token, has_other_subject, tokens
from llama_retrieval_ext.filters import AllOf, Condition, Not
from llama_retrieval_ext.interpretation import Interpretation, Source, without
from llama_retrieval_ext.parameters import is_number
from llama_retrieval_ext.text.segmentation import has_unspaced
from llama_retrieval_ext.text.tokenizer import ENGLISH_STOP_WORDS

_FUNCTION_WORDS: Final = ENGLISH_STOP_WORDS | {"will", "may", "might", "must"}
_DESCRIPTION: Final = 4  # words before a kind of documents: "time travel films"
_NEAR: Final = 16  # classes that are looked at before and after a phrase


class Reading:
    """One question, read from left to right; see `Interpreter`."""

    def __init__(
        self,
        question: str,
        mentions: Sequence[Token],
        fields: Mapping[str, Field],
        titles: Collection[str],
        today: date,
        *,
        document: tuple[int, int] | None = None,
    ) -> None:
        self._question, self._fields, self._titles, self._today = question, fields, titles, today
        self._mentions, self._tokens = mentions, tokens(question, mentions, today)
        if document is not None:  # words that are taken to name documents
            first, end = document
            span = Token(self._tokens[first].start, self._tokens[end - 1].end, "g")
            self._tokens[first:end] = [span]
        codes = [token.code for token in self._tokens]
        self._names_documents = self._is_listing = False  # so far
        self._refused: list[str] = []
        self._tokens = in_context(question, self._tokens)
        self._codes = "".join(token.code for token in self._tokens)
        self._parts: list[tuple[Condition, int, int]] = []  # and the places of their words
        self._names_or_compares = not {*"gc"}.isdisjoint(codes)
        head = HEAD.match("".join(codes))
        self._head = 0 if head is None else head.end(1)
        is_head = head and (head["one"] or self._is_plural(self._head))
        if is_head and self._is_before_filter(0, self._head, is_evident=True):
            # "red wines from Italy", "red wine under 20 euros", not "french fries with rice"
            self._codes = f"{self._codes[: self._head - 1]}g{self._codes[self._head :]}"
            self._tokens[self._head - 1] = self._tokens[self._head - 1]._replace(code="g")
        self._is_listing = lists_values(question, self._tokens, self._codes, fields)

    def interpretation(self) -> Interpretation:
        """Return the question as a query and filters."""
        sources: list[Source] = []
        at = 0
        while at < len(self._codes):
            match = PHRASE.match(self._codes, at)
            condition, end = (None, at + 1) if match is None else self._phrase(match)
            if condition is not None:
                self._parts.append((condition, at, end))
                start, stop = self._tokens[at].start, self._tokens[end - 1].end
                shown = describe_filters(as_metadata_filters(condition))
                sources.append(Source(start, stop, self._question[start:stop], shown))
                self._codes = f"{self._codes[:at]}{'V' * (end - at)}{self._codes[end:]}"
            self._names_documents |= condition is not None or "g" in self._codes[at:end]
            at = end
        is_alone = len(self._parts) == 1 or not self._names_or_compares
        if self._parts and has_other_subject(
            self._question, self._tokens, self._codes, is_alone=is_alone
        ):
            # "horror stories from hospitals", not "horror stories from the 1980s"
            text = ", ".join(f"{source.text!r} ({source.filter})" for source in sources)
            self._refused.append(f"{text} may be a subject; to filter, write the field before it")
            self._parts = []
        refused = tuple(self._refused)
        if not self._parts:
            return Interpretation(self._question, self._question, refused=refused)
        query = without(self._question, sources) if SUBJECT.search(self._codes) else ""
        filters = as_metadata_filters(AllOf(tuple(part for part, *_ in self._parts)))
        return Interpretation(self._question, query, filters, None, tuple(sources), refused)

    def with_document(self) -> Interpretation:
        """Return the question as a query and filters, of which an unknown word may be no part.

        The word names documents if all else is filters, of which that is evident.
        """
        document = unknown_document(self._question, self._tokens, self._codes)
        interpretation = self.interpretation()
        if document is None:
            return interpretation
        given = self._question, self._mentions, self._fields, self._titles, self._today
        supposed = Reading(*given, document=document)
        supposition = supposed.interpretation()
        is_more = len(supposition.sources) > len(interpretation.sources)
        is_more &= is_evident(self._question, supposed._tokens, supposed._codes, supposed._parts)
        return supposition if is_more else interpretation

    def _phrase(self, match: re.Match[str]) -> tuple[Condition | None, int]:
        """Return what a phrase stands for, None for nothing, and where the next may begin."""
        match = self._shortened(match)
        if match["time"] is None:
            return self._values(match)
        condition = self._time(match)
        if condition is None:
            return None, match.start() + 1
        return Not(condition) if match["not"] else condition, match.end()

    def _shortened(self, match: re.Match[str]) -> re.Match[str]:
        """Return a phrase up to what is of another field: "brand Fiat, manual", "2 kg, rated 4"."""
        words = self._tokens[match.start() : match.end()]
        named = {m.field for token in words if token.code == "F" for m in token.meaning}
        end = len(words)
        if match["time"] and words[-1].code == "F" and isinstance(words[-2:][0].meaning, Amount):
            amount = words[-2].meaning
            fields = {field.name for field in self._fields.values() if field.spans([amount])}
            end -= bool(fields) and fields.isdisjoint(named)
        elif match["time"] and len(units := [t.meaning for t in words if t.code == "n"]) > 1:
            kinds = {unit.dimension for unit in units if isinstance(unit, Amount)}
            if len(kinds) > 1:  # "lighter than 1 kg and cheaper than $20"
                end = next(at for at, token in enumerate(words) if token.code == "n") + 1
        elif "F" in (match["role"] or ""):
            values = ((at, token.meaning) for at, token in enumerate(words) if token.code in "vN")
            others = (at for at, meant in values if named.isdisjoint(m.field for m in meant))
            end = next(others, end)
        if end == len(words):
            return match
        return PHRASE.match(self._codes, match.start(), match.start() + end) or match

    def _time(self, match: re.Match[str]) -> Condition | None:
        """Return the condition of a time or a number."""
        words = self._tokens[match.start() : match.end()]
        named = {m.field for token in words if token.code == "F" for m in token.meaning}
        signs = [token.meaning.split() for token in words if token.code in "ctsj"]
        operands: Sequence[Any] = [token.meaning for token in words if token.code in "nyd"]
        units = [operand for operand in operands if isinstance(operand, Amount)]
        if units:  # "20 to 30 minutes"
            operands = [units[0]._replace(number=n) if is_number(n) else n for n in operands]
        is_asked = named and any(self._asks(match.start(), match.end()))
        is_of_subject = is_asked and {*"gV"}.isdisjoint(self._codes)
        if is_of_subject or not self._is_value(match):
            return None
        if not named:
            comparatives = {word for sign in signs for word in sign[1:]}  # "cheaper than 300"
            named = {
                field.name
                for field in self._fields.values()
                if not field.words.isdisjoint(comparatives) and field.spans(operands)
            }
            operands = self._unnamed(match, operands, is_bare=not named and not units)
        excluded = {"words", *(["number"] if "t" in match["time"] else [])}  # "prices since 2022"
        fields = fields_of(self._fields.values(), named, operands, excluded)
        if len(fields) == 1:
            operators = [FilterOperator(sign[0]) for sign in signs]
            compared = partial(fields[0].compared, today=self._today)
            if not match["equal"] and len(operators) <= 1:
                return compared(operators[0] if operators else None, operands)
            signed = zip_longest(operators, operands)  # "in 1991 or 2005", "over 5 and below 9"
            parts = [compared(operator, [operand]) for operator, operand in signed]
            present = tuple(part for part in parts if part is not None)
            if len(present) == len(parts):
                return AllOf(present) if operators else any_of(present)
        elif fields:
            names = ", ".join(field.name for field in fields)
            shown = repr(self._question[words[0].start : words[-1].end])
            self._refused.append(f"{shown} may be of {names}; write which")
        return None

    def _is_value(self, match: re.Match[str]) -> bool:
        """Return whether a number is a value, unlike "rated 8" and "the year 2000 problem"."""
        equal, field = match["equal"], match["field"] or ""
        if not equal or {*"ep"} & {*field}:
            return True
        before, after = self._around(match.start(), match.end())
        is_beside = after[:1] == "x" or before[-1:] in {*"xv"}  # "new year 2026"
        is_of_subject = field and "p" not in equal and is_beside
        return "n" not in equal and not is_of_subject

    def _unnamed(
        self, match: re.Match[str], operands: Sequence[Any], *, is_bare: bool
    ) -> Sequence[Any]:
        """Return the operands of a time or an amount without a field; empty if it is no filter."""
        if not self._is_of_documents(match):
            return ()
        if is_bare and ("c" in match["time"] or any(map(is_number, operands))):
            is_compared = match["time"].strip("wpaT") in {"cn", "cy"}  # "laptops under 1200"
            numbers = [n if is_number(n) else n[0].year for n in operands]
            return numbers if is_compared and self._ends(match.end()) else ()
        later = [f.begins_after(operands[-1]) for f in self._fields.values() if f.spans(operands)]
        return () if later and all(later) else operands  # no date of documents

    def _is_of_documents(self, match: re.Match[str]) -> bool:
        """Return whether a time without a field is that of documents, not of a subject."""
        before, after = self._around(match.start(), match.end())
        time, equal = match["time"], match["equal"]
        if document := BEFORE_DOCUMENT.match(after):
            at = match.end() + document.end() - 1
            if document[0][-1] in "vN":  # "2014 comedies", not "2020 drama school"
                return self._is_before_filter(match.start(), at)
            word = self._tokens[match.end() - 1]
            is_title = self._question[word.start : word.end] in self._titles
            is_one = at == match.end() and not self._is_plural(at + 1)
            return not (is_title and is_one and time == "y")  # "the 2012 movie"
        is_near = AFTER_DOCUMENT.search(before) is not None
        is_end = self._ends(match.end())
        if equal and time.strip("!T")[0] in "yd":  # "films 2010", not "the full movie 2010"
            is_plural = before[-1:] == "V" or self._is_plural(match.start())
            return is_near and is_end and is_plural
        is_from = any(
            t.code == "p" and t.meaning for t in self._tokens[match.start() : match.end()]
        )
        is_told = self._names_documents and "q" not in self._codes and before[-1:] != "o"
        is_far = is_told and is_end and (not equal or "r" in time or is_from)
        return is_near or is_far or (not before.strip("aT") and not after)

    def _asks(self, start: int, end: int) -> tuple[bool, bool]:
        """Return whether a question word stands before in the sentence; and, in Chinese, behind."""
        if self._question.startswith("有"):  # 有红色的吗
            return False, False
        text = self._question[self._tokens[start].start : self._tokens[end - 1].end]
        is_behind = has_unspaced(text) and "q" in self._codes[end:].partition(",")[0]
        return "q" in self._codes[:start].rpartition(",")[2], bool(is_behind)

    def _is_plural(self, end: int) -> bool:
        """Return whether the word before a place has the plural's s."""
        return end > 0 and self._question[self._tokens[end - 1].end - 1] == "s"

    def _ends(self, end: int) -> bool:
        """Return whether a phrase may end here, and is not part of a longer one."""
        return END.match(self._codes, end) is not None

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
            at = match.end() - 1 - behind.count("z")
            named_behind = fields & {m.field for m in self._tokens[at].meaning}
            if len(items) == 1 and self._is_plural(at + 1):  # "blood types"
                named_behind = set()
            behind = behind if named_behind else ""
            named |= named_behind
        if match["v"] == "N" and self._codes[match.end() : match.end() + 1] == "x":
            behind = ""  # 第三条规定了
        meant = [[m for m in item if m.field in (named or fields)] for item in items]
        end += len(behind)
        if not all(meant):
            return None, match.start() + max(1, len(match["role"]))
        is_negated = bool(match["no"]) or bool({*"!z"} & {*match["role"], *behind})
        if named:
            is_filter = self._is_labelled(match, end)
        elif match["v"] == "N":
            is_title = any(not meaning.field for item in items for meaning in item)
            is_filter = is_negated or self._is_named(match, end, is_title=is_title)
        else:
            is_filter = self._is_common(match, meant, behind, end)
        if not is_filter:
            return None, end
        roles = {token.meaning for token in words if token.code == "w"}
        joined = any_or_all(self._fields, match["values"], meant, roles, is_negated=is_negated)
        return Not(joined) if is_negated else joined, end

    def _is_labelled(self, match: re.Match[str], end: int) -> bool:
        """Return whether values with their field are one, unlike "explain the western genre"."""
        before, _ = self._around(match.start(), end)
        is_stated = BEFORE_NAMED.search(before) is not None
        is_stated |= bool(match["role"]) and self._names_documents
        is_subject = self._codes[end : end + 1] == "x" and "F" in match["behind"]
        is_stated &= not is_subject and not any(self._asks(match.start(), end))
        of = self._tokens[match.start("role") + match["role"].find("Fp") + 1]
        is_part = "Fp" in match["role"] and self._question[of.start : of.end] == "of"
        # "written by Ann", not "first class stamps" nor "a kind of painting"
        return not is_part and ("F" in match["role"] or is_stated)

    def _is_named(self, match: re.Match[str], end: int, *, is_title: bool) -> bool:
        """Return whether names are a filter, unlike "the life of Jane Austen"."""
        word = self._tokens[match.start("v")]
        is_lower = self._question[word.start : word.end].islower()  # "with a silver oak"
        is_stated = not (is_lower or {*match["role"]} == {"p"}) or self._names_documents
        is_free = not is_title and not self._is_of_subject(match, end)
        return (bool(match["role"]) and is_stated) or is_free

    def _is_of_subject(self, match: re.Match[str], end: int) -> bool:
        """Return whether a name is part of a subject; Chinese has no spaces to tell."""
        before, after = self._around(match.start(), end)
        text = self._question[self._tokens[match.start()].start : self._tokens[end - 1].end]
        if text.islower() and (text.split()[0] in _FUNCTION_WORDS or not self._ends(end)):
            return True  # "will young customers ...", "green motors on lawn mowers"
        is_beside = before[-1:] in {*"xo"} or after[:1] in {"x", "e"}
        return is_beside and not has_unspaced(text)

    def _is_common(
        self, match: re.Match[str], meant: Sequence[Sequence[Meaning]], behind: str, end: int
    ) -> bool:
        """Return whether common words without their field are a filter."""
        last = self._tokens[match.end("values") - 1]
        text = self._question[last.start : last.end]
        fields = [self._fields[meaning.field] for item in meant for meaning in item]
        if any(field.has_names for field in fields) and not has_unspaced(text):
            is_stated = match["role"] == "w" or self._is_attribute(match, meant, end)
            is_stated |= self._is_listing and not match["no"]
            return is_stated and text[0].isupper()  # "with Cher", not "with rain"
        is_except = "z" in behind and not match["no"]
        if match["role"]:
            is_kind = self._is_attribute(match, meant, end)
        elif self._is_listing and not match["no"]:
            is_kind = True
        else:
            is_kind = self._is_kind(match, meant, behind, end)
        return len(text) > 1 and (is_except or is_kind)  # 高, C

    def _is_kind(
        self, match: re.Match[str], items: Sequence[Sequence[Meaning]], behind: str, end: int
    ) -> bool:
        """Return whether common words name a kind of document, without their field."""
        before, after = self._around(match.start(), end)
        if match["no"]:
            is_of_documents = self._names_documents or "g" in behind or not before
            is_kind = after[:1] == "v" or AFTER_KIND.match(after.lstrip("a")) is not None
            return is_of_documents and is_kind
        is_first = BEFORE_KIND.search(before) is not None
        is_described = not before.strip("ax")  # "korean thrillers"
        is_first |= re.fullmatch("a*x{1,3}k", before) is not None  # 不辣的川菜
        asks_before, asks_behind = self._asks(match.start(), end)
        if "g" in behind:
            if end == self._head:
                return self._is_before_filter(match.start(), end)
            is_close = is_described and before.count("x") <= _DESCRIPTION
            is_first |= re.search("Vk?[xr]{1,4}k?$", before) is not None  # 评分8分以上的国产悬疑片
            is_stated = is_first and (asks_before or not asks_behind)
            is_stated |= is_close and not asks_before and not asks_behind
            is_part = after[:1] == "x" and not self._is_plural(end)  # "movie posters"
            if has_unspaced(self._question):
                is_part |= re.match("kv?x", after) is not None  # 高级酒店的入门费
            return is_stated and not is_part
        is_plural = any(meaning.is_plural for item in items for meaning in item)
        if is_plural:
            is_kind = is_first and AFTER_KINDS.match(after) is not None
            is_kind |= is_described and AFTER_DESCRIBED_KINDS.match(after) is not None
            is_kind |= before.endswith("V")  # "low priority bugs nobody ..."
        else:
            is_first |= is_described and AFTER_DESCRIBED_KIND.match(after) is not None
            is_alone = not before.strip("a") and not after.strip(",")
            is_one = is_alone or before.endswith("T") or "T" in match["values"]
            is_kind = is_first and not is_one and AFTER_KIND.match(after) is not None
        is_question = asks_before or asks_behind
        if is_kind and FILTER.match(after) and (is_question or not is_plural):
            return self._is_before_filter(match.start(), end)
        return is_kind and not is_question

    def _is_before_filter(self, start: int, end: int, *, is_evident: bool = False) -> bool:
        """Return whether the phrase behind another is a filter, if that is one.

        It is evidence that an unknown word names documents if it compares with a number, is
        negated, or has the name of its field or a capital.
        """
        codes, refused, names = self._codes, [*self._refused], self._names_documents
        self._names_documents = True
        self._codes = f"{codes[:start]}{'V' * (end - start)}{codes[end:]}"
        behind = PHRASE.match(self._codes, len(codes) - len(codes[end:].lstrip(",&|k")))
        condition = None if behind is None else self._phrase(behind)[0]
        self._codes, self._refused, self._names_documents = codes, refused, names
        if condition is None or behind is None or not is_evident:
            return condition is not None
        if time := behind["time"]:  # not "crime rates since 1990"
            words = self._tokens[behind.start() : behind.end()]
            is_amount = any(isinstance(token.meaning, Amount) for token in words)
            return is_amount or not {*"Fr"}.isdisjoint(time)
        is_capital = self._question[self._tokens[behind.start("v")].start].isupper()
        is_stated = behind["no"] or "F" in behind["role"] or codes[end] == "k"  # "that are"
        return is_capital or bool(is_stated)

    def _is_attribute(
        self, match: re.Match[str], items: Sequence[Sequence[Meaning]], end: int
    ) -> bool:
        """Return whether words after a preposition are a filter: "guides for Milvus"."""
        before, after = self._around(match.start(), end)
        words = self._tokens[match.start() : match.end("values")]
        text = self._question[words[-1].start : words[-1].end]
        is_chinese = has_unspaced(text) is not None
        is_free = bool(match["no"]) or is_chinese
        is_document = re.search("(?:^|[gV])[,Tk]*$" if is_free else "[gV]k?$", before) is not None
        is_end = self._ends(end) or bool(match["no"] and after.startswith("p"))
        # "hotels with a pool", not "laptops with silver keys"
        is_list = any(self._fields[meaning.field].is_list for meaning in items[-1])
        is_with = any(token.meaning == "cast" for token in words)
        # "laws on liability" have it as their subject.
        is_subject = self._question[words[0].start : words[0].end] in {"on", "of"}
        is_common = not is_chinese and not text[0].isupper()
        is_definite = "T" in match["values"] and not self._is_plural(end)  # "in the city"
        is_doubtful = is_common and ((is_with and not is_list) or is_subject or is_definite)
        return is_document and is_end and not is_doubtful
