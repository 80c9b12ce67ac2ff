"""Backups: all that a store holds, sealed for each user under the user's key, in objects that describe themselves."""
