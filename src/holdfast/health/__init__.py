"""What ``holdfast doctor`` looks at. It only looks."""
