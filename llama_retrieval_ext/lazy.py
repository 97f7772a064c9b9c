"""Lazy loading of names and of display functions."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from rich.console import RenderableType


# Names of the designs that have another name here; config/README.md has the whole table.
_REGISTERED: Final = "kb.retriever({0!r}), or registry.get('retriever', {0!r})"
_OF_DESIGNS: Final = {
    "BaseRetrieverOperator": "a class with an async retrieve, and @register_retriever('name')",
    "BaseSelector": "LlamaIndex's BaseSelector, or any object with select(query, choices)",
    "DenseRetriever": _REGISTERED.format("dense"),
    "DiversityFilterStage": "MMR(lambda_mult)",
    "FusionMode": "QueryFusionRetriever(..., mode='reciprocal_rerank')",
    "FusionStage": "RRF() or WeightedSum()",
    "GraphRetrievalStage": "a retriever, or Leg(name, retriever, weight=...)",
    "IntentAdaptiveStage": "IntentAdaptive(...)",
    "LlamaBM25Retriever": _REGISTERED.format("llama_bm25"),
    "LlamaDenseRetriever": _REGISTERED.format("llama_dense"),
    "LlamaHybridRetriever": _REGISTERED.format("llama_hybrid"),
    "RetrievalResponse": "KnowledgeResponse",
    "RetrievalResult": "Hit",
    "RetrievalStrategy": "a preset's name: kb.retriever('basic'), 'advanced', 'semantic' or 'auto'",
    "RetrieverBase": "Retriever",
    "RetrieverFactory": "CapabilityFactory(...).create_retriever(preset)",
    "SemanticRerankStage": "RuleRerank() or LLMRerank(llm)",
    "StageBase": "Rewrite, FanOut, Fusion or Refine, or a function of (query, hits)",
    "VectorRetrievalStage": "a retriever, or Leg(name, retriever, weight=...)",
    "operator_registry": "llama_retrieval_ext.config.registry",
    "register_operator": "llama_retrieval_ext.config.register_retriever(name)",
}


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package with lazy names.

    The names are those that the package's stub, ``__init__.pyi``, imports, which is also what type
    checkers read. Names behind a star resolve, too, but are not in ``__all__``.

    Examples:
        >>> from llama_retrieval_ext import stores
        >>> load, _, names = lazy_names(stores.__name__, stores.__file__)
        >>> names
        ['EmbeddedVectorStore', 'GenericBackend', 'open_store']
        >>> load("open_store").__module__
        'llama_retrieval_ext.stores.open'

    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [
        (name.name, str(statement.module))
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    ]
    module_of = {name: module for name, module in imports if name != "*"}
    stars = [module for name, module in imports if name == "*"]

    def load(name: str) -> object:
        module = module_of.get(name) or next(
            (star for star in stars if name in import_module(star).__all__), None
        )
        if module is None and name in _OF_DESIGNS:
            # `from package import name` would drop the message of an AttributeError.
            raise ImportError(f"{package} has no {name}; use {_OF_DESIGNS[name]}")
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        listed = (import_module(star).__all__ for star in stars)
        return sorted({*vars(sys.modules[package]), *module_of, *(n for ns in listed for n in ns)})

    return load, names, sorted(module_of)


_TEXT_COLUMNS: Final = 160


def shown(value: object, view: str, form: str) -> Any:  # noqa: ANN401 - depends on the form
    """Return the view of a value: ``results.hit`` as HTML is ``hit_html`` of `display.results`."""
    module, _, prefix = view.partition(".")
    views = import_module(f"llama_retrieval_ext.display.{module}")
    return getattr(views, f"{prefix}_{form}")(value)


class Viewed:
    """Base of values that are displayed by functions of the `display` package.

    A class gives the module and prefix of its functions: ``results.hit`` means ``hit_html`` and
    ``hit_console`` in ``display.results``.
    """

    __slots__ = ()

    _view: ClassVar[str]

    def _shown(self, form: str) -> Any:  # noqa: ANN401 - depends on the form
        return shown(self, self._view, form)

    def _as_text(self) -> str:
        """Return the view of a console as plain text."""
        from rich.console import Console  # noqa: PLC0415 - a view

        console = Console(width=_TEXT_COLUMNS, color_system=None, highlight=False)
        with console.capture() as captured:
            console.print(self.__rich__())
        return "\n".join(map(str.rstrip, captured.get().splitlines()))

    def _repr_html_(self) -> str:
        html: str = self._shown("html")
        return html

    def __rich__(self) -> "RenderableType":
        console: RenderableType = self._shown("console")
        return console
