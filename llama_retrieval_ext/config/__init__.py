"""Retrievers by name, configuration files, and presets."""

from typing import TYPE_CHECKING

from llama_retrieval_ext.lazy import lazy_names

if TYPE_CHECKING:
    from llama_retrieval_ext.config.embedding import EmbeddingConfig
    from llama_retrieval_ext.config.parts import RegistryParts
    from llama_retrieval_ext.config.registry import (
        Registry,
        default_registry,
        get_retriever,
        register_retriever,
    )
    from llama_retrieval_ext.config.yaml import (
        from_yaml,
        load_pipeline,
        pipeline_schema,
        to_yaml,
        validate_yaml,
    )


__all__ = [
    "EmbeddingConfig",
    "Registry",
    "RegistryParts",
    "default_registry",
    "from_yaml",
    "get_retriever",
    "load_pipeline",
    "pipeline_schema",
    "register_retriever",
    "to_yaml",
    "validate_yaml",
]

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    _MODULES = {
        "llama_retrieval_ext.config.embedding": ("EmbeddingConfig",),
        "llama_retrieval_ext.config.parts": ("RegistryParts",),
        "llama_retrieval_ext.config.registry": (
            "Registry",
            "default_registry",
            "get_retriever",
            "register_retriever",
        ),
        "llama_retrieval_ext.config.yaml": (
            "pipeline_schema",
            "from_yaml",
            "load_pipeline",
            "to_yaml",
            "validate_yaml",
        ),
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
