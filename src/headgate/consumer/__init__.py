"""The consumer: one PySpark cycle, over and over: gather, transform, write, announce."""
