"""Without the extra [experiments], `bo-robust run` says what to install; `.ci/core.py` fits all models without it."""

import sys

import pytest

from bo_robust.__main__ import NEEDED, main


@pytest.mark.parametrize("module", NEEDED)
def test_the_command_says_what_to_install(module, monkeypatch, capsys):
    """Whichever package is missing, in one line."""
    monkeypatch.setattr(sys, "argv", ["bo-robust", "run", "smoke"])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    said = f'bo-robust: {module} not installed; run: pip install "bo-robust[experiments]"\n'
    assert capsys.readouterr().err == said
