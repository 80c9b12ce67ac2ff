"""The pure part of Holdfast: no I/O, no clock, no globals. Everything else builds on these values."""
