"""The published experiments, run again, with our own packers and policies beside the published ones."""
