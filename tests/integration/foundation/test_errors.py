"""Every error of the server can be built, and has a message of its own, with any details."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

from marketplace.foundation.errors import SoukError, StateConflict

PACKAGES = ("marketplace", "jobs", "billing")


def every_error() -> list[type[SoukError]]:
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if module.name.endswith("errors"):
                importlib.import_module(module.name)
    found: list[type[SoukError]] = []
    waiting = [SoukError]
    while waiting:
        cls = waiting.pop()
        found += [each for each in cls.__subclasses__() if each.__module__.split(".")[0] in PACKAGES]
        waiting += cls.__subclasses__()
    return found


@pytest.mark.parametrize("cls", every_error(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_an_error_has_a_message_of_its_own_even_without_details(cls: type[SoukError]) -> None:
    assert "message" in vars(cls), "a class without a message would speak with its parent's"
    error = cls.__new__(cls)
    SoukError.__init__(error)
    assert str(error) == error.message != ""
    assert cls.code != SoukError.code
    assert 400 <= cls.status < 600


def test_a_detail_that_is_missing_stays_visible_in_the_message() -> None:
    assert str(StateConflict(kind="hold", id=7)) == "hold 7 cannot go to {to}: it is {state}."
    assert str(StateConflict(kind="hold", id=7, to="open", state="ended")) == "hold 7 cannot go to open: it is ended."


def test_messages_survive_an_interpreter_that_strips_docstrings() -> None:
    program = "from marketplace.foundation.errors import Forbidden; print(Forbidden())"
    done = subprocess.run([sys.executable, "-OO", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "You may not do this.\n"
