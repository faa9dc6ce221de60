"""How the tables of refusals are checked."""

import re
import traceback
from pathlib import Path

import pytest

import bo_robust

HOME = str(Path(bo_robust.__file__).parent)


def check_refused(call, argument):
    """The call raises an error of this package, in one sentence that names the argument."""
    with pytest.raises((ValueError, TypeError), match=rf"(?<!\w){re.escape(argument)}(?!\w)") as caught:
        call()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename.startswith(HOME)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 500
