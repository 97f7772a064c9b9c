"""Sends a query where it is best answered."""
