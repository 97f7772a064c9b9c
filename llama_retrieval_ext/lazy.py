"""Names of a package that are imported on first use, as PEP 562 allows."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]], *, more: Iterable[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package whose names load on first use.

    Args:
        package: The package's ``__name__``.
        modules: For each module, by its absolute name, the names that it provides.
        more: Modules whose ``__all__`` resolves too, in the order in which they are searched.

    Examples:
        >>> load, _ = lazy_names("llama_retrieval_ext", {"llama_retrieval_ext.query": ["Scope"]})
        >>> load("Scope")("acme")
        Scope('acme')

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
