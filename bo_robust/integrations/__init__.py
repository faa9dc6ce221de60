"""Our methods inside other people's loops, one module and one extra per package: ``ax``, ``optuna`` and ``ray``."""
