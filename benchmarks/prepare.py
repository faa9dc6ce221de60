"""Make the file that a problem reads from what you downloaded: ``python -m benchmarks.prepare NAME DOWNLOAD``.

It goes to the folder of the environment variable ``BO_ROBUST_DATA``. DOWNLOAD is a file, or a folder of files.
"""

import argparse
from pathlib import Path

from benchmarks.problems.data import DATA_FILES, data_folder, prepare


def main() -> None:
    """Convert, and check that the result is the data set."""
    sources = "\n".join(f"  {name}: from {file.source}" for name, file in DATA_FILES.items())
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"data sets:\n{sources}", formatter_class=text)
    parser.add_argument("name", metavar="NAME", choices=DATA_FILES)
    parser.add_argument("file", metavar="DOWNLOAD", type=Path)
    given, folder = parser.parse_args(), data_folder()
    if folder is None:
        parser.error("set the environment variable BO_ROBUST_DATA to the folder of data sets.")
    try:
        print(f"Wrote {prepare(given.name, given.file, folder)}.")
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
