"""The methods of runs over pairs (x, z), and the GP that they share."""
