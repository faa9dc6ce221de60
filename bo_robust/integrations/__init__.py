"""bo_robust inside other packages, one module and one extra for each: ``ax``, ``optuna``, ``baybe``, ``bofire``."""
