"""Settings of an engine that count when it makes a collection, as they are recorded with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python


def made_with(params: object, names: Sequence[str]) -> Mapping[str, Any]:
    """Those settings that were given, as JSON has them.

    Args:
        params: Has them as attributes: None or empty where they were not given.
        names: Which count.
    """
    given = {name: getattr(params, name) for name in names}
    kept: Mapping[str, Any] = to_jsonable_python(
        {name: value for name, value in given.items() if value not in (None, {})}
    )
    return kept
