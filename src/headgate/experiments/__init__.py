"""The published experiments, re-run beside their published numbers, with plots and reports."""
