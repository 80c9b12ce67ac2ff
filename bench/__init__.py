"""What Holdfast costs and how well it recalls, measured: ``make bench-full``, figures in ``docs/benchmarks.md``."""
