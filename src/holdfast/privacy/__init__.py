"""Forgetting that can be proven: keys, sealed objects, erasure and its ledger, exports."""
