"""``RobustGP``: a ``SingleTaskGP`` that finds outliers, and the search for them on arrays."""
