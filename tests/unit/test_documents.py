"""What people read: documents, pictures, benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READ = (
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("screenshots/*.svg"),
    *ROOT.glob("benchmarks/**/*.md"),
)


def test_no_document_or_picture_shows_a_path_of_the_machine_it_was_made_on() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {shown}"
        for path in READ
        for shown in re.findall(r"/(?:work|root|tmp/tmp\w*|var/tmp/\w+)/[\w.]*", path.read_text())
    ]
    assert not found
