"""The schedule: which jobs run when, and which process runs them."""
