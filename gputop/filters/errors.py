"""What is wrong with a filter or a condition."""

from __future__ import annotations


class FilterError(ValueError):
    """``str()`` says why, and what would be right. *position* counts characters of the whole text, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position
