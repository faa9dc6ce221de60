"""Our methods inside other people's loops, one module per package: ``ax`` and ``optuna``, each its own extra."""
