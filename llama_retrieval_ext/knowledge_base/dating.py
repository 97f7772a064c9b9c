"""`Dating`: from when until when documents hold, by their metadata, a function or their text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from llama_index.core.schema import BaseNode, MetadataMode

from llama_retrieval_ext.dates import (
    KNOWN_FROM,
    VALID_FROM,
    VALID_TO,
    VALIDITY_TEXT,
    Moment,
    instant,
    moment_of,
    now,
)
from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.text.validity import validity_in

# The metadata keys of the start and the end, of which one may be None; or a function of a document
# that returns both, either of which may be None.
Valid: TypeAlias = (
    Sequence[str | None] | Callable[[BaseNode], tuple[Moment | None, Moment | None] | None]
)
_KEYS: Final = (VALID_FROM, VALID_TO)


@dataclass(frozen=True, slots=True)
class Dating:
    """Gives documents the time for which they hold, in their metadata.

    Attributes:
        valid: The keys or the function; None for the metadata as it is.
        validity: Whether a document that does not say so otherwise is read for it.
        time_zone: The zone of dates without one, such as ``Asia/Shanghai``.
    """

    valid: Valid | None = None
    validity: Literal["text"] | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        is_pair = isinstance(self.valid, list | tuple) and len(self.valid) == len(_KEYS)
        if not (self.valid is None or callable(self.valid) or is_pair):
            raise ConfigurationError(
                "valid must be two metadata keys, such as ('effective', 'expires') or "
                "('effective', None), or a function of a document that returns two dates, got "
                f"{self.valid!r}"
            )
        if self.validity not in (None, "text"):
            raise ConfigurationError(f"validity must be 'text' or None, got {self.validity!r}")
        _ = self._zone

    def dated(self, node: BaseNode) -> BaseNode:
        """Return the node, or a copy that says from when until when it holds.

        Raises:
            ConfigurationError: A date cannot be read, or the end is not after the start.
        """
        dates: dict[str, object] = dict(zip(_KEYS, self._ends(node), strict=True))
        more = {
            key: self._moment(value, key) for key, value in dates.items() if value not in (None, "")
        }
        if self.validity is not None and not more:
            read = validity_in(node.get_content(MetadataMode.NONE))
            dates = {} if read is None else {VALID_FROM: read.start, VALID_TO: read.end}
            more = {key: self._moment(day, key) for key, day in dates.items() if day is not None}
            if read is not None:
                more[VALIDITY_TEXT] = read.words
        if not more:
            return node
        start, end = (instant(more.get(key)) for key in _KEYS)
        if start is not None and end is not None and start >= end:
            raise ConfigurationError(f"{VALID_TO} must be after {VALID_FROM}, got {more}")
        hidden = list(dict.fromkeys([*node.excluded_embed_metadata_keys, *more]))
        return node.model_copy(
            update={"metadata": {**node.metadata, **more}, "excluded_embed_metadata_keys": hidden}
        )

    def _ends(self, node: BaseNode) -> tuple[object, object]:
        if callable(self.valid):
            return self.valid(node) or (None, None)
        first, last = _KEYS if self.valid is None else self.valid
        return node.metadata.get(first or ""), node.metadata.get(last or "")

    @property
    def _zone(self) -> tzinfo:
        try:
            return UTC if self.time_zone is None else ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigurationError(
                f"time_zone must be a name such as 'Asia/Shanghai', got {self.time_zone!r}"
            ) from error

    def _moment(self, value: object, name: str) -> str:
        """Return a date or an instant with the zone, if it has none."""
        text = moment_of(value, name)
        moment = datetime.fromisoformat(text)
        if self.time_zone is None or moment.tzinfo is not None:
            return text
        return moment.replace(tzinfo=self._zone).isoformat()


# For calls that do not say anything of dates.
AS_IT_IS: Final = Dating()


def with_known_from(node: BaseNode, *, keeps: bool) -> BaseNode:
    """Return a node with the time since when it is known, if that is kept or it has a validity."""
    metadata = node.metadata
    if KNOWN_FROM in metadata or not (keeps or VALID_FROM in metadata or VALID_TO in metadata):
        return node
    hidden = {
        name: [*getattr(node, name), KNOWN_FROM]
        for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys")
    }
    return node.model_copy(update={"metadata": {**metadata, KNOWN_FROM: now()}, **hidden})
