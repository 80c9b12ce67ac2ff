"""Commands that store, find and remove memories."""
