"""Published formulas of retrieval, one per file: pure functions over ids and numbers."""
