"""Views of values as text and HTML: pure functions, called by the values' display methods."""
