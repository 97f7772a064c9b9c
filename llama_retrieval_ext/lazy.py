"""Lazy loading of names and of display functions."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rich.console import RenderableType


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]], *, more: Iterable[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package whose names load on first use.

    The names are given by module; ``more`` are modules whose ``__all__`` is resolved as well.

    Examples:
        >>> load, _ = lazy_names("llama_retrieval_ext", {"llama_retrieval_ext.query": ["Scope"]})
        >>> load("Scope")("acme")
        Scope(tenant_id='acme')

    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        module = module_of.get(name) or next(
            (each for each in more if name in import_module(each).__all__), None
        )
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        listed = (import_module(each).__all__ for each in more)
        return sorted({*vars(sys.modules[package]), *module_of, *(n for ns in listed for n in ns)})

    return load, names


class Viewed:
    """Base of values that are displayed by functions of the `display` package.

    A class gives the module and prefix of its functions: ``results.hit`` means ``hit_html`` and
    ``hit_console`` in ``display.results``.
    """

    __slots__ = ()

    _view: ClassVar[str]

    def _shown(self, form: str) -> Any:  # noqa: ANN401 - depends on the form
        module, _, prefix = self._view.partition(".")
        views = import_module(f"llama_retrieval_ext.display.{module}")
        return getattr(views, f"{prefix}_{form}")(self)

    def _repr_html_(self) -> str:
        html: str = self._shown("html")
        return html

    def __rich__(self) -> "RenderableType":
        console: RenderableType = self._shown("console")
        return console
