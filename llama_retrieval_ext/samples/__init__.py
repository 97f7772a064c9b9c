"""Documents to try the package on: Chinese safety law, and Python's own language reference."""
