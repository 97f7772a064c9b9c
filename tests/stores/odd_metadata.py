"""Odd metadata, and odd conditions on it: what an engine must read as `matches` does."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import FilterOperator

from llama_retrieval_ext.filters import AllOf, AnyOf, Compare, Condition, Not, Value, matches
from tests.quick import trials

KEYS = ["k", "other", "a.b", "a b", "中文", "x/y:z@1+2-3", "list", "meta"]
STRINGS = [
    "false", "", "a", "A", "ab", "3", "true", "None", "it's", 'say "x"', "back\\slash", "100%_*",
    "é", "É", "STRASSE", "straße", "中文法律", "line\nbreak", "a\x00b", "+", "-", "sA", "n3",
]  # fmt: skip
# Syntax of the engines, and names of their fields.
HOSTILE = [
    "*", "_all", "n*", "../n1", '" or 1==1 or "', "' or 1==1 or '", '\\" or id != \\"',
    '") or (id != "', 'doc0"] or tenant == "b" or doc_id in ["x', '"}},{"match_all":{}}',
    '{"$ne": 1}', '"]} \n{"delete":{"_id":"n1"}}\n', "$meta", '"k"s', "\ue000\ue041", "\u2028\r\t",
]  # fmt: skip
STRINGS += HOSTILE
# Strings that are dates, some of them the same instant, and strings that are nearly dates.
DATES = [
    "2024-01-31",
    "2024-01-31T00:00Z",
    "2024-01-31 01:00:00+01:00",
    "2024-01-30T23:59:59.999999",
    "2024-01-31T00:00:00.000001000z",
    "2024-01-31T00:00:00,5-0030",
    "2024-01-31T00:00:01",
    "0001-01-01T00:00+14:00",
    "9999-12-31T23:59:59.9-12",
    "1969-12-31T23:59:59.25",
    "2024-02-29",
]
NEAR_DATES = [
    "2023-02-29",
    "2024-1-31",
    "20240131",
    "2024-01-31T24:00",
    "2024-01-31T",
    "2024-01-31T10",
    "2024-01-31T10:00.5",
    "2024-01-31T10:00:60",
    "2024-01-31Z",
    " 2024-01-31",
    "2024-01-31\n",
    "\uff12\uff10\uff12\uff14-01-31",
    "2024-01-31T00:00:00.0000000001",
    "0000-01-01",
]
# Their length changes with their case.
HARD_STRINGS = ["İstanbul", "ΑΣ"]
NUMBERS = [0, -0.0, 1, 3, 3.0, 3.5, -7, 0.1, 1e-300, 2**53 - 1]
BIG = [2**53, float(2**53), 2**53 + 2, -(2**53), 2**63, 2**70, 1e30, 1e300, -1e300]
SMALL = st.integers(-5, 5)
ODD_SCALARS = [None, True, False, math.nan, math.inf, -math.inf]

EQ, IN, CONTAINS = FilterOperator.EQ, FilterOperator.IN, FilterOperator.CONTAINS
TEXT, ANY_CASE = FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE
ONE = [EQ, FilterOperator.NE, CONTAINS]
MANY = [IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL]
SIZED = [FilterOperator.GT, FilterOperator.GTE, FilterOperator.LT, FilterOperator.LTE]

# What a field holds, and what is easily taken for it.
CONFUSED: list[tuple[object, FilterOperator, Value]] = [
    ([True], CONTAINS, 1),
    (["1"], CONTAINS, 1),
    ([1], CONTAINS, "1"),
    ([3], CONTAINS, 3.0),
    ([["a"]], CONTAINS, "a"),
    (["a"], EQ, "a"),
    (["a"], IN, ("a",)),
    (True, EQ, 1),
    (3, EQ, 3.0),
    (2**53 + 2, EQ, float(2**53)),
    (float(2**60), EQ, 2**60),
    ("STRASSE", ANY_CASE, "straSSe"),
    ("ΑΣΑ", ANY_CASE, "ας"),
    ("ΑΣΑ", ANY_CASE, "ΑΣ"),
    ("", TEXT, ""),
    (3, TEXT, "3"),
    ({}, FilterOperator.IS_EMPTY, None),
    ([], FilterOperator.IS_EMPTY, None),
    ([None], FilterOperator.IS_EMPTY, None),
    ("", FilterOperator.IS_EMPTY, None),
    ([], FilterOperator.ALL, ()),
    ("a", FilterOperator.ALL, ()),
    ([], FilterOperator.ANY, ()),
    ("a", IN, ()),
    (math.nan, FilterOperator.NE, 0),
    (math.inf, FilterOperator.GT, 2**53 - 1),
    *(
        (field, operator, DATES[0])
        for field in (*DATES, *NEAR_DATES, ["2024-01-31"], 20240131, None)
        for operator in SIZED
    ),
    *((DATES[4], operator, value) for operator in SIZED for value in (DATES[3:5])),
]


def examples(number: int) -> settings:
    """Settings for so many `trials`, each of which may take its time."""
    return settings(
        max_examples=trials(number),
        deadline=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            # A test of a contract is inherited: what fails for one engine is tried on all.
            HealthCheck.differing_executors,
        ],
    )


def matching(nodes: Sequence[TextNode], condition: Condition) -> set[str]:
    """The ids of the nodes that match, as `matches` says."""
    return {node.node_id for node in nodes if matches(condition, node.metadata)}


@dataclass(frozen=True, kw_only=True)
class OddMetadata:
    """What the metadata of one engine's tests is made of.

    Attributes:
        strings: Values that are strings; also short ones of any characters are drawn.
        numbers: Values that are numbers; also small whole ones are drawn.
        keys: Keys, in metadata and in conditions.
        odd_keys: Keys that metadata may have and conditions may not.
        odd: Values that conditions never have.
        in_lists: Odd values of lists, in random nodes.
        more_numbers: Further numbers to draw from.
        dates: Dates that sizes are compared with, and metadata has, beside strings near to them.
        sizes: Numbers that sizes are compared with; None for any.
        texts: Operators that look into a text.
        longest_text: How long a text may be that they look for.
        least: How many values `IN` and its like have at least.
    """

    strings: Sequence[str]
    numbers: Sequence[float]
    keys: Sequence[str] = tuple(KEYS)
    odd_keys: Sequence[str] = ()
    odd: Sequence[object] = tuple(ODD_SCALARS)
    in_lists: Sequence[object] = (None, True, math.nan)
    more_numbers: st.SearchStrategy[float] = SMALL
    dates: Sequence[str] = tuple(DATES)
    sizes: Sequence[float] | None = None
    texts: Sequence[FilterOperator] = (TEXT, ANY_CASE)
    longest_text: int | None = None
    least: int = 0

    @property
    def metadata(self) -> st.SearchStrategy[dict[str, object]]:
        """Metadata of one node."""
        scalars, odd = self._scalars, st.sampled_from(self.odd)
        items = st.one_of(scalars, odd, st.just(["a"]), st.just({"k": "a"}))
        values = st.one_of(
            scalars,
            odd,
            st.lists(items, max_size=4),
            st.dictionaries(st.sampled_from(self.keys), scalars, max_size=2),
        )
        keys = st.sampled_from([*self.keys, *self.odd_keys])
        return st.dictionaries(keys, values, max_size=4)

    @property
    def conditions(self) -> st.SearchStrategy[Condition]:
        """Conditions of any operator and any nesting."""
        return st.recursive(
            self._compares,
            lambda parts: st.one_of(
                st.builds(AllOf, st.lists(parts, max_size=3).map(tuple)),
                st.builds(AnyOf, st.lists(parts, max_size=3).map(tuple)),
                st.builds(Not, parts),
            ),
            max_leaves=5,
        )

    def nodes(
        self,
        count: int,
        *,
        seed: int,
        name: Callable[[int], str] = "n{}".format,
        kept: Callable[[object], bool] = lambda _: True,
    ) -> list[TextNode]:
        """Random nodes.

        Args:
            count: How many.
            seed: Of the choice.
            name: Makes the id of each.
            kept: Which values stay.
        """
        rng = random.Random(seed)
        drawn = [
            {key: self._random_value(rng) for key in self.keys if rng.random() < 0.6}
            for _ in range(count)
        ]
        return [
            TextNode(
                id_=name(number),
                embedding=[1.0, number],
                metadata={key: value for key, value in held.items() if kept(value)},
            )
            for number, held in enumerate(drawn)
        ]

    def _random_value(self, rng: random.Random) -> object:
        scalars = [*self.strings, *self.numbers, *self.dates, *NEAR_DATES]
        kind = rng.randrange(10)
        if kind < 6:
            return rng.choice(scalars)
        if kind < 8:
            return [rng.choice([*scalars, *self.in_lists]) for _ in range(rng.randrange(4))]
        return rng.choice([*self.odd, {}, {"k": "a"}])

    @property
    def _words(self) -> st.SearchStrategy[str]:
        return st.one_of(
            st.sampled_from([*self.strings, *self.dates, *NEAR_DATES]),
            st.text(st.characters(codec="utf-8"), max_size=4),
        )

    @property
    def _numbers(self) -> st.SearchStrategy[float]:
        return st.one_of(st.sampled_from(self.numbers), self.more_numbers)

    @property
    def _scalars(self) -> st.SearchStrategy[Any]:
        return st.one_of(self._words, self._numbers)

    @property
    def _compares(self) -> st.SearchStrategy[Compare]:
        keys, words, scalars = st.sampled_from(self.keys), self._words, self._scalars
        sizes: st.SearchStrategy[Any] = (
            self._numbers if self.sizes is None else st.sampled_from(self.sizes)
        )
        if self.dates:
            sizes = st.one_of(sizes, st.sampled_from(self.dates))
        sought = words.map(lambda text: text[: self.longest_text])
        some = st.lists(scalars, min_size=self.least, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Compare, keys, st.sampled_from(ONE), scalars),
            st.builds(Compare, keys, st.sampled_from(MANY), some),
            st.builds(Compare, keys, st.sampled_from(SIZED), sizes),
            st.builds(Compare, keys, st.sampled_from(self.texts), sought),
            st.builds(Compare, keys, st.just(FilterOperator.IS_EMPTY), st.none()),
        )
