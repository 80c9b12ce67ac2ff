"""Keys: one for each user, a master key around them, and the keys that sign."""
