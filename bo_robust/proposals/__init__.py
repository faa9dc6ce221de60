"""The next designs from a table of readings: :func:`bo_robust.suggest` and what it is made of."""
