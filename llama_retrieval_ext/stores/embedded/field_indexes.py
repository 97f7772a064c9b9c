"""Indexes on what is filtered by: without one, a filter reads every node."""

from collections.abc import Iterable, Mapping

from qdrant_edge import EdgeShard, FloatIndexParams, KeywordIndexParams, UpdateOperation

from llama_retrieval_ext.query import KB_KEY, TENANT_KEY
from llama_retrieval_ext.stores.points.field_limits import LONGEST_VALUE, MOST_FIELDS
from llama_retrieval_ext.stores.points.payload import DOC, LIST, META, Payload, path


class FieldIndexes:
    """Makes an index for each field when it is first seen, for the type it then has.

    Args:
        shard: The engine's shard; it remembers by itself which indexes it has.
    """

    def __init__(self, shard: EdgeShard) -> None:
        self._shard = shard
        # The engine writes a path with as few quotes as it can.
        self._indexed = {name.replace('"', "") for name in shard.info().payload_schema}
        self._seen: dict[str, set[str]] = {META: set(), LIST: set()}

    def cover(self, payloads: Iterable[Payload]) -> None:
        """Make the indexes for what these payloads are the first to have."""
        for payload in payloads:
            if DOC in payload and DOC not in self._indexed:
                self._make(DOC, DOC, KeywordIndexParams())
            for group, seen in self._seen.items():
                fields = payload.get(group)
                if isinstance(fields, dict) and not fields.keys() <= seen:
                    self._consider(group, fields)

    def _consider(self, group: str, fields: Mapping[str, object]) -> None:
        for key, value in fields.items():
            if key in self._seen[group] or value == {}:
                continue  # {} stands for what cannot be filtered by, and says nothing of the type
            self._seen[group].add(key)
            name = f"{group}.{key}"
            if name not in self._indexed and len(self._indexed) < MOST_FIELDS and _fits(key, value):
                self._make(name, path(group, key), _index_for(key, value))

    def _make(self, name: str, where: str, index: KeywordIndexParams | FloatIndexParams) -> None:
        self._shard.update(UpdateOperation.create_field_index(where, index))
        self._indexed.add(name)


def _index_for(key: str, value: object) -> KeywordIndexParams | FloatIndexParams:
    if isinstance(value, int | float):
        return FloatIndexParams()
    return KeywordIndexParams(is_tenant=True if key in {TENANT_KEY, KB_KEY} else None)


def _fits(key: str, value: object) -> bool:
    too_long = isinstance(value, str) and len(value) > LONGEST_VALUE
    return not too_long and '"' not in key and "\\" not in key
