"""What asks a language model and reads its answers."""
