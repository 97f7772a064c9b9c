"""`Learned`: the weights and the adapter of queries that a knowledge base has learned."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import yaml

from llama_retrieval_ext.errors import ConfigurationError
from llama_retrieval_ext.formulas.query_adapter import Array


def packed(queries: Array, factor: Array) -> str:
    """Return the vectors of an adapter as text."""
    data = np.stack([queries, factor]).astype(np.float16).tobytes()
    return f"{len(queries)}:{base64.b64encode(zlib.compress(data)).decode()}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Learned:
    """What `KnowledgeBase.learn` has learned, and what was there before.

    Attributes:
        verdict: What changed and how sure that is, in sentences.
        fields: Learned weights of the searched fields; empty if nothing was learned.
        declared_fields: Weights of the `Schema`. If that changes, the learned ones do not hold.
        vector_share: Learned share of vector search in hybrid search.
        rules: The rules of the scope with learned boosts, as of ``Ranking.to_dict``.
        declared_rules: The rules of the scope before.
        scope: Tenant and knowledge bases of the boosts, as of `Scope`; empty for all.
        adapter: Vectors of the adapter, compressed; empty for none.
    """

    verdict: str
    fields: Mapping[str, float] = field(default_factory=dict)
    declared_fields: Mapping[str, float] = field(default_factory=dict)
    vector_share: float | None = None
    rules: Mapping[str, list[object]] = field(default_factory=dict)
    declared_rules: Mapping[str, list[object]] = field(default_factory=dict)
    scope: str = "[]"
    adapter: str = ""

    @property
    def is_changed(self) -> bool:
        """Whether something was learned."""
        return bool(self.fields or self.adapter)

    @property
    def vectors(self) -> tuple[Array, Array] | None:
        """The vectors of the adapter, as of `query_adapter`; None without one."""
        if not self.adapter:
            return None
        count, _, data = self.adapter.partition(":")
        values = np.frombuffer(zlib.decompress(base64.b64decode(data)), np.float16)
        queries, factor = values.astype(np.float64).reshape(2, int(count), -1)
        return queries, factor

    def to_yaml(self, path: str | Path | None = None) -> str:
        """Return it as YAML; optionally write it to a file."""
        text = yaml.safe_dump(asdict(self), sort_keys=False, allow_unicode=True, width=100)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Return what `to_yaml` has written; raise `ConfigurationError` for other text."""
        try:
            return cls(**yaml.safe_load(text))
        except (yaml.YAMLError, TypeError) as error:
            raise ConfigurationError(f"this is no YAML of learned settings: {error}") from error

    def __repr__(self) -> str:
        return self.verdict
