"""Presets under the name of their layer; they stand with the retrievers they are made of."""

from llama_retrieval_ext.retrievers.presets import PRESETS, Preset, PresetParts, build_preset

__all__ = ["PRESETS", "Preset", "PresetParts", "build_preset"]
