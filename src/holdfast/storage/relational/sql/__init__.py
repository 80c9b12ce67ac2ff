"""The statements that are written once for all relational engines."""
