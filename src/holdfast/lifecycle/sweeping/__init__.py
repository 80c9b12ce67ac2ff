"""Sweeps: what is due is found, decided and moved in small batches."""
