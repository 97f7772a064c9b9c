"""`Interpreter`: the filters in a question, by fields and their values, without an LLM."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Final

from llama_retrieval_ext.filter_fields import Field, spellings
from llama_retrieval_ext.filter_phrases import Reading
from llama_retrieval_ext.filter_syntax import Scalar
from llama_retrieval_ext.filter_words import Meaning, Token, before_change, held_at
from llama_retrieval_ext.interpretation import Interpretation, Source, without
from llama_retrieval_ext.text.gazetteer import Gazetteer
from llama_retrieval_ext.text.segmentation import has_unspaced

# Longer texts are no questions.
_LONGEST: Final = 400


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
        self._meanings: dict[str, list[Meaning]] = defaultdict(list)
        for spelling, meaning in self._spellings():
            self._meanings[spelling].append(meaning)
        self._gazetteer = Gazetteer((spelling, spelling) for spelling in self._meanings)

    def _spellings(self) -> Iterator[tuple[str, Meaning]]:
        """Yield how a question may write each title, field and value, with what it means."""
        for title in self.titles:
            if " " in title or has_unspaced(title):  # more than a common word
                yield title, Meaning()
        for field in self.fields.values():
            for word in field.words:
                yield word, Meaning(field.name)
            for value in field.values if field.kind == "words" else ():
                if isinstance(value, str) and value.strip():
                    yield from spellings(field, value)

    def mentions(self, question: str) -> Iterator[Token]:
        """Yield the fields (F), names (N), their parts (P), values (v) and titles (x)."""
        for mention in self._gazetteer.find(question):
            meanings = [meaning for id_ in mention.ids for meaning in self._meanings[id_]]
            meanings = [meaning for meaning in meanings if not meaning.is_part] or meanings
            code = "x"
            if all(meaning.is_part for meaning in meanings):
                code = "P" if question[mention.start].isupper() else "x"
            elif any(meaning.value for meaning in meanings):
                meanings = [meaning for meaning in meanings if meaning.value or not meaning.field]
                text = question[mention.start : mention.end]
                exact = {meaning.field for meaning in meanings if meaning.value == text}
                if exact:  # a brand "Orange" and a color "orange"; a genre in both spellings
                    meanings = [m for m in meanings if m.field in {*exact, ""}]
                fields = [(self.fields[m.field], m.value) for m in meanings if m.value]
                is_named = any(
                    (field.has_names or field.has_persons) and field.is_name(v)
                    for field, v in fields
                )
                code = "N" if is_named else "v"
            elif any(meaning.field for meaning in meanings):
                code = "F"
            yield Token(mention.start, mention.end, code, meanings)

    def held_at(self, question: str, today: date) -> Token | None:
        """Return the words that ask for what held at a time, and its day.

        They are such as "valid in 2023", and where no field has times, "in 2023". "Before the
        change" has no day.
        """
        if len(question) > _LONGEST:
            return None
        is_only = all(field.kind == "words" for field in self.fields.values())
        return held_at(question, today, is_only=is_only) or before_change(question)

    def interpret(
        self, question: str, *, today: date | None = None, held: Token | None = None
    ) -> Interpretation:
        """Return the question as a query and filters.

        Args:
            question: The question; of more than 400 characters nothing is a filter.
            today: The day of "last year" and the like; None for that of the clock, in UTC.
            held: What `held_at` says of it, if documents hold for a time.
        """
        today = datetime.now(UTC).date() if today is None else today
        if held is not None and held.meaning is not None:
            return self._held(question, held, today)
        if not self.fields or len(question) > _LONGEST:
            reason = f"filters are not looked for in more than {_LONGEST} characters"
            if not self.fields:
                reason = "no field to filter by has values; declare some: Schema(facets=['genres'])"
            return Interpretation(question, question, refused=(reason,))
        mentions = [*self.mentions(question)]
        reading = Reading(question, mentions, self.fields, self.titles, today)
        return reading.with_document()

    def _held(self, question: str, held: Token, today: date) -> Interpretation:
        """Return the interpretation of a question that asks for the validity of a day."""
        start, end, _, day = held
        text = question[start:end]
        reading = self.interpret(question[:start] + " " * len(text) + question[end:], today=today)
        sources = sorted([*reading.sources, Source(start, end, text, f"as_of {day}")])
        query = without(question, sources) if reading.query.strip() else ""
        refused = reading.refused if self.fields else ()
        return Interpretation(question, query, reading.filters, day, tuple(sources), refused)
