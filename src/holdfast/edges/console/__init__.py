"""The console: pages for people, rendered on the server, over the table of operations."""
