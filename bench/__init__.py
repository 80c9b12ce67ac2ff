"""What Holdfast costs and how well it recalls, measured: ``make bench``, figures in ``docs/benchmarks.md``."""
