"""REST: the engine behind HTTP, under ``/v1``. It translates; it never decides."""
