"""From text to the terms of keyword search, the same at index and query time."""
