"""The pure part of Retain: no I/O, no clock, no globals. Everything else builds on these values."""
