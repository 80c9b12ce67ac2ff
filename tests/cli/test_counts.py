"""Every option of every command that says how many is held to one rule."""

from __future__ import annotations

from typing import Any

import pytest

from cli.shell import Shell
from cli.test_help import LEAVES

#: Where 0 is a number of its own: nothing similar, no earlier versions, any port that is free.
MAY_BE_0 = {"--similar", "--versions", "--port"}
COUNTS = [
    pytest.param(path, command, param.opts[0], id=" ".join([*path, param.opts[0]]))
    for path, command in LEAVES
    for param in command.params
    if getattr(getattr(param, "type_descriptor", None), "annotation", None) is int
]


def needed(command: Any, but: str) -> list[str]:
    """What a command must be given, beside one of its options."""
    params = [param for param in command.params if param.required and but not in param.opts]
    words = [[param.opts[0], "x"] if param.param_type_name == "option" else ["x"] for param in params]
    return [word for some in words for word in some]


@pytest.mark.parametrize(("path", "command", "option"), COUNTS)
def test_a_number_that_counts_nothing_is_refused(shell: Shell, path: list[str], command: Any, option: str) -> None:
    for number in ("-1", "99999999999999999999", *(() if option in MAY_BE_0 else ("0",))):
        code, error = shell.error(*path, *needed(command, option), option, number)
        assert (code, error["code"]) == (2, "invalid_input")
        assert error["message"].startswith(f"{option} must be a whole number from 1 to ")


def test_every_list_says_how_many() -> None:
    assert len(COUNTS) >= 20
