"""Backends: what each storage engine can do, and how it is asked."""
