"""``python -m tests.record`` computes the record anew; commit the file only with the reason of what changed."""

from tests.record.record import write

if __name__ == "__main__":
    write()
