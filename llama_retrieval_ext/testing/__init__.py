"""What extension authors test with: contract classes to subclass, fakes, and a small corpus."""
