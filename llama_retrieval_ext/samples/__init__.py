"""Sample documents: Chinese safety law, and Python's language reference."""
