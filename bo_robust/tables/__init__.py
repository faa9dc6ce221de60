"""A laboratory's file, and the command around it."""
