"""`ScopedService`: scope handling for services."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_retrieval_ext.checks import declared_arguments
from llama_retrieval_ext.errors import ConfigurationError, ScopeRequiredError
from llama_retrieval_ext.scope import Scope, check_scope, isolates

USER_KEY: Final = "user_id"


@declared_arguments
@dataclass(frozen=True, kw_only=True)
class ScopedService:
    """A service with a fixed scope, or with a scope for each call.

    Args:
        scope: The scope of every call; a call can narrow it. None if each call passes its own.
        require_scope: Whether a call without a scope raises `ScopeRequiredError`.
    """

    scope: Scope | None = None
    require_scope: bool = False

    def _within(self, scope: Scope | None) -> Scope | None:
        """Return the scope of a call."""
        if scope is not None:
            check_scope(scope)
        narrowed = scope if self.scope is None else self.scope.narrowed(scope)
        if self.require_scope and not isolates(narrowed):
            raise ScopeRequiredError(
                f"this {type(self).__name__} requires a scope; pass scope=Scope(...) to the call "
                "or to the service"
            )
        return narrowed


def by_metadata(values: Mapping[str, str]) -> MetadataFilters | None:
    """Return filters for metadata values, which must be non-empty; None if there are none."""
    for key, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{key} must be a non-empty string, got {value!r}")
    filters: list[MetadataFilter | MetadataFilters] = [
        MetadataFilter(key=key, value=value) for key, value in values.items()
    ]
    return MetadataFilters(filters=filters) if filters else None
