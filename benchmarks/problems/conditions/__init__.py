"""Problems over (x, z): f(x, z) with a known distribution of z. Each knows its best value at risk."""
