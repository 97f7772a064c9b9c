"""Real servers for tests: a user's own by URL, or what the package registries provide."""
