"""The filters of Qdrant's client; those on our payload, and on that of LlamaIndex's store."""

from typing import Final

from qdrant_client import models

from llama_retrieval_ext.stores.qdrant_common.filters import (
    Constructors,
    FlatFilters,
    PayloadFilters,
)

_CONSTRUCTORS: Final[Constructors[models.Condition]] = Constructors(
    equals=lambda field, values: models.FieldCondition(
        key=field,
        match=models.MatchValue(value=values[0])
        if len(values) == 1
        else models.MatchAny(any=[*values]),  # type: ignore[arg-type]  # all str or all int
    ),
    within=lambda field, **bounds: models.FieldCondition(key=field, range=models.Range(**bounds)),
    contains=lambda field, text: models.FieldCondition(
        key=field, match=models.MatchSubstring(substring=text)
    ),
    empty=lambda field: models.IsEmptyCondition(is_empty=models.PayloadField(key=field)),
    ids=lambda ids: models.HasIdCondition(has_id=[*map(str, ids)]),
    filter=models.Filter,
)
NOTHING: Final = models.Filter(must=[_CONSTRUCTORS.ids(())])
LANGUAGE: Final = PayloadFilters(_CONSTRUCTORS).language
FLAT_LANGUAGE: Final = FlatFilters(_CONSTRUCTORS).language
