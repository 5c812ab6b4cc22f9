"""Build hook: the commit a wheel is made of, the man page and the completion scripts.

They are made from the sources that are packed, in a child process, so that they cannot be of another version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MADE = {
    ("man",): "share/man/man1/gputop.1",
    ("completion", "bash"): "share/bash-completion/completions/gputop",
    ("completion", "zsh"): "share/zsh/site-functions/_gputop",
    ("completion", "fish"): "share/fish/vendor_completions.d/gputop.fish",
}


class CustomBuildHook(BuildHookInterface[Any]):
    """Not for editable installs: what is edited would not be the commit."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        folder, root = Path(self._folder.name), Path(self.root)
        commit = self._git("log", "-1", "--format=%h, %cd", "--date=short")
        if commit and not (root / "gputop" / "_build.py").exists():
            changed = " with changes" if self._git("status", "--porcelain", "--untracked-files=no") else ""
            file = folder / "_build.py"
            file.write_text(f'"""Written when this was built."""\n\nCOMMIT = "{commit}{changed}"\n')
            build_data["force_include"][str(file)] = "gputop/_build.py"
        if self.target_name != "wheel":
            return
        environment = {**os.environ, "PYTHONPATH": self.root}
        if date := self._git("log", "-1", "--format=%ct"):
            environment["SOURCE_DATE_EPOCH"] = date  # the man page's date
        for number, (arguments, place) in enumerate(MADE.items()):
            file = folder / str(number)
            done = subprocess.run(
                [sys.executable, "-m", "gputop", *arguments], env=environment, capture_output=True, check=True
            )
            file.write_bytes(done.stdout)
            build_data["shared_data"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _git(self, *arguments: str) -> str:
        """What git says of this very folder; nothing where it is no clone (an unpacked source archive)."""
        if not Path(self.root, ".git").exists():
            return ""
        try:
            done = subprocess.run(["git", "-C", self.root, *arguments], capture_output=True, text=True)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""
