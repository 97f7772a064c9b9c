"""Views of values, as text and HTML: pure functions; a value shows itself by calling its view."""
