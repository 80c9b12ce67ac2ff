"""What a backup brings back into a store that is in use."""
