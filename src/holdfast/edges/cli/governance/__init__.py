"""Commands that say how long things live."""
