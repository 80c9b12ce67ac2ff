"""Commands that export and erase, and the keys for it."""
