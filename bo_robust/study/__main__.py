"""``python -m bo_robust.study FILE`` prints every readable tell as a line of JSON, even of a damaged file."""

import json
import sys

from bo_robust.study.recovery import salvage

if len(sys.argv) != 2:
    sys.exit("usage: python -m bo_robust.study FILE > tells.jsonl")
try:
    rows = salvage(sys.argv[1])
except OSError as error:
    sys.exit(str(error))
for row in rows:
    print(json.dumps(row))
