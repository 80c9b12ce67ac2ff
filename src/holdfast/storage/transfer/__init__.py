"""Copying a whole store into another database: compared at the end, and able to go on after a crash."""
