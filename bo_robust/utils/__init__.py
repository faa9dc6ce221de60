"""Random streams, checks of input, covariance functions, linear algebra, and objects from names with options."""
