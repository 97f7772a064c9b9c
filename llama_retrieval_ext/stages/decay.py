"""Score decay by the age of a hit, and by whether it still holds."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from itertools import islice
from math import ceil, isnan
from typing import Annotated, ClassVar, Final

from llama_retrieval_ext.checks import Part
from llama_retrieval_ext.dates import NANOSECONDS, instant, validity_in_words
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.execution.context import note_degraded, step
from llama_retrieval_ext.execution.plan import Plan
from llama_retrieval_ext.formulas.decay import exponential_decay
from llama_retrieval_ext.hits import ordered, score_of
from llama_retrieval_ext.parameters import Advice, Range, Share
from llama_retrieval_ext.pipeline.stages import Refine
from llama_retrieval_ext.query import Query
from llama_retrieval_ext.reordering import found_by, with_score
from llama_retrieval_ext.results import Contribution, Hit

_DAY_NS: Final = 86_400 * NANOSECONDS
# Factor for the score of what no longer holds, or not yet.
_NO_LONGER: Final = 0.5
# How many more hits are searched than may be needed, and at most, in those first searched for.
_SPARE: Final = 1.5
_DEEPEST: Final = 4
# A day, a month or a year, with or without hyphens; a month and a year count as their first day.
_DAY: Final = re.compile(r"(\d{4})(?:-?(\d\d))?(?:-?(\d\d))?")


@dataclass(frozen=True, slots=True, repr=False)
class Recency(Part):
    """Factor in ``[0, 1]`` computed from the age in a hit's metadata.

    Args:
        key: The metadata key with the date or number.
        half_life: The age with factor 0.5: in days for dates, in their unit for numbers.
        origin: The point where age is 0: None for the time of the query, or an ISO date. Values are
            then dates, Python's or ISO 8601's: ``2024-05-31T09:30:00+01:00``, also ``2024``,
            ``2024-05`` and ``20240531``. With a number, values are numbers: ``Recency("year",
            half_life=3, origin=2026)``. Values after the origin have age 0. Times without a zone
            are UTC.
        unknown: The factor of hits without an age, in ``[0, 1]``.

    Raises:
        ConfigurationError: A value is out of range, or ``origin`` is not a date.

    Examples:
        >>> recency = Recency("date", half_life=30, origin="2026-03-01")
        >>> recency.factor({"date": "2026-01-30"}), recency.factor({"date": "soon"})
        (0.5, None)

    """

    key: str
    _: KW_ONLY
    half_life: Annotated[float, Range(above=0), Advice("the age at which a result counts half")]
    origin: float | str | None = None
    unknown: Share = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.origin, str) and _days(self.origin) is None:
            raise ConfigurationError(
                f"origin must be an ISO 8601 date such as '2026-01-31' or a number, "
                f"got {self.origin!r}"
            )

    def factor(self, metadata: Mapping[str, object]) -> float | None:
        """Return the factor for a hit's metadata; None if its age cannot be parsed.

        A hit without an age has the factor ``unknown``.
        """
        value = metadata.get(self.key)
        if value is None or value == "":
            return self.unknown
        if isinstance(self.origin, str) or self.origin is None:
            now, then = _days(self.origin or datetime.now(UTC)), _days(value)
        else:
            now, then = float(self.origin), _number(value)
        if now is None or then is None:
            return None
        return exponential_decay(now - then, half_life=self.half_life)


def _days(value: object) -> float | None:
    """Return the days since 1970; None if the value is not a date."""
    moment = instant(_date(value.strip()) if isinstance(value, str) else value)
    return None if moment is None else moment / _DAY_NS


def _date(text: str) -> object:
    """Return a date in the form that `instant` reads."""
    day = _DAY.fullmatch(text)
    if day is not None:
        return f"{day[1]}-{day[2] or '01'}-{day[3] or '01'}"
    try:
        return datetime.fromisoformat(text)  # ISO 8601's basic form, weeks
    except ValueError:
        return text


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if isnan(number) else number


@dataclass(frozen=True, slots=True, repr=False)
class ScoreDecay(Recency, Refine):
    """Refinement that lowers scores by the age of hits and sorts again.

    With the factor ``f``, a score ``s`` becomes ``s - (1 - f) |s|``. For a positive score this is
    ``f`` times ``s``; a negative score is lowered by the same amount, so an older hit never gains.
    Scores of `RRF` lie close together, so age quickly outweighs rank there.

    It takes the arguments of `Recency`. If an age is present but cannot be parsed, the factor is
    ``unknown`` and the answer is marked degraded. The hit's last contribution has the factor as
    its score and the reduction as its share.

    Raises:
        ConfigurationError: A value is out of range, or ``origin`` is not a date.
        ScoreError: During a query: a hit has no score, or one that is not finite.

    Examples:
        >>> ScoreDecay("published", half_life=365)
        ScoreDecay(key='published', half_life=365)

    """

    fast: ClassVar[bool] = True

    def refine(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ARG002
        """Return the hits with decayed scores, best first."""
        factors = [self.factor(hit.node.metadata) for hit in hits]
        unread = factors.count(None)
        if unread:
            note_degraded(
                "ScoreDecay",
                f"{unread} of {len(hits)} hits have no readable age under {self.key!r}; "
                f"their factor is {self.unknown}",
            )
        decayed: list[Hit] = []
        for rank, (hit, read) in enumerate(zip(hits, factors, strict=True), start=1):
            score, factor = score_of(hit), self.unknown if read is None else read
            less = (1.0 - factor) * abs(score)
            contribution = Contribution("ScoreDecay", rank, factor, 1.0, -less)
            decayed.append(with_score(hit, score - less, (*found_by(hit, rank), contribution)))
        return ordered(decayed)


def with_holding(
    search: Callable[[Query], Plan[list[Hit]]],
    query: Query,
    hits: list[Hit],
    holds: Callable[[Hit], bool],
    *,
    narrowed: Callable[[], Query] | None,
) -> Plan[tuple[list[Hit], list[Hit]]]:
    """Return the plan for the hits of a query, and for as many that hold, if there are.

    If a hit does not hold, so many are searched that enough of them may hold, or those that hold
    alone if few do: by ``narrowed``, which returns the query with its time as a filter, or ever
    deeper without it. A retriever that keeps its rankings searches once for all but the last. The
    first search, of ``hits``, is always for ``top_k``: where a ranking depends on its depth, a
    question has one answer, whatever other questions have met.
    """
    if all(map(holds, hits)):
        return hits, hits
    if query.cutoff is not None:  # it leaves out hits that others make room for
        query = query.unchecked(cutoff=None)
        hits = yield from search(query)
    holding, top_k, depth = [*filter(holds, hits)], query.top_k or 0, query.top_k
    while depth is not None and len(hits) >= depth and len(holding) < top_k:  # there may be more
        depth = ceil(_SPARE * top_k * len(hits) / max(1, len(holding)))
        if narrowed is not None and depth > _DEEPEST * top_k:
            break
        hits = yield from step("more that may hold", search(query.unchecked(top_k=depth)))
        holding = [*filter(holds, hits)]
    if narrowed is None or len(holding) >= top_k > 0:
        return hits, holding
    return hits, (yield from step("what holds now", search(narrowed())))


def holding_first(hits: Sequence[Hit], holding: Sequence[Hit], *, top_k: int | None) -> list[Hit]:
    """Return hits that hold now with others, whose scores are lowered, best first.

    A score ``s`` of a hit that does not hold becomes ``s - |s| / 2``, as in `ScoreDecay`; its last
    contribution says since when, and has the difference as its share.

    Args:
        hits: The ranking without regard to time.
        holding: The ranking of what holds now.
        top_k: Number of hits to return; None for all.
    """
    ids = {hit.node.node_id for hit in holding}
    ended = (
        (rank, hit, words)
        for rank, hit in enumerate(hits, start=1)
        if hit.node.node_id not in ids and (words := validity_in_words(hit.node.metadata))
    )
    lowered: list[Hit] = []
    for rank, hit, words in islice(ended, top_k):
        score = score_of(hit)
        less = (1.0 - _NO_LONGER) * abs(score)
        part = Contribution(words, rank, _NO_LONGER, 1.0, -less)
        lowered.append(with_score(hit, score - less, (*found_by(hit, rank), part)))
    return ordered([*holding, *lowered])[:top_k]
