"""`CapabilityBundle`: capabilities that belong together."""

from typing import Any


class CapabilityBundle(dict[str, Any]):
    """Capabilities by name, as a dictionary and as attributes.

    Examples:
        >>> bundle = CapabilityBundle(retriever="advanced")
        >>> bundle.retriever, list(bundle)
        ('advanced', ['retriever'])

    """

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of whatever type the member is
        """Return a member."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the bundle has {', '.join(self)}, but no {name!r}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]
